//! A loopback HTTP server that misbehaves as told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A request as far as the tests look at it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Start of the range asked for.
    pub(crate) range: Option<usize>,
    pub(crate) if_range: Option<String>,
}

/// What the server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// The file, or the part asked for, with this ETag.
    File(Arc<Vec<u8>>, &'static str),
    /// The whole file whatever part was asked for.
    Whole(Arc<Vec<u8>>),
    /// Announces everything asked for, sends this many bytes, closes.
    Truncated(Arc<Vec<u8>>, usize),
    /// Announces everything asked for, sends this many bytes, then nothing until the client leaves.
    Stalled(Arc<Vec<u8>>, usize),
    /// A partial response that starts this many bytes after the place asked for.
    Shifted(Arc<Vec<u8>>, usize),
    /// The file, with these headers.
    Headed(Arc<Vec<u8>>, String),
    /// A status with these headers and no body.
    Status(u16, String),
}

/// Tag of every file whose reply gives no other.
pub(crate) const ETAG: &str = "\"one\"";

/// Serves on a free loopback port until dropped.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `reply` decides by the request and how many came before it for the same path.
    pub(crate) fn start(reply: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, stopped) = (requests.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    // a client that left early is what these tests are about
                    scope.spawn(|| stream.and_then(|s| answer(s, &seen, &reply)).ok());
                }
            });
        });
        Server { address, requests, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/data", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // wakes the accept
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn answer(
    stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    reply: &impl Fn(&Request, usize) -> Reply,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("").to_owned();
    let mut request = Request { path, range: None, if_range: None };
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        let (name, value) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = value.trim_start_matches("bytes=").trim_end_matches('-').parse().ok(),
            "if-range" => request.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.iter().filter(|r| r.path == request.path).count() - 1
    };
    send(stream, &request, reply(&request, before))
}

fn send(mut stream: TcpStream, request: &Request, reply: Reply) -> std::io::Result<()> {
    let (file, etag, shift, send, extra) = match &reply {
        Reply::Status(code, headers) => {
            return write!(
                stream,
                "HTTP/1.1 {code} Status\r\ncontent-length: 0\r\nconnection: close\r\n{headers}\r\n"
            );
        }
        Reply::File(file, etag) => (file, *etag, 0, usize::MAX, ""),
        Reply::Whole(file) => (file, ETAG, 0, usize::MAX, ""),
        Reply::Truncated(file, n) | Reply::Stalled(file, n) => (file, ETAG, 0, *n, ""),
        Reply::Shifted(file, by) => (file, ETAG, *by, usize::MAX, ""),
        Reply::Headed(file, headers) => (file, ETAG, 0, usize::MAX, headers.as_str()),
    };
    let same = request.if_range.as_deref().is_none_or(|tag| tag == etag);
    let part = request.range.filter(|_| same && !matches!(reply, Reply::Whole(_)));
    let start = part.map_or(0, |start| (start + shift).min(file.len()));
    let body = &file[start..];
    let status = match part {
        None => "200 OK".to_owned(),
        Some(_) if body.is_empty() => "416 Range Not Satisfiable".to_owned(),
        Some(_) => {
            let (last, total) = (file.len() - 1, file.len());
            format!("206 Partial Content\r\ncontent-range: bytes {start}-{last}/{total}")
        }
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\netag: {etag}\r\nconnection: close\r\n{extra}\r\n"
    )?;
    stream.write_all(&body[..send.min(body.len())])?;
    if matches!(reply, Reply::Stalled(..)) {
        stream.read_to_end(&mut Vec::new())?; // until the client leaves
    }
    Ok(())
}
