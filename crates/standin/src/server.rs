//! The server: a thread a connection, a script that decides, a record of all requests.

use std::{
    collections::HashSet,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{Fault, Protocol, Request, http, wire};

/// Bytes of a 2 MB answer.
const HUGE_BYTES: usize = 2_000_000;
/// Bytes a token, of prompts and answers alike.
const BYTES_PER_TOKEN: usize = 4;
/// How often a thread that waits looks whether the server is being dropped.
const TICK: Duration = Duration::from_millis(20);

/// What the script says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A good answer.
    Text(String),
    /// Something goes wrong.
    Fault(Fault),
}

type Script = Box<dyn FnMut(&Request) -> Reply + Send>;

struct State {
    script: Mutex<Script>,
    requests: Mutex<Vec<Request>>,
    /// (model, system text) that a cache has by now.
    prefixes: Mutex<HashSet<(String, String)>>,
    dropped: AtomicBool,
}

/// A running server; dropping it ends it.
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens on a free port of 127.0.0.1. `script` decides one request at a time, in the order they come.
    ///
    /// # Errors
    /// Where no port can be had.
    pub fn start(script: impl FnMut(&Request) -> Reply + Send + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            script: Mutex::new(Box::new(script)),
            requests: Mutex::default(),
            prefixes: Mutex::default(),
            dropped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.dropped.load(Ordering::SeqCst) {
                    break;
                }
                let (Ok(stream), state) = (stream, Arc::clone(&shared)) else { continue };
                // A client that goes away is not the server's failure.
                thread::spawn(move || serve(&stream, &state).and_then(|()| stream.shutdown(Shutdown::Write)));
            }
        });
        Ok(Self { address, state, accepting: Some(accepting) })
    }

    /// The base URL to give a client of `protocol`.
    pub fn url(&self, protocol: Protocol) -> String {
        format!("http://{}{}", self.address, protocol.base_path())
    }

    /// All requests so far, in the order they came.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.state.requests).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.dropped.store(true, Ordering::SeqCst);
        let woken = TcpStream::connect(self.address);
        if let (Ok(_), Some(accepting)) = (woken, self.accepting.take()) {
            drop(accepting.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some((path, headers, body)) = http::read(stream)? else { return Ok(()) };
    let parsed = serde_json::from_slice(&body).ok();
    let (Some(protocol), Some(body)) = (Protocol::of_path(&path), parsed) else {
        let body = "404 page not found";
        return send(stream, http::head(404, "text/plain", body.len(), "").as_bytes(), body.as_bytes());
    };
    let request = Request::new(protocol, path, headers, body);
    let number = {
        let mut requests = lock(&state.requests);
        requests.push(request.clone());
        requests.len()
    };
    if let Some((status, message)) = protocol.objection(&request) {
        return refuse(stream, protocol, status, message, "");
    }
    let reply = (lock(&state.script))(&request);
    let exchange = Exchange { stream, state, request: &request, number };
    match reply {
        Reply::Text(text) => exchange.answer(text, false, Way::Good),
        Reply::Fault(fault) => exchange.fail(fault),
    }
}

/// How an answer goes over the line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Good,
    CutOff,
    Unfinished,
    Malformed,
    Drip(Duration),
}

struct Exchange<'a> {
    stream: &'a TcpStream,
    state: &'a State,
    request: &'a Request,
    number: usize,
}

impl Exchange<'_> {
    fn fail(&self, fault: Fault) -> io::Result<()> {
        let text = || format!("a good answer to: {}", self.request.last_user());
        let protocol = self.request.protocol;
        match fault {
            Fault::Status(status) => refuse(self.stream, protocol, status, &self.complaint(status), ""),
            Fault::RetryAfter(status, seconds) => {
                let header = format!("retry-after: {seconds}\r\n");
                refuse(self.stream, protocol, status, &self.complaint(status), &header)
            }
            Fault::Overloaded if !self.request.stream => self.fail(Fault::Status(529)),
            Fault::Overloaded => {
                send(self.stream, http::chunked_head(self.kind()).as_bytes(), b"")?;
                http::chunk(self.stream, wire::error_frame(protocol, &self.complaint(529)).as_bytes())?;
                http::chunk(self.stream, b"")
            }
            Fault::Close => self.stream.shutdown(Shutdown::Both),
            Fault::CutOff => self.answer(text(), false, Way::CutOff),
            Fault::Unfinished => self.answer(text(), false, Way::Unfinished),
            Fault::Malformed => self.answer(text(), false, Way::Malformed),
            Fault::Hang => self.hang(),
            Fault::Drip(pause) => self.answer(text(), false, Way::Drip(pause)),
            Fault::Huge => self.answer("x".repeat(HUGE_BYTES), false, Way::Good),
            Fault::Empty => self.answer(String::new(), false, Way::Good),
            Fault::Length(text) => {
                let half = text.chars().count() / 2;
                self.answer(text.chars().take(half).collect(), true, Way::Good)
            }
        }
    }

    /// The content type of a stream.
    fn kind(&self) -> &'static str {
        if self.request.protocol == Protocol::Ollama { "application/x-ndjson" } else { "text/event-stream" }
    }

    fn complaint(&self, status: u16) -> String {
        let model = &self.request.model;
        match status {
            401 => format!("Incorrect API key provided: {}", self.request.key().unwrap_or_default()),
            404 => format!("The model `{model}` does not exist"),
            429 => "Rate limit reached".to_owned(),
            529 => "Overloaded".to_owned(),
            _ => "The server had an error".to_owned(),
        }
    }

    fn answer(&self, text: String, cut: bool, way: Way) -> io::Result<()> {
        let made = self.made(text, cut);
        if self.request.stream {
            self.streamed(&wire::stream(self.request, &made), way)
        } else {
            self.whole(&wire::whole(self.request, &made).to_string(), way)
        }
    }

    /// Counts tokens, those of the cache included.
    fn made(&self, text: String, cut: bool) -> wire::Made {
        let tokens = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
        let request = self.request;
        let prefix = tokens(request.system.len());
        let input = prefix + request.messages.iter().map(|message| tokens(message.text.len())).sum::<u64>();
        let marked = request.body["system"][0]["cache_control"].is_object();
        let caches = match request.protocol {
            Protocol::Anthropic => marked,
            Protocol::Ollama => false,
            _ => true,
        };
        let known =
            caches && !lock(&self.state.prefixes).insert((request.model.clone(), request.system.clone()));
        let written = if marked && !known { prefix } else { 0 };
        wire::Made {
            cut,
            input,
            cached: if known { prefix } else { 0 },
            written,
            output: tokens(text.len()),
            number: self.number,
            text,
        }
    }

    fn whole(&self, body: &str, way: Way) -> io::Result<()> {
        let body = body.as_bytes();
        let sent = if way == Way::Malformed { &body[..body.len() / 2] } else { body };
        let head = http::head(200, "application/json", sent.len(), "");
        match way {
            Way::CutOff | Way::Unfinished => {
                send(self.stream, head.as_bytes(), &sent[..sent.len() / 2])?;
                self.stream.shutdown(Shutdown::Both)
            }
            Way::Drip(pause) => {
                send(self.stream, head.as_bytes(), b"")?;
                self.drip(sent, pause, |stream, bytes| send(stream, bytes, b""))
            }
            Way::Good | Way::Malformed => send(self.stream, head.as_bytes(), sent),
        }
    }

    fn streamed(&self, frames: &[String], way: Way) -> io::Result<()> {
        let lines = self.request.protocol == Protocol::Ollama;
        send(self.stream, http::chunked_head(self.kind()).as_bytes(), b"")?;
        let half = &frames[..frames.len() / 2];
        let all = match way {
            Way::Good | Way::Drip(_) => frames,
            Way::CutOff | Way::Unfinished | Way::Malformed => half,
        };
        if let Way::Drip(pause) = way {
            self.drip(all.concat().as_bytes(), pause, http::chunk)?;
        } else {
            for frame in all {
                http::chunk(self.stream, frame.as_bytes())?;
            }
        }
        match way {
            Way::CutOff => return self.stream.shutdown(Shutdown::Both),
            Way::Malformed if lines => http::chunk(self.stream, b"{\"message\": {\"cont\n")?,
            Way::Malformed => http::chunk(self.stream, b"event: content_block_delta\ndata: {\"choi\n\n")?,
            Way::Good | Way::Unfinished | Way::Drip(_) => {}
        }
        http::chunk(self.stream, b"")
    }

    fn drip(
        &self,
        bytes: &[u8],
        pause: Duration,
        put: impl Fn(&TcpStream, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for few in bytes.chunks(8) {
            if self.state.dropped.load(Ordering::SeqCst) {
                break;
            }
            put(self.stream, few)?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Says nothing until the client closes or the server is dropped.
    fn hang(&self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(TICK))?;
        let mut stream = self.stream;
        while !self.state.dropped.load(Ordering::SeqCst) {
            match stream.read(&mut [0; 64]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn refuse(stream: &TcpStream, protocol: Protocol, status: u16, message: &str, more: &str) -> io::Result<()> {
    let body = wire::error(protocol, status, message).to_string();
    send(stream, http::head(status, "application/json", body.len(), more).as_bytes(), body.as_bytes())
}

fn send(mut stream: &TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    stream.write_all(head)?;
    stream.write_all(body)?;
    stream.flush()
}
