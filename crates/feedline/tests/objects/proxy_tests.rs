//! The proxy itself: requests pass unchanged, each trouble is what its name says, and rules choose as they should.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::proxy::http::{Framing, Head, Wire};
use super::proxy::{Ask, Proxy, Rule, Trouble};
use super::servers::Place;
use crate::util::Dir;

const BODY: usize = 1000;

fn content() -> Vec<u8> {
    (0..BODY).map(|at| at as u8).collect()
}

/// A server that has one object, answers ranges `bytes=A-B`, takes anything that is put, and shows the request's
/// `X-Seen` field in its answer. A target that ends with `chunked` is answered in chunks.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut wire = Wire::new(Arc::new(stream));
    while let Some(request) = wire.head()? {
        let received = wire.body(request.request_framing())?;
        let range = request.get("range").map(|range| {
            let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
            (first.parse::<usize>().unwrap(), last.parse::<usize>().unwrap())
        });
        let body = match range {
            Some((first, last)) => content()[first..=last].to_vec(),
            None if request.word(0) == "GET" => content(),
            None => Vec::new(),
        };
        let first = if range.is_some() { "HTTP/1.1 206 Partial Content" } else { "HTTP/1.1 200 OK" };
        let mut head = Head::new(first, &["ETag: \"real\""]);
        head.set("X-Seen", format!("{} {}", received.len(), request.get("x-seen").unwrap_or("nothing")));
        if let Some((first, last)) = range {
            head.set("Content-Range", format!("bytes {first}-{last}/{BODY}"));
        }
        if request.word(1).ends_with("chunked") {
            head.set("Transfer-Encoding", "chunked");
            let (start, rest) = body.split_at(10);
            let length = format!("\r\n{:x}\r\n", rest.len());
            let chunks = [b"a\r\n", start, length.as_bytes(), rest, b"\r\n0\r\n\r\n"].concat();
            wire.send(&[head.bytes(), chunks].concat())?;
        } else {
            head.set("Content-Length", body.len());
            wire.send(&[&head.bytes(), &body[..]].concat())?;
        }
    }
    Ok(())
}

fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    endpoint
}

fn proxy_with(rule: Rule) -> Proxy {
    Proxy::to(&upstream()).rule(rule).start()
}

fn connect(proxy: &Proxy) -> Wire {
    let address: SocketAddr = proxy.endpoint().split('/').nth(2).unwrap().parse().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    Wire::new(Arc::new(stream))
}

/// Sends a request and reads its answer.
fn ask(wire: &mut Wire, method: &str, target: &str, fields: &[&str]) -> io::Result<(Head, Vec<u8>)> {
    let request = Head::new(&format!("{method} {target} HTTP/1.1"), &[&["Host: here"], fields].concat());
    wire.send(&request.bytes())?;
    let head = wire.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = wire.body(head.answer_framing(method))?;
    Ok((head, body))
}

/// The answer to a GET with this trouble, on a connection of its own.
fn get_with(trouble: Trouble) -> (io::Result<(Head, Vec<u8>)>, Wire, Proxy) {
    let proxy = proxy_with(Rule::new(trouble));
    let mut wire = connect(&proxy);
    let answer = ask(&mut wire, "GET", "/bucket/key", &["Range: bytes=100-299"]);
    assert_eq!(proxy.struck(0), 1);
    (answer, wire, proxy)
}

#[test]
fn requests_and_answers_pass_unchanged_on_one_connection() {
    let proxy = Proxy::to(&upstream()).start();
    let mut wire = connect(&proxy);
    for _ in 0..3 {
        let (head, body) = ask(&mut wire, "GET", "/bucket/key", &["X-Seen:  as  it is"]).unwrap();
        assert_eq!(
            (head.first.as_str(), head.get("x-seen"), body),
            ("HTTP/1.1 200 OK", Some("0 as  it is"), content())
        );
    }
    let (head, body) = ask(&mut wire, "GET", "/bucket/chunked", &[]).unwrap();
    assert_eq!((head.get("transfer-encoding"), body), (Some("chunked"), content()));
    let (head, body) = ask(&mut wire, "HEAD", "/bucket/key", &[]).unwrap();
    assert_eq!((head.status(), body.len()), (200, 0));
    // A body in one piece, and one in chunks.
    wire.send(b"PUT /bucket/new HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde").unwrap();
    assert_eq!(wire.head().unwrap().unwrap().get("x-seen"), Some("5 nothing"));
    wire.send(b"PUT /bucket/new HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n")
        .unwrap();
    assert_eq!(wire.head().unwrap().unwrap().get("x-seen"), Some("3 nothing"));
    assert_eq!(proxy.connections(), 1);
    let counts = [Ask::Get, Ask::Head, Ask::Put, Ask::List].map(|ask| proxy.count(ask));
    assert_eq!((counts, proxy.requests()), ([4, 1, 2, 0], 7));
    assert_eq!(proxy.log()[4..6], ["HEAD /bucket/key", "PUT /bucket/new"]);
    assert_eq!(proxy.most_in_flight(), 1);
}

#[test]
fn requests_are_told_apart() {
    let proxy = Proxy::to(&format!("{}/account", upstream())).start();
    assert!(proxy.endpoint().ends_with("/account"));
    for (method, target, expected) in [
        ("GET", "/account/b/k", Ask::Get),
        ("GET", "/account/b/k?versionId=1", Ask::Get),
        ("GET", "/account/b?list-type=2&prefix=a", Ask::List),
        ("GET", "/account/b/?list-type=2", Ask::List),
        ("GET", "/account/b?restype=container&comp=list", Ask::List),
        ("GET", "/account/b?uploads&prefix=a", Ask::ListUploads),
        ("GET", "/account/b/k?comp=blocklist", Ask::ListUploads),
        ("GET", "/account/b", Ask::Other),
        ("HEAD", "/account/b", Ask::Head),
        ("PUT", "/account/b/k", Ask::Put),
        ("PUT", "/account/b", Ask::Other),
        ("PUT", "/account/b/k?partNumber=1&uploadId=u", Ask::Part),
        ("PUT", "/account/b/k?comp=block&blockid=u", Ask::Part),
        ("PUT", "/account/b/k?comp=blocklist", Ask::Complete),
        ("POST", "/account/b/k?uploads", Ask::CreateUpload),
        ("POST", "/account/b/k?uploadId=u", Ask::Complete),
        ("POST", "/account/b?delete", Ask::Delete),
        ("DELETE", "/account/b/k", Ask::Delete),
        ("DELETE", "/account/b/k?uploadId=u", Ask::Abort),
    ] {
        let before = proxy.count(expected);
        ask(&mut connect(&proxy), method, target, &[]).unwrap();
        assert_eq!(proxy.count(expected), before + 1, "{method} {target}");
    }
}

#[test]
fn rules_choose_requests() {
    let rules = [
        Rule::new(Trouble::Status(500)).only(Ask::Get).every(3).after(1).limit(2),
        Rule::new(Trouble::Status(503)).method("HEAD").key("/special"),
    ];
    let [first, second] = rules;
    let proxy = Proxy::to(&upstream()).rule(first).rule(second).start();
    let mut wire = connect(&proxy);
    let mut status = |method: &str, target: &str| ask(&mut wire, method, target, &[]).unwrap().0.status();
    let gets: Vec<u16> = (0..12).map(|_| status("GET", "/b/k")).collect();
    assert_eq!(gets, [200, 200, 200, 500, 200, 200, 500, 200, 200, 200, 200, 200]);
    let others = [status("HEAD", "/b/k"), status("HEAD", "/b/special/k"), status("GET", "/b/special/k")];
    assert_eq!(others, [200, 503, 200]);
    assert_eq!((proxy.struck(0), proxy.struck(1)), (2, 1));
}

#[test]
fn the_proxy_answers_with_errors_and_keeps_the_connection() {
    for (trouble, status, text) in [
        (Trouble::Status(500), 500, "<Code>InternalError</Code>"),
        (Trouble::Status(503), 503, "<Code>ServiceUnavailable</Code>"),
        (Trouble::SlowDown(2), 503, "<Code>SlowDown</Code>"),
        (Trouble::TooMany(1), 429, "<Code>TooManyRequests</Code>"),
        (Trouble::Error(403, "ExpiredToken"), 403, "<Code>ExpiredToken</Code>"),
        (Trouble::Error(403, "AccessDenied"), 403, "<Code>AccessDenied</Code>"),
        (Trouble::Error(403, "RequestTimeTooSkewed"), 403, "<Code>RequestTimeTooSkewed</Code>"),
        (Trouble::Redirect, 301, "<Endpoint>other.example</Endpoint>"),
        (Trouble::LateError, 200, "<Code>InternalError</Code>"),
        (Trouble::WebPage, 200, "<html>"),
    ] {
        let proxy = proxy_with(Rule::new(trouble.clone()).limit(2));
        let mut wire = connect(&proxy);
        let (head, body) = ask(&mut wire, "GET", "/bucket/key", &[]).unwrap();
        assert_eq!(head.status(), status, "{trouble:?}");
        assert!(String::from_utf8(body).unwrap().contains(text), "{trouble:?}");
        let seconds = head.get("retry-after").map(|value| value.parse::<u64>().unwrap());
        assert_eq!(seconds.is_some(), matches!(trouble, Trouble::SlowDown(_) | Trouble::TooMany(_)));
        // A refused body is read, so that the client is not reset while it sends.
        wire.send(b"PUT /bucket/new HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde").unwrap();
        let head = wire.head().unwrap().unwrap();
        assert_eq!(head.status(), status);
        wire.body(head.answer_framing("PUT")).unwrap();
        assert_eq!(ask(&mut wire, "GET", "/bucket/key", &[]).unwrap().1, content());
        assert_eq!(proxy.connections(), 1);
    }
}

#[test]
fn broken_connections_are_reset_closed_or_silent() {
    let kind = |answer: io::Result<(Head, Vec<u8>)>| answer.unwrap_err().kind();
    assert_eq!(kind(get_with(Trouble::Reset).0), io::ErrorKind::ConnectionReset);
    assert_eq!(kind(get_with(Trouble::LostAnswer).0), io::ErrorKind::ConnectionReset);
    assert_eq!(kind(get_with(Trouble::ResetInBody).0), io::ErrorKind::ConnectionReset);
    assert_eq!(kind(get_with(Trouble::Close).0), io::ErrorKind::UnexpectedEof);
    assert_eq!(kind(get_with(Trouble::CloseInBody).0), io::ErrorKind::UnexpectedEof);
    assert_eq!(kind(get_with(Trouble::LongLength).0), io::ErrorKind::UnexpectedEof);
    let (answer, _, _) = get_with(Trouble::Garbage);
    assert!(!answer.is_ok_and(|(head, _)| head.first.starts_with("HTTP")));
    for trouble in [Trouble::Stall, Trouble::StallInBody] {
        let proxy = proxy_with(Rule::new(trouble));
        let mut wire = connect(&proxy);
        wire.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let silent = kind(ask(&mut wire, "GET", "/bucket/key", &[]));
        assert_eq!(silent, io::ErrorKind::WouldBlock);
        // The end of the proxy ends the wait.
        wire.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let begin = Instant::now();
        drop(proxy);
        assert!(
            matches!(wire.body(Framing::Length(BODY as u64)), Err(error) if error.kind() != io::ErrorKind::WouldBlock)
        );
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn lost_answers_are_to_requests_that_were_done() {
    let proxy = proxy_with(Rule::new(Trouble::LostAnswer).limit(1));
    let answer = ask(&mut connect(&proxy), "PUT", "/bucket/new", &[]);
    assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(ask(&mut connect(&proxy), "PUT", "/bucket/new", &[]).unwrap().0.status(), 200);
}

#[test]
fn answers_are_changed_in_one_point() {
    let whole = content()[100..300].to_vec();
    let (honest, ..) = {
        let proxy = Proxy::to(&upstream()).start();
        (ask(&mut connect(&proxy), "GET", "/bucket/key", &["Range: bytes=100-299"]).unwrap(), proxy)
    };
    let fields = |head: &Head| {
        let [range, etag, length] = ["content-range", "etag", "content-length"].map(|name| head.get(name));
        (head.status(), range.map(str::to_owned), etag.map(str::to_owned), length.map(str::to_owned))
    };
    let (range, etag) = ("bytes 100-299/1000", "\"real\"");
    let expect = |status: u16, range: Option<&str>, etag: Option<&str>, length: &str| {
        (status, range.map(str::to_owned), etag.map(str::to_owned), Some(length.to_owned()))
    };
    assert_eq!(fields(&honest.0), expect(206, Some(range), Some(etag), "200"));
    let other = Some("\"00000000000000000000000000000000\"");
    for (trouble, expected, body) in [
        (Trouble::ShortLength, expect(206, Some(range), Some(etag), "199"), whole[..199].to_vec()),
        (Trouble::Surplus, expect(206, Some(range), Some(etag), "199"), whole[..199].to_vec()),
        (Trouble::WrongRange, expect(206, Some("bytes 101-299/1000"), Some(etag), "200"), whole.clone()),
        (Trouble::RangeAsWhole, expect(200, None, Some(etag), "200"), whole.clone()),
        (Trouble::WrongEtag, expect(206, Some(range), other, "200"), whole.clone()),
        (Trouble::NoEtag, expect(206, Some(range), None, "200"), whole.clone()),
        (Trouble::SlowFirstByte(Duration::from_millis(50)), fields(&honest.0), whole.clone()),
        (Trouble::SlowBody(5, Duration::from_millis(10)), fields(&honest.0), whole.clone()),
    ] {
        let begin = Instant::now();
        let (answer, mut wire, _proxy) = get_with(trouble.clone());
        let (head, found) = answer.unwrap();
        assert_eq!((fields(&head), found), (expected, body), "{trouble:?}");
        let is_slow = matches!(trouble, Trouble::SlowFirstByte(_) | Trouble::SlowBody(..));
        assert!(!is_slow || begin.elapsed() >= Duration::from_millis(50), "{trouble:?}");
        if matches!(trouble, Trouble::Surplus) {
            assert_eq!(wire.body(Framing::Length(1)).unwrap(), whole[199..]);
        }
    }
    let flipped = get_with(Trouble::FlippedByte).0.unwrap().1;
    assert_eq!(flipped.iter().zip(&whole).filter(|(a, b)| a != b).count(), 1);
    // In chunks, too: the answer gets a length.
    let proxy = proxy_with(Rule::new(Trouble::ShortLength));
    let (head, body) = ask(&mut connect(&proxy), "GET", "/bucket/chunked", &[]).unwrap();
    assert_eq!((head.get("transfer-encoding"), body), (None, content()[..BODY - 1].to_vec()));
}

#[test]
fn latency_is_per_request_and_many_connections_wait_at_once() {
    const CONNECTIONS: usize = 300;
    let latency = Duration::from_millis(100);
    let proxy = Proxy::to(&upstream()).latency(latency).start();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut wire = connect(&proxy);
                for _ in 0..2 {
                    let sent = Instant::now();
                    assert_eq!(ask(&mut wire, "GET", "/bucket/key", &[]).unwrap().1, content());
                    assert!(sent.elapsed() >= latency);
                }
            });
        }
    });
    assert_eq!(proxy.count(Ask::Get), 2 * CONNECTIONS as u64);
    // One after the other they would take a minute.
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(proxy.most_in_flight() > 20, "{}", proxy.most_in_flight());
}

#[test]
fn signatures_of_boto3_stay_valid_and_its_retries_are_seen() {
    let (dir, place) = (Dir::new(), Place::s3());
    let rule = Rule::new(Trouble::Status(503)).only(Ask::Get).limit(1);
    let refused = Rule::new(Trouble::Error(403, "AccessDenied")).only(Ask::Put).key("refused");
    let proxy = Proxy::to(&place.endpoint).rule(rule).rule(refused).start();
    let through = place.through(&proxy);
    dir.write("files/a/key with spaces", vec![7; 3 << 20]);
    dir.write("files/b", "small");
    through.boto(&dir, &["upload", &place.key("data"), "files"]).exits(0).prints("2");
    assert_eq!(through.has_files_of(&dir, "data", "files"), 2);
    assert_eq!([Ask::Put, Ask::List, Ask::Get].map(|ask| proxy.count(ask)), [2, 1, 3], "{:?}", proxy.log());
    assert_eq!(proxy.struck(0), 1);
    through.boto(&dir, &["put", &place.key("refused"), "text"]).exits(1).says("AccessDenied");
    assert_eq!(place.boto(&dir, &["list", &place.key("refused")]).exits(0).stdout, "");
}
