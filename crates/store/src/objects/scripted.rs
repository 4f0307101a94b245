//! A server for tests that answers each request as a test says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt;

/// The content of every object: byte n.
pub(crate) fn content(at: u64) -> u8 {
    ((at * at) >> 5) as u8
}

/// A request as the server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenRequest {
    pub(crate) line: String,
    /// First and last byte.
    pub(crate) range: Option<(u64, u64)>,
    /// The value of `Authorization`; empty if there is none.
    pub(crate) authorization: String,
    pub(crate) proxy_authorization: String,
    /// The number of the connection.
    pub(crate) connection: usize,
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The object or the range, as a server should.
    Object { bytes: u64, tag: &'static str },
    /// The same, cut by a reset after this many bytes of the body.
    Reset { bytes: u64, after: u64 },
    /// The same, and closes the connection afterwards without announcing it.
    ThenClose { bytes: u64 },
    /// These bytes, as they are.
    Raw(Vec<u8>),
    /// Nothing, until the server ends.
    Silence,
    /// Nothing for a tenth of a second, and then closes the connection.
    HangUp,
}

impl Reply {
    pub(crate) fn status(status: u16, headers: &str, body: &str) -> Reply {
        let length = body.len();
        Reply::Raw(
            format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes(),
        )
    }
}

/// What a test decides: the reply to the nth request.
type Script = dyn Fn(usize, &SeenRequest) -> Reply + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(script: impl Fn(usize, &SeenRequest) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (script, connections): (Arc<Script>, _) = (Arc::new(script), AtomicUsize::new(0));
        let (requests, ended) = (Arc::clone(&seen), Arc::clone(&over));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (script, requests, ended) =
                    (Arc::clone(&script), Arc::clone(&requests), Arc::clone(&ended));
                std::thread::spawn(move || serve(&stream, number, &*script, &requests, &ended));
            }
        });
        Server { address, seen, over }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<SeenRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    stream: &TcpStream,
    connection: usize,
    script: &Script,
    seen: &Mutex<Vec<SeenRequest>>,
    over: &AtomicBool,
) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader, connection) {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let mut out = stream;
        match script(number, &request) {
            Reply::Object { bytes, tag } => drop(out.write_all(&object(&request, bytes, tag))),
            Reply::ThenClose { bytes } => return drop(out.write_all(&object(&request, bytes, "t"))),
            Reply::Raw(bytes) => drop(out.write_all(&bytes)),
            Reply::Reset { bytes, after } => {
                let whole = object(&request, bytes, "t");
                let head = whole.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
                out.write_all(&whole[..(head + after as usize).min(whole.len())]).unwrap();
                // The bytes must be read before the reset discards them.
                std::thread::sleep(Duration::from_millis(50));
                sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
                return;
            }
            Reply::HangUp => return std::thread::sleep(Duration::from_millis(100)),
            Reply::Silence => {
                while !over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return;
            }
        }
    }
}

fn read_request(reader: &mut impl BufRead, connection: usize) -> Option<SeenRequest> {
    let (mut line, mut range) = (String::new(), None);
    let (mut authorization, mut proxy_authorization) = (String::new(), String::new());
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|count| *count > 0)?;
        if header == "\r\n" {
            break;
        }
        if let Some((name, value)) = header.trim_end().split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => value.clone_into(&mut authorization),
                "proxy-authorization" => value.clone_into(&mut proxy_authorization),
                _ => {}
            }
        }
        if let Some(value) = header.trim_end().strip_prefix("Range: bytes=") {
            let (first, last) = value.split_once('-').unwrap();
            range = Some((first.parse().unwrap(), last.parse().unwrap()));
        }
    }
    Some(SeenRequest {
        line: line.trim_end().to_owned(),
        range,
        authorization,
        proxy_authorization,
        connection,
    })
}

/// The answer of a right server.
fn object(request: &SeenRequest, bytes: u64, tag: &str) -> Vec<u8> {
    let (first, end) = match request.range {
        Some((first, _)) if first >= bytes => {
            let headers = format!("Content-Range: bytes */{bytes}\r\n");
            let Reply::Raw(answer) = Reply::status(416, &headers, "<Error><Code>InvalidRange</Code></Error>")
            else {
                unreachable!()
            };
            return answer;
        }
        Some((first, last)) => (first, (last + 1).min(bytes)),
        None => (0, bytes),
    };
    let (status, range) = match request.range {
        Some(_) => ("206 Partial Content", format!("Content-Range: bytes {first}-{}/{bytes}\r\n", end - 1)),
        None => ("200 OK", String::new()),
    };
    let length = end - first;
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{range}ETag: \"{tag}\"\r\n\r\n")
            .into_bytes();
    if !request.line.starts_with("HEAD") {
        answer.extend((first..end).map(content));
    }
    answer
}
