//! A server that answers one request after the other by a script, and remembers what it received.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, RetryPolicy, Service};
use model::secret::Secret;
use model::units::Nanos;

use super::super::Writes;

/// What becomes of a request after it was received.
#[derive(Clone, Debug)]
pub(super) enum Scripted {
    /// Status, further lines of the head, body.
    Answer(u16, &'static str, &'static str),
    /// The connection is closed.
    Close,
    /// Nothing, for longer than a client waits.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// Method and path with query.
    pub(super) line: String,
    /// In lower case.
    pub(super) head: String,
}

#[derive(Clone, Debug)]
pub(super) struct ScriptedServer {
    pub(super) address: String,
    script: Arc<Mutex<VecDeque<Scripted>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl ScriptedServer {
    /// Answers with the script, and with success after its end.
    pub(super) fn start(script: &[Scripted]) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let script = Arc::new(Mutex::new(script.iter().cloned().collect()));
        let server = ScriptedServer { address, script, received: Arc::default() };
        let shared = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        server
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some(request) = receive(&mut stream) {
            let is_head = request.line.starts_with("HEAD");
            self.received.lock().unwrap().push(request);
            let next = self.script.lock().unwrap().pop_front();
            match next.unwrap_or(Scripted::Answer(200, "etag: \"t\"", "")) {
                Scripted::Close => return,
                Scripted::Silence => std::thread::sleep(Duration::from_secs(60)),
                Scripted::Answer(status, head, body) => {
                    let head = if head.is_empty() { String::new() } else { format!("{head}\r\n") };
                    let length = if head.contains("content-length") || status == 204 {
                        String::new()
                    } else {
                        format!("content-length: {}\r\n", body.len())
                    };
                    let body = if is_head { "" } else { body };
                    let answer = format!("HTTP/1.1 {status} x\r\n{head}{length}\r\n{body}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            }
        }
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Method, path and query of each request.
    pub(super) fn lines(&self) -> Vec<String> {
        self.received().into_iter().map(|request| request.line).collect()
    }

    pub(super) fn options(&self) -> ObjectOptions {
        ObjectOptions {
            endpoints: vec![format!("http://{}", self.address)],
            credentials: keys("AKID", "hunter2-secret"),
            part_bytes: 1000,
            retry: quick(),
            ..ObjectOptions::default()
        }
    }

    pub(super) fn writes(&self) -> Writes {
        Writes::open(&place(), &self.options(), wall).unwrap()
    }
}

pub(super) fn keys(id: &str, secret: &str) -> CredentialSource {
    CredentialSource::Keys { id: Secret::new(id), secret: Secret::new(secret), token: None }
}

/// Signatures for S3 and Azure are the library's, which has its own clock.
pub(super) fn wall() -> u64 {
    1_369_353_600
}

pub(super) fn place() -> ObjectPlace {
    ObjectPlace::parse(Service::S3, "bucket")
}

/// Retries that do not take long.
pub(super) fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 4,
        pause: Nanos(1_000_000),
        longest: Nanos(5_000_000),
        deadline: Nanos(10_000_000_000),
        silence: Nanos(300_000_000),
    }
}

/// One request with its body; `None` when the client has closed the connection.
fn receive(stream: &mut TcpStream) -> Option<Received> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).unwrap();
    let line = text.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let head = text.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).ok()?;
    Some(Received { line, head })
}
