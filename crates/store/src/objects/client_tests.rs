//! Single requests against a server that misbehaves on demand, and credentials that expire, from their source to lanes
//! and single requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, RetryPolicy, Service};
use model::requests::AttemptFailure;
use model::secret::Secret;
use model::units::Nanos;

use super::client::Client;
use super::contract::ListRequest;
use super::credential::{Credential, CredentialCell};
use super::scripted::{Reply, Server};
use super::site::Site;
use super::writes::Writes;

fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 3,
        pause: Nanos(1_000_000),
        longest: Nanos(1_000_000),
        deadline: Nanos(20_000_000_000),
        silence: Nanos(200_000_000),
    }
}

fn client(urls: &[String], retry: RetryPolicy) -> Client {
    let options = ObjectOptions { endpoints: urls.to_vec(), retry, ..ObjectOptions::default() };
    let place = ObjectPlace::parse(Service::S3, "bucket/prefix");
    let cell = Arc::new(CredentialCell::given(Credential::Anonymous));
    Client::new(Arc::new(Site::new(&place, &Arc::new(options), cell, || 0).unwrap()))
}

/// A small object.
fn small(body: &str) -> Reply {
    Reply::status(200, "ETag: \"t\"\r\n", body)
}

#[test]
fn interim_answers_and_exact_lengths() {
    let server = Server::start(|number, _| {
        match number {
            0 => Reply::Raw(
                b"HTTP/1.1 100 x\r\n\r\nHTTP/1.1 103 x\r\nLink: y\r\n\r\n\
            HTTP/1.1 200 x\r\nETag: \"t\"\r\nContent-Length: 2\r\n\r\nhi"
                    .to_vec(),
            ),
            // More than announced: the answer cannot be trusted.
            1 => Reply::Raw(b"HTTP/1.1 200 x\r\nETag: \"t\"\r\nContent-Length: 2\r\n\r\nhi!".to_vec()),
            // An explanation with bytes behind it.
            3 => Reply::Raw(b"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\nno!".to_vec()),
            _ => small("hi"),
        }
    });
    let client = client(&[server.url()], quick());
    for _ in 0..3 {
        assert_eq!(client.get("k", 100).unwrap().unwrap().0, b"hi");
    }
    let counts = client.counts();
    assert_eq!(
        (counts.failed(AttemptFailure::Malformed), counts.failed(AttemptFailure::ServerError)),
        (1, 1)
    );
    let seen: Vec<usize> = server.seen().iter().map(|request| request.connection).collect();
    assert_eq!(seen, [0, 0, 1, 1, 2], "a connection with bytes behind an answer is not used again");
    assert_eq!(counts.connects, 3);
}

#[test]
fn the_deadline_includes_attempts_to_connect() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", mute.local_addr().unwrap());
    let policy = RetryPolicy { attempts: 1000, deadline: Nanos(500_000_000), ..quick() };
    let client = client(&[url], policy);
    let error = client.get("k", 100).unwrap_err();
    assert_eq!(error.kind(), "not-connected", "{error}");
    let counts = client.counts();
    assert_eq!((counts.failed(AttemptFailure::NotConnected), counts.connects), (3, 0));
}

#[test]
fn the_endpoint_that_answered_is_named() {
    let servers: Vec<Server> = [200, 404, 200]
        .map(|status| Server::start(move |_, _| Reply::status(status, "Content-Type: text/html\r\n", "")))
        .into();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let client = client(&urls, quick());
    for _ in 0..6 {
        let before: Vec<usize> = servers.iter().map(|server| server.seen().len()).collect();
        let error = client.list(&ListRequest::default(), &mut |_| {}).unwrap_err().to_string();
        let asked = servers.iter().zip(before).find(|(server, before)| server.seen().len() > *before);
        let address = asked.unwrap().0.address.to_string();
        assert!(error.contains(&address), "{address}: {error}");
    }
}

/// Answers like the metadata service of an instance, with other keys each time.
fn metadata() -> Server {
    Server::start(|number, _| match number % 3 {
        0 => small("token"),
        1 => small("role"),
        _ => {
            let keys = format!(
                "{{\"Code\":\"Success\",\"AccessKeyId\":\"KEY{}\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\
                 \"Expiration\":\"2999-01-01T00:00:00Z\"}}",
                number / 3
            );
            small(&keys)
        }
    })
}

/// A server that accepts only the second credential, and says so as S3 does: an answer to HEAD has no document.
fn expiring() -> Server {
    Server::start(|_, request| {
        let is_head = request.line.starts_with("HEAD");
        match (request.authorization.contains("Credential=KEY1/"), is_head) {
            (true, true) => {
                Reply::Raw(b"HTTP/1.1 200 x\r\nETag: \"t\"\r\nContent-Length: 5\r\n\r\n".to_vec())
            }
            (true, false) => small("hello"),
            (false, true) => Reply::status(400, "", ""),
            (false, false) => Reply::status(400, "", "<Error><Code>ExpiredToken</Code></Error>"),
        }
    })
}

#[test]
fn refused_credentials_are_fetched_again_for_reads() {
    let (source, server) = (metadata(), expiring());
    let settings = vec![("AWS_METADATA_ENDPOINT".to_owned(), Secret::new(source.url()))];
    let options = ObjectOptions {
        endpoints: vec![server.url()],
        credentials: CredentialSource::Library(settings),
        retry: quick(),
        ..ObjectOptions::default()
    };
    let place = ObjectPlace::parse(Service::S3, "bucket/prefix");
    let writes = Writes::open(&place, &options, || 0).unwrap();
    let site = Arc::new(Site::new(&place, &Arc::new(options), writes.credentials(), || 0).unwrap());
    let client = Client::new(Arc::clone(&site));
    let begin = Instant::now();
    let facts = client.head("k").unwrap().unwrap();
    assert_eq!((facts.bytes, facts.tag.as_str()), (5, "\"t\""));
    assert_eq!(client.get("k", 100).unwrap().unwrap().0, b"hello");
    assert_eq!(client.counts().failed(AttemptFailure::Expired), 1, "one request found out for all");
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!(source.seen().len(), 6, "fetched twice");
}

#[test]
fn credentials_that_were_given_are_not_asked_for_again() {
    let server = expiring();
    let client = client(&[server.url()], quick());
    let error = client.get("k", 100).unwrap_err();
    assert_eq!(error.kind(), "http-400");
    assert!(
        error.to_string().ends_with("400 ExpiredToken; the credentials have expired: get new ones"),
        "{error}"
    );
    assert_eq!(server.seen().len(), 1);
    assert_eq!(client.counts().failed(AttemptFailure::Expired), 1);
}

#[test]
fn uploads_that_cannot_be_listed_are_none() {
    for (status, is_fine) in [(403, true), (405, true), (501, true), (400, false), (500, false)] {
        let server = Server::start(move |_, _| Reply::status(status, "", ""));
        let client = client(&[server.url()], RetryPolicy { attempts: 1, ..quick() });
        assert_eq!(client.uploads("p/").is_ok_and(|none| none.is_empty()), is_fine, "{status}");
    }
}
