//! A lane against a server that misbehaves on demand: what is retried, what is an error, and that no byte is delivered
//! twice or wrongly.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use model::extent::Extent;
use model::names::Name;
use model::objects::{ObjectOptions, ObjectPlace, ObjectVersion, RetryPolicy, Service};
use model::requests::{AttemptFailure, RequestCounts};
use model::units::Nanos;

use super::*;
use crate::objects::credential::{Credential, CredentialCell};
use crate::objects::scripted::{Reply, SeenRequest, Server, content};
use crate::{Buffer, Fetched, Purpose, Witness};

const BYTES: u64 = 20_000;

fn site(urls: &[String], retry: RetryPolicy) -> Site {
    let options = ObjectOptions { endpoints: urls.to_vec(), retry, ..ObjectOptions::default() };
    let place = ObjectPlace::parse(Service::S3, "bucket/prefix");
    let cell = Arc::new(CredentialCell::given(Credential::Anonymous));
    Site::new(&place, &Arc::new(options), cell, || 0).unwrap()
}

fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        pause: Nanos(1_000_000),
        longest: Nanos(1_000_000),
        deadline: Nanos(20_000_000_000),
        silence: Nanos(200_000_000),
    }
}

/// Sees every byte, and that it is the right one.
#[derive(Default)]
struct Seen(Mutex<Vec<u8>>);

impl Witness for Seen {
    fn see(&self, _reader: usize, _file: u64, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut seen = self.0.lock().unwrap();
        for (at, byte) in (offset..).zip(bytes) {
            assert_eq!(*byte, content(at), "byte {at}");
            assert_eq!(std::mem::replace(&mut seen[at as usize], 1), 0, "byte {at} was seen before");
        }
        Ok(())
    }
}

fn finished(lane: &mut dyn Lane) -> FinishedFetch {
    let begin = Instant::now();
    loop {
        match lane.reap() {
            Some(done) => return done,
            None => lane.wait(Nanos(100_000_000)),
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "the fetch does not end");
    }
}

/// Fetches an object of `BYTES` bytes, kept or not, and checks every byte.
fn fetch(
    site: &Site,
    transfer: usize,
    keep: bool,
    version: Option<ObjectVersion>,
) -> (Result<Fetched, StoreError>, RequestCounts) {
    let (seen, go_on) = (Seen(Mutex::new(vec![0; BYTES as usize])), AtomicBool::new(false));
    let traffic = Traffic { transfer, witness: Some(&seen), give_up: &go_on, ..Traffic::untimed() };
    let mut lane = ObjectLane::new(site, traffic).unwrap();
    let (name, whole) = (Name::new("train/k").unwrap(), [Extent { offset: 0, len: BYTES }]);
    let into = keep.then(Buffer::default);
    let (purpose, at) = (Purpose::Samples(1), Nanos::ZERO);
    let asked = Fetch {
        name: &name,
        purpose,
        ranges: &whole,
        file_bytes: BYTES,
        version,
        keep_open: false,
        at,
        into,
    };
    lane.submit(0, asked);
    let done = finished(&mut lane);
    assert_eq!(lane.awaits(), FetchWait::Nothing);
    if done.outcome.is_ok() {
        assert!(seen.0.lock().unwrap().iter().all(|seen| *seen == 1), "every byte was seen");
        if let Some(kept) = &done.kept {
            assert!(kept.bytes().iter().zip(0..).all(|(byte, at)| *byte == content(at)));
            assert_eq!(kept.bytes().len() as u64, BYTES);
        }
    }
    assert_eq!(done.kept.is_some(), keep, "a buffer is not lost");
    (done.outcome, lane.take_spans().requests)
}

const RIGHT: Reply = Reply::Object { bytes: BYTES, tag: "t" };

/// The first request gets this reply, and all others the right one.
fn first(reply: Reply) -> impl Fn(usize, &SeenRequest) -> Reply + Send + Sync {
    move |number, _| if number == 0 { reply.clone() } else { RIGHT }
}

#[test]
fn whole_objects_and_ranges_arrive() {
    for (transfer, requests) in [(1 << 20, 1), (4096, 5)] {
        for keep in [false, true] {
            let server = Server::start(|_, _| RIGHT);
            let (outcome, counts) = fetch(&site(&[server.url()], quick()), transfer, keep, None);
            assert_eq!(outcome.unwrap().reads, requests);
            assert_eq!((counts.requests, counts.answered, counts.all_failed()), (requests, requests, 0));
            assert_eq!(counts.received_bytes, BYTES);
            let seen = server.seen();
            assert!(seen[0].line.starts_with("GET /bucket/prefix/train/k HTTP/1.1"), "{}", seen[0].line);
            assert_eq!(seen[0].range.is_some(), requests > 1, "a whole object needs no range");
        }
    }
}

#[test]
fn attempts_that_fail_are_repeated_and_counted() {
    let short_head = b"HTTP/1.1 200 OK\r\nConte".to_vec();
    for (reply, kind) in [
        (Reply::status(500, "", ""), AttemptFailure::ServerError),
        (
            Reply::status(503, "Retry-After: 0\r\n", "<Error><Code>SlowDown</Code></Error>"),
            AttemptFailure::Throttled,
        ),
        (Reply::status(429, "", ""), AttemptFailure::Throttled),
        (Reply::Reset { bytes: BYTES, after: 0 }, AttemptFailure::Reset),
        (Reply::Reset { bytes: BYTES, after: 9000 }, AttemptFailure::Reset),
        (Reply::Silence, AttemptFailure::Silent),
        (Reply::Raw(short_head), AttemptFailure::Silent),
        (Reply::Raw(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()), AttemptFailure::Malformed),
        (Reply::status(206, "Content-Range: bytes 5-9/20000\r\n", "01234"), AttemptFailure::Malformed),
        (
            Reply::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
            AttemptFailure::Malformed,
        ),
    ] {
        for keep in [false, true] {
            let server = Server::start(first(reply.clone()));
            let (outcome, counts) = fetch(&site(&[server.url()], quick()), 1 << 20, keep, None);
            assert_eq!(outcome.map(|fetched| fetched.bytes), Ok(BYTES), "{reply:?}");
            assert_eq!((counts.failed(kind), counts.all_failed(), counts.requests), (1, 1, 2), "{reply:?}");
        }
    }
}

/// A lane with a clock that moves.
struct Watch(Instant);

impl crate::Now for Watch {
    fn now(&self) -> Nanos {
        Nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// Fetches an object again and again on one lane.
fn fetch_times(lane: &mut ObjectLane<'_>, times: usize, keep: bool) {
    let (name, whole) = (Name::new("k").unwrap(), [Extent { offset: 0, len: BYTES }]);
    for _ in 0..times {
        let (purpose, version, at) = (Purpose::Upkeep, None, Nanos::ZERO);
        let (ranges, into) = (&whole[..], keep.then(Buffer::default));
        let asked =
            Fetch { name: &name, purpose, ranges, file_bytes: BYTES, version, keep_open: false, at, into };
        lane.submit(0, asked);
        let done = finished(lane);
        assert_eq!(done.outcome.unwrap().bytes, BYTES);
        let kept = done.kept.unwrap_or_default();
        assert!(kept.bytes().iter().zip(0..).all(|(byte, at)| *byte == content(at)));
    }
}

#[test]
fn a_read_begins_before_a_kept_connection_turns_out_to_be_closed() {
    let server = Server::start(|number, _| if number == 1 { Reply::HangUp } else { RIGHT });
    let (site, clock) = (site(&[server.url()], quick()), Watch(Instant::now()));
    let mut lane = ObjectLane::new(&site, Traffic { clock: &clock, ..Traffic::untimed() }).unwrap();
    fetch_times(&mut lane, 2, false);
    let spans = lane.take_spans();
    assert_eq!((spans.requests.all_failed(), spans.requests.reconnects), (0, 1));
    let longest = spans.read.max();
    assert!(longest >= Nanos(90_000_000), "{longest}");
}

#[test]
fn a_connection_on_which_a_request_was_refused_is_used_again() {
    for reply in [
        Reply::status(503, "", "<Error><Code>SlowDown</Code></Error>"),
        Reply::status(500, "", ""),
        Reply::Raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 x\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Reply::Raw(
            b"HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\n<Co\r\n14\r\nde>SlowDown</Code></\r\n0\r\nTrailer: x\r\n\r\n"
                .to_vec(),
        ),
    ] {
        let server = Server::start(first(reply.clone()));
        let site = site(&[server.url()], quick());
        let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
        fetch_times(&mut lane, 2, false);
        let counts = lane.take_spans().requests;
        assert_eq!((counts.requests, counts.all_failed()), (3, 1), "{reply:?}");
        assert_eq!((counts.connects, counts.reconnects), (1, 0), "{reply:?}");
    }
    // Bytes behind an answer belong to no other one.
    let surplus = b"HTTP/1.1 503 x\r\nContent-Length: 1\r\n\r\nabc".to_vec();
    let server = Server::start(first(Reply::Raw(surplus)));
    let (outcome, counts) = fetch(&site(&[server.url()], quick()), 1 << 20, false, None);
    assert_eq!((outcome.is_ok(), counts.connects, counts.all_failed()), (true, 2, 1));
}

/// The code of an error is found wherever chunks cut it, and a trailer ends the document.
#[test]
fn chunked_explanations_are_understood() {
    let document = "<Error><Code>NoSuchBucket</Code></Error>";
    for cut in 1..document.len() {
        let (one, two) = document.split_at(cut);
        let body = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\nX: y\r\n\r\n", one.len(), two.len());
        let answer = format!("HTTP/1.1 404 x\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let server = Server::start(move |_, _| Reply::Raw(answer.clone().into_bytes()));
        let (outcome, counts) = fetch(&site(&[server.url()], quick()), 1 << 20, true, None);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("404 NoSuchBucket"), "{cut}: {error}");
        assert_eq!(counts.all_failed(), 0);
    }
}

/// A fetch without bytes is a HEAD, whose answer has no body, whatever it says about its length.
#[test]
fn an_error_answer_to_head_has_no_body() {
    let refused = |reply: &str| {
        let head = format!("HTTP/1.1 {reply}\r\n\r\n").into_bytes();
        let server = Server::start(move |_, request| {
            assert!(request.line.starts_with("HEAD "), "{}", request.line);
            Reply::Raw(head.clone())
        });
        let site = site(&[server.url()], quick());
        let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
        let name = Name::new("k").unwrap();
        lane.submit(
            0,
            Fetch {
                name: &name,
                purpose: Purpose::Upkeep,
                ranges: &[],
                file_bytes: 0,
                version: None,
                keep_open: false,
                at: Nanos::ZERO,
                into: None,
            },
        );
        let outcome = finished(&mut lane).outcome.map(|_| ()).map_err(|error| error.kind().to_owned());
        let counts = lane.take_spans().requests;
        assert_eq!(counts.failed(AttemptFailure::Silent), 0, "nothing was waited for");
        outcome
    };
    assert_eq!(refused("404 x\r\nContent-Length: 300"), Err("enoent".to_owned()));
    assert_eq!(refused("403 x\r\nTransfer-Encoding: chunked"), Err("http-403".to_owned()));
    assert_eq!(refused("403 x\r\nConnection: close"), Err("http-403".to_owned()));
    assert_eq!(refused("503 x\r\nContent-Length: 300"), Err("http-503".to_owned()));
    assert_eq!(refused("200 x\r\nContent-Length: 0"), Ok(()));
}

#[test]
fn interim_answers_do_not_disturb_a_read() {
    for keep in [false, true] {
        let server = Server::start(|number, _| {
            let interim = if number % 2 == 1 { "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" } else { "" };
            let mut answer =
                format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").into_bytes();
            answer.extend((0..BYTES).map(content));
            Reply::Raw(answer)
        });
        let site = site(&[server.url()], quick());
        let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
        fetch_times(&mut lane, 4, keep);
        let counts = lane.take_spans().requests;
        assert_eq!((counts.connects, counts.all_failed()), (1, 0));
    }
}

#[test]
fn an_attempt_after_a_reset_asks_for_the_rest() {
    let server = Server::start(first(Reply::Reset { bytes: BYTES, after: 9000 }));
    let (outcome, counts) = fetch(&site(&[server.url()], quick()), 1 << 20, true, None);
    assert_eq!(outcome.unwrap().reads, 1);
    let (first, last) = server.seen()[1].range.unwrap();
    assert!(first > 0 && first <= 9000 && last == BYTES - 1, "{first} to {last}");
    assert_eq!(counts.received_bytes, BYTES, "no byte twice");
}

#[test]
fn too_many_failures_end_the_fetch_and_name_the_object() {
    let refused = |reply: Reply| {
        let server = Server::start(move |_, _| reply.clone());
        let (outcome, counts) = fetch(&site(&[server.url()], quick()), 4096, true, None);
        (outcome.unwrap_err(), counts)
    };
    let (error, counts) = refused(Reply::status(503, "", "<Error><Code>SlowDown</Code></Error>"));
    assert_eq!(error.kind(), "http-503");
    assert!(error.to_string().starts_with("cannot read s3://bucket/prefix/train/k: 127.0.0.1:"), "{error}");
    assert!(error.to_string().contains(" answered 503 SlowDown (3 attempts)"), "{error}");
    assert!(counts.failed(AttemptFailure::Throttled) >= 3);
    let (error, _) = refused(Reply::Silence);
    assert_eq!(error.kind(), "silent");
    assert!(error.to_string().contains("no byte for 200"), "{error}");
    let (error, _) = refused(Reply::Reset { bytes: BYTES, after: 0 });
    assert_eq!(error.kind(), "reset");
}

#[test]
fn bytes_of_failed_reads_are_counted_apart() {
    // One request ends with an error after some bytes; the others may have received theirs.
    let server = Server::start(|_, request| match request.range {
        Some((4096..8192, _)) => Reply::Reset { bytes: BYTES, after: 1000 },
        _ => RIGHT,
    });
    for (transfer, least) in [(4096, 1000), (1 << 20, 0)] {
        let (outcome, counts) = fetch(&site(&[server.url()], quick()), transfer, false, None);
        assert_eq!(outcome.is_err(), least > 0);
        let failed = if least > 0 { counts.received_bytes } else { 0 };
        assert_eq!(counts.failed_bytes, failed);
        assert!(counts.received_bytes >= least, "{counts:?}");
    }
}

#[test]
fn answers_out_of_a_cache_are_counted() {
    let server = Server::start(|number, _| {
        let age = if number == 0 { "Age: 30\r\n" } else { "" };
        let head = format!("HTTP/1.1 200 OK\r\n{age}Content-Length: {BYTES}\r\n\r\n");
        Reply::Raw(head.into_bytes().into_iter().chain((0..BYTES).map(content)).collect())
    });
    let site = site(&[server.url()], quick());
    let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
    fetch_times(&mut lane, 3, false);
    assert_eq!(lane.take_spans().requests.from_caches, 1);
}

/// What the watchdog sees of a fetch that does not end, after this time.
fn shown(site: &Site, transfer: usize, after: Duration) -> (Option<Operation>, Extent, Option<(u32, usize)>) {
    let tracks = [crate::Track::default()];
    let traffic = Traffic { transfer, tracks: &tracks, ..Traffic::untimed() };
    let mut lane = ObjectLane::new(site, traffic).unwrap();
    let (name, whole) = (Name::new("k").unwrap(), [Extent { offset: 0, len: BYTES }]);
    let (purpose, version, at, into) = (Purpose::Upkeep, None, Nanos::ZERO, None);
    let asked = Fetch {
        name: &name,
        purpose,
        ranges: &whole,
        file_bytes: BYTES,
        version,
        keep_open: false,
        at,
        into,
    };
    lane.submit(0, asked);
    let begin = Instant::now();
    while begin.elapsed() < after {
        lane.wait(Nanos(10_000_000));
        assert!(lane.reap().is_none());
    }
    (tracks[0].operation(), tracks[0].range(), tracks[0].last_attempt())
}

#[test]
fn the_watchdog_sees_the_attempt_from_its_beginning() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let site = site(&[format!("https://{}", mute.local_addr().unwrap())], quick());
    let whole = Extent { offset: 0, len: BYTES };
    for (after, attempt) in [(100, 1), (300, 2)] {
        let seen = shown(&site, 1 << 20, Duration::from_millis(after));
        assert_eq!(seen, (Some(Operation::Read), whole, Some((attempt, 0))), "while it connects");
    }
}

#[test]
fn the_watchdog_sees_the_request_that_does_not_move() {
    let server = Server::start(|_, request| match request.range {
        Some((8192, _)) => Reply::Silence,
        _ => RIGHT,
    });
    let policy = RetryPolicy { silence: Nanos(30_000_000_000), ..quick() };
    let seen = shown(&site(&[server.url()], policy), 4096, Duration::from_millis(1500));
    assert_eq!(seen, (Some(Operation::Read), Extent { offset: 8192, len: 4096 }, Some((1, 0))));
}

#[test]
fn permanent_errors_are_not_repeated() {
    for (reply, kind, words) in [
        (Reply::status(404, "", "<Error><Code>NoSuchKey</Code></Error>"), "enoent", "does not exist"),
        (
            Reply::status(404, "", "<Error><Code>NoSuchBucket</Code></Error>"),
            "http-404",
            "bucket does not exist",
        ),
        (Reply::status(403, "", "<Error><Code>AccessDenied</Code></Error>"), "http-403", "permissions"),
        // Without a source of other credentials.
        (
            Reply::status(403, "", "<Error><Code>ExpiredToken</Code></Error>"),
            "http-403",
            "ExpiredToken; the cred",
        ),
        (
            Reply::status(400, "", "<Error><Code>TokenRefreshRequired</Code></Error>"),
            "http-400",
            "have expired",
        ),
        (Reply::status(401, "", ""), "http-401", "permissions"),
        (Reply::status(403, "", "<Error><Code>RequestTimeTooSkewed</Code></Error>"), "http-403", "clocks"),
        (Reply::status(301, "", "<Error><Code>PermanentRedirect</Code></Error>"), "http-301", "region"),
        (Reply::Object { bytes: BYTES - 1, tag: "t" }, "short", "too short: it ends at byte 19999"),
        (Reply::Object { bytes: BYTES + 1, tag: "t" }, "long", "20001 bytes"),
    ] {
        for (keep, transfer) in [(false, 1 << 20), (true, 1 << 20), (true, 4096)] {
            let always = reply.clone();
            let server = Server::start(move |_, _| always.clone());
            let (outcome, _) = fetch(&site(&[server.url()], quick()), transfer, keep, None);
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), kind, "{reply:?}");
            assert!(error.to_string().contains(words), "{error}");
            let most = BYTES.div_ceil(transfer as u64) as usize;
            assert!(server.seen().len() <= most, "each request was made once");
        }
    }
}

#[test]
fn changed_objects_are_named() {
    let server = Server::start(|_, _| Reply::Object { bytes: BYTES, tag: "new" });
    let listed = ObjectVersion::of_tag(b"old");
    let (outcome, _) = fetch(&site(&[server.url()], quick()), 1 << 20, false, listed);
    assert_eq!(outcome.unwrap_err().kind(), "changed");
    let (outcome, _) = fetch(&site(&[server.url()], quick()), 1 << 20, false, ObjectVersion::of_tag(b"new"));
    assert!(outcome.is_ok());
    // Without a catalog, all answers of a fetch must have the same tag.
    let server =
        Server::start(|number, _| Reply::Object { bytes: BYTES, tag: if number < 2 { "a" } else { "b" } });
    let (outcome, _) = fetch(&site(&[server.url()], quick()), 4096, true, None);
    assert_eq!(outcome.unwrap_err().kind(), "changed");
    let without = |_: usize, _: &SeenRequest| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").into_bytes();
        answer.extend((0..BYTES).map(content));
        Reply::Raw(answer)
    };
    let server = Server::start(without);
    assert!(fetch(&site(&[server.url()], quick()), 1 << 20, false, None).0.is_ok(), "a tag is optional");
    let (outcome, _) = fetch(&site(&[server.url()], quick()), 1 << 20, false, listed);
    assert_eq!(outcome.unwrap_err().kind(), "malformed", "unless a catalog has it");
}

#[test]
fn a_connection_that_the_server_closed_is_replaced_without_a_failure() {
    let server = Server::start(|_, _| Reply::ThenClose { bytes: BYTES });
    let site = site(&[server.url()], quick());
    let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
    fetch_times(&mut lane, 5, false);
    let counts = lane.take_spans().requests;
    assert_eq!((counts.answered, counts.all_failed()), (5, 0));
}

#[test]
fn endpoints_take_turns_and_connections_are_kept() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start(|_, _| RIGHT)).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let site = site(&urls, quick());
    let mut lane = ObjectLane::new(&site, Traffic::untimed()).unwrap();
    fetch_times(&mut lane, 10, false);
    assert!(servers.iter().all(|server| server.seen().len() == 5));
    assert_eq!(lane.take_spans().requests.connects, 2, "one connection each");
}

#[test]
fn retry_after_is_honoured_and_bounded() {
    let server = Server::start(first(Reply::status(503, "Retry-After: 1\r\n", "")));
    let begin = Instant::now();
    assert!(fetch(&site(&[server.url()], quick()), 1 << 20, false, None).0.is_ok());
    assert!(begin.elapsed() >= Duration::from_millis(950), "{:?}", begin.elapsed());
    let server = Server::start(|_, _| Reply::status(503, "Retry-After: 3600\r\n", ""));
    let (outcome, _) = fetch(&site(&[server.url()], quick()), 1 << 20, false, None);
    assert!(outcome.is_err(), "an hour is later than the deadline");
}

#[test]
fn nothing_listens() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (outcome, counts) = fetch(&site(&[format!("http://{closed}")], quick()), 1 << 20, false, None);
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), "not-connected");
    assert!(
        error.to_string().contains("Connection refused") && error.to_string().contains("3 attempts"),
        "{error}"
    );
    assert_eq!(counts.failed(AttemptFailure::NotConnected), 3);
}

/// Attempts to connect that get no answer, with TLS and without, are counted and end.
#[test]
fn servers_that_never_complete_a_connection_end_the_fetch() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = format!("https://{}", mute.local_addr().unwrap());
    // The queue of a listener that accepts nothing is full after one connection; the system ignores further ones.
    let full =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let full = std::net::TcpListener::from(full);
    let address = full.local_addr().unwrap();
    let _first = std::net::TcpStream::connect(address).unwrap();
    for url in [tls, format!("http://{address}")] {
        let begin = Instant::now();
        let (outcome, counts) = fetch(&site(&[url], quick()), 1 << 20, false, None);
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), "not-connected", "{error}");
        assert!(error.to_string().contains("no byte for 200 ms (3 attempts)"), "{error}");
        assert_eq!((counts.failed(AttemptFailure::NotConnected), counts.all_failed()), (3, 3));
        assert_eq!((counts.requests, counts.connects), (0, 0), "nothing was sent");
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
}

/// The deadline counts from the first attempt, also if no attempt was ever sent.
#[test]
fn the_deadline_includes_attempts_to_connect() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", mute.local_addr().unwrap());
    let policy = RetryPolicy { attempts: 1000, deadline: Nanos(500_000_000), ..quick() };
    let (outcome, counts) = fetch(&site(&[url], policy), 1 << 20, false, None);
    assert_eq!(outcome.unwrap_err().kind(), "not-connected");
    let failed = counts.failed(AttemptFailure::NotConnected);
    assert!((2..=4).contains(&failed), "{failed}");
}

/// A refused credential is asked for again, and the request waits for it, however short its pauses are.
#[test]
fn a_refused_credential_is_replaced_and_waited_for() {
    let server = Server::start(|_, request| match request.authorization.as_str() {
        "Bearer new" => RIGHT,
        _ => Reply::status(401, "", ""),
    });
    let options = ObjectOptions { endpoints: vec![server.url()], retry: quick(), ..ObjectOptions::default() };
    let bearer = |token: &str| Credential::Bearer(model::secret::Secret::new(token));
    let cell = Arc::new(CredentialCell::renewable(bearer("old")));
    let place = ObjectPlace::parse(Service::Gcs, "bucket/prefix");
    let site = Site::new(&place, &Arc::new(options), Arc::clone(&cell), || 0).unwrap();
    let source = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(cell.until_refused()), 1);
        std::thread::sleep(Duration::from_millis(300));
        cell.replace(bearer("new"));
        Instant::now()
    });
    // Several requests are refused together.
    let (outcome, counts) = fetch(&site, 4096, false, None);
    let end = Instant::now();
    assert_eq!(outcome.map(|fetched| fetched.bytes), Ok(BYTES));
    assert_eq!((counts.failed(AttemptFailure::Expired), counts.all_failed(), counts.requests), (5, 5, 10));
    let replaced = source.join().unwrap();
    assert!(end > replaced && end.duration_since(replaced) < Duration::from_secs(5));
}

#[test]
fn a_proxy_that_refuses_is_named_with_its_status() {
    for (answer, words, attempts) in [
        ("503 Service Unavailable", "the proxy answered 503 (3 attempts)", 3),
        ("407 Proxy Authentication Required", "the proxy answered 407: it asks for a user and a password", 1),
        ("403 Forbidden", "the proxy answered 403: it does not pass connections", 1),
    ] {
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").into_bytes();
        let server = Server::start(move |_, _| Reply::Raw(answer.clone()));
        let options = ObjectOptions {
            endpoints: vec!["https://[fd00::1]:9000".to_owned()],
            proxy: Some(model::secret::Secret::new(server.url())),
            retry: quick(),
            ..ObjectOptions::default()
        };
        let place = ObjectPlace::parse(Service::S3, "bucket/prefix");
        let cell = Arc::new(CredentialCell::given(Credential::Anonymous));
        let site = Site::new(&place, &Arc::new(options), cell, || 0).unwrap();
        let (outcome, counts) = fetch(&site, 1 << 20, false, None);
        let error = outcome.unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("[fd00::1]:9000") && !error.contains("TLS"),
            "{error}"
        );
        assert_eq!(counts.failed(AttemptFailure::NotConnected), attempts);
        let seen = server.seen();
        assert_eq!((seen.len() as u64, counts.connects), (attempts, 0));
        assert_eq!(seen[0].line, "CONNECT [fd00::1]:9000 HTTP/1.1");
    }
}

/// Many lanes do not begin at the same server, or at the same address of one.
#[test]
fn lanes_begin_at_different_addresses() {
    let servers: Vec<Server> = (0..2).map(|_| Server::start(|_, _| RIGHT)).collect();
    let addresses: Vec<std::net::SocketAddr> = servers.iter().map(|server| server.address).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let of_addresses = site(&urls[..1], quick()).at(&addresses);
    for site in [of_addresses, site(&urls, quick())] {
        let before: Vec<usize> = servers.iter().map(|server| server.seen().len()).collect();
        // The chance that all begin at the same one is 2^-31.
        for _ in 0..32 {
            assert!(fetch(&site, 1 << 20, false, None).0.is_ok());
        }
        assert!(servers.iter().zip(before).all(|(server, before)| server.seen().len() > before));
    }
}

#[test]
fn lanes_share_the_limit_exactly() {
    for (most, lanes) in [(1, 1), (5, 2), (16, 16), (4096, 7)] {
        let shares: Vec<usize> = (0..lanes).map(|lane| share(most, lanes, lane)).collect();
        assert_eq!(shares.iter().sum::<usize>(), most, "{shares:?}");
        assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
    }
    assert_eq!(share(1, 2, 1), 1, "a lane without requests would never end");
}

/// Without descriptors for more connections, requests wait for those that are there, and no attempt has failed.
#[test]
fn a_lack_of_descriptors_is_waited_for() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    let server = Server::start(|_, _| RIGHT);
    let mut site = site(&[server.url()], quick());
    // Few enough that the lane does not have to raise the limit.
    Arc::get_mut(&mut site.options).unwrap().requests_in_flight = 20;
    let lack = || {
        // SAFETY: this thread uses no descriptors of others from now on. It gets a table of its own, because the server
        // needs descriptors, too.
        unsafe { unshare_unsafe(UnshareFlags::FILES) }.unwrap();
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(100), maximum }).unwrap();
        let mut others: Vec<std::fs::File> =
            std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        assert_eq!(
            std::fs::File::open("/dev/null").unwrap_err().raw_os_error(),
            Some(24),
            "no descriptor is left"
        );
        // Three are those of the lane itself, and two are for connections.
        others.truncate(others.len() - 5);
        fetch(&site, 4096, true, None)
    };
    let (outcome, counts) = std::thread::scope(|scope| scope.spawn(lack).join().unwrap());
    assert_eq!(outcome.map(|fetched| fetched.bytes), Ok(BYTES));
    assert_eq!((counts.requests, counts.connects, counts.all_failed()), (5, 2, 0));
}

#[test]
fn an_address_that_fails_at_once_is_followed_by_the_next() {
    let server = Server::start(|_, _| RIGHT);
    // The system refuses to connect to a broadcast address without sending anything.
    let broken = std::net::SocketAddr::from(([255, 255, 255, 255], 9));
    for _ in 0..16 {
        let policy = RetryPolicy { attempts: 2, ..quick() };
        let site = site(&[server.url()], policy).at(&[broken, server.address]);
        let (outcome, counts) = fetch(&site, 1 << 20, false, None);
        assert_eq!(outcome.map(|fetched| fetched.bytes), Ok(BYTES));
        assert!(counts.failed(AttemptFailure::NotConnected) <= 1 && counts.connects == 1, "{counts:?}");
    }
}

#[test]
fn tls_with_a_server_that_does_not_speak_it_is_explained() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::Write;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    let (outcome, _) = fetch(&site(&[url], quick()), 1 << 20, false, None);
    let error = outcome.unwrap_err();
    assert!(!error.is_about_a_file(), "{error}");
    assert!(error.to_string().contains("cannot use TLS with 127.0.0.1:"), "{error}");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
}
