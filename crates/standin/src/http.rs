//! As much of HTTP/1.1 as the clients under test need: one request a connection.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

/// No request of a test is larger.
const MOST_BYTES: usize = 64 << 20;

/// The path, the headers with names in lower case, and the body.
pub(crate) type Raw = (String, Vec<(String, String)>, Vec<u8>);

/// Reads one request; `None` for a connection closed without one.
pub(crate) fn read(stream: &TcpStream) -> io::Result<Option<Raw>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    if length > MOST_BYTES {
        return Err(io::Error::other("a request of more than 64 MiB"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((path, headers, body)))
}

/// The head of an answer of known length.
pub(crate) fn head(status: u16, kind: &str, length: usize, more: &str) -> String {
    format!(
        "HTTP/1.1 {status} .\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n"
    )
}

/// The head of an answer that comes in chunks.
pub(crate) fn chunked_head(kind: &str) -> String {
    format!(
        "HTTP/1.1 200 .\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )
}

/// One chunk; an empty one ends the answer.
pub(crate) fn chunk(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    stream.write_all(&out)
}
