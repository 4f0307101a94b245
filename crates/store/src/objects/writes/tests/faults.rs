//! Every kind of failure of a server, and what becomes of a write then.

use std::time::{Duration, Instant};

use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, RetryPolicy, Service};
use model::requests::AttemptFailure;
use model::secret::Secret;
use model::units::Nanos;

use super::super::super::contract::{ObjectFacts, PutCondition, PutOutcome};
use super::super::super::credential::Credential;
use super::super::Writes;
use super::scripted::Scripted::{Answer, Close, Silence};
use super::scripted::{Scripted, ScriptedServer, place, quick, wall};
use crate::StoreError;

const OK: Scripted = Answer(200, "etag: \"t\"", "");
const BEGUN: Scripted = Answer(
    200,
    "",
    "<InitiateMultipartUploadResult><UploadId>id1</UploadId></InitiateMultipartUploadResult>",
);
const COMPLETED: Scripted = Answer(
    200,
    "",
    "<CompleteMultipartUploadResult><ETag>\"whole-2\"</ETag></CompleteMultipartUploadResult>",
);
/// The head of an object of 5 bytes.
const FIVE: Scripted =
    Answer(200, "etag: \"t\"\r\ncontent-length: 5\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT", "");

fn put(server: &ScriptedServer, condition: PutCondition<'_>) -> (Result<PutOutcome, StoreError>, Writes) {
    let writes = server.writes();
    (writes.put("a/key", b"hello", condition), writes)
}

fn done(bytes: u64) -> PutOutcome {
    PutOutcome::Done(ObjectFacts { bytes, tag: "\"t\"".to_owned() })
}

#[test]
fn what_may_pass_is_repeated_and_counted() {
    for (fault, kind) in [
        (Answer(503, "", "<Error><Code>SlowDown</Code></Error>"), AttemptFailure::Throttled),
        (Answer(429, "", ""), AttemptFailure::Throttled),
        (Answer(500, "", ""), AttemptFailure::ServerError),
        (Answer(408, "", ""), AttemptFailure::ServerError),
        (Answer(400, "", "<Error><Code>BadDigest</Code></Error>"), AttemptFailure::Malformed),
        (Close, AttemptFailure::Reset),
        (Silence, AttemptFailure::Silent),
    ] {
        let server = ScriptedServer::start(&[fault.clone(), OK, FIVE]);
        let (outcome, writes) = put(&server, PutCondition::Always);
        assert_eq!(outcome.unwrap(), done(5), "{fault:?}");
        let counts = writes.counts();
        assert_eq!((counts.requests, counts.answered, counts.failed(kind)), (3, 2, 1), "{fault:?}");
        assert_eq!(counts.all_failed(), 1);
    }
}

#[test]
fn what_is_refused_ends_at_once_and_shows_no_secret() {
    for (status, body, words) in [
        (
            403,
            "<Error><Code>AccessDenied</Code><StringToSign>hunter2</StringToSign></Error>",
            "403 AccessDenied",
        ),
        (404, "<Error><Code>NoSuchBucket</Code></Error>", "bucket does not exist"),
        (400, "<Error><Code>InvalidRequest</Code></Error>", "400 InvalidRequest"),
        (301, "<Error><Code>PermanentRedirect</Code></Error>", "another region"),
        (507, "", "no space left"),
    ] {
        let server = ScriptedServer::start(&[Answer(status, "", body)]);
        let (outcome, writes) = put(&server, PutCondition::Always);
        let error = outcome.unwrap_err();
        let text = format!("{error} {error:?} {writes:?}");
        assert!(text.contains(words) && text.contains("s3://bucket/a/key"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("AKID") && !text.contains("ignature"), "{text}");
        assert_eq!((writes.counts().requests, server.lines().len()), (1, 1));
    }
}

#[test]
fn a_server_that_asks_to_wait_is_given_the_time() {
    let server = ScriptedServer::start(&[Answer(503, "retry-after: 1", ""), OK, FIVE]);
    let begin = Instant::now();
    let (outcome, writes) = put(&server, PutCondition::Always);
    assert_eq!(outcome.unwrap(), done(5));
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert!(writes.progress() > 8, "it can be seen that the pause is not a stall: {}", writes.progress());
    // Longer than the deadline: it is not repeated.
    let server = ScriptedServer::start(&[Answer(503, "retry-after: 3600", "")]);
    let error = put(&server, PutCondition::Always).0.unwrap_err();
    assert!(matches!(error, StoreError::Rejected { .. }), "{error}");
    assert_eq!(server.lines().len(), 1);
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let server = ScriptedServer::start(&[Silence, Silence, Silence, Silence, Silence]);
    let error = put(&server, PutCondition::Always).0.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unanswered { how, .. } if how.kind == AttemptFailure::Silent),
        "{error}"
    );
    assert!(error.to_string().contains("(4 attempts)"), "{error}");
    let absent = ObjectOptions { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..server.options() };
    let error =
        Writes::open(&place(), &absent, wall).unwrap().put("k", b"", PutCondition::Always).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(error.kind(), "not-connected");
}

#[test]
fn conditions_are_reported_and_a_lost_answer_is_found_out() {
    for (status, code) in [(412, "PreconditionFailed"), (304, ""), (409, "BlobAlreadyExists")] {
        let body: &'static str = format!("<Error><Code>{code}</Code></Error>").leak();
        let server = ScriptedServer::start(&[Answer(status, "", body)]);
        assert_eq!(put(&server, PutCondition::Absent).0.unwrap(), PutOutcome::Refused);
        assert!(server.received()[0].head.contains("if-none-match: *"));
    }
    let server = ScriptedServer::start(&[Answer(404, "", "<Error><Code>NoSuchKey</Code></Error>")]);
    assert_eq!(put(&server, PutCondition::Tagged("\"x\"")).0.unwrap(), PutOutcome::Refused);
    assert!(server.received()[0].head.contains("if-match: \"x\""));
    // A conflict of two writers is repeated.
    let server =
        ScriptedServer::start(&[Answer(409, "", "<Error><Code>ConditionalRequestConflict</Code></Error>")]);
    put(&server, PutCondition::Absent).0.unwrap_err();

    let piece = |body| {
        Answer(
            206,
            "etag: \"t\"\r\ncontent-range: bytes 0-4/5\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT",
            body,
        )
    };
    for (there, outcome) in [("hello", done(5)), ("jello", PutOutcome::Refused)] {
        let server = ScriptedServer::start(&[Close, Answer(412, "", ""), FIVE, piece(there)]);
        assert_eq!(put(&server, PutCondition::Absent).0.unwrap(), outcome);
    }
    // The server does not say which of two writes that met has succeeded.
    let conflict = Answer(409, "", "<Error><Code>ConditionalRequestConflict</Code></Error>");
    let server = ScriptedServer::start(&[conflict, Answer(412, "", ""), FIVE, piece("hello")]);
    assert_eq!(put(&server, PutCondition::Absent).0.unwrap(), done(5));
    let other = Answer(409, "", "<Error><Code>BucketNotEmpty</Code></Error>");
    put(&ScriptedServer::start(&[other]), PutCondition::Absent).0.unwrap_err();
    let server = ScriptedServer::start(&[Close, Answer(412, "", ""), Answer(404, "", "")]);
    assert_eq!(put(&server, PutCondition::Absent).0.unwrap(), PutOutcome::Refused);
}

#[test]
fn a_checksum_that_differs_is_an_error() {
    let server =
        ScriptedServer::start(&[Answer(200, "etag: \"t\"\r\nx-amz-checksum-crc64nvme: AAAAAAAAAAA=", "")]);
    let error = put(&server, PutCondition::Always).0.unwrap_err();
    assert!(matches!(error, StoreError::WrongBytes { .. }), "{error}");
    assert!(server.received()[0].head.contains("x-amz-checksum-crc64nvme: "));
    // Without one, the size is looked up.
    let server = ScriptedServer::start(&[
        OK,
        Answer(200, "etag: \"t\"\r\ncontent-length: 4\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT", ""),
    ]);
    let error = put(&server, PutCondition::Always).0.unwrap_err();
    assert!(matches!(error, StoreError::Short { end: 4, needed: 5, .. }), "{error}");
}

/// The head of an object of 1500 bytes.
const STORED: Scripted = Answer(
    200,
    "etag: \"whole-2\"\r\ncontent-length: 1500\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT",
    "",
);

#[test]
fn an_upload_of_parts_survives_every_single_failure() {
    let failures =
        [Answer(500, "", ""), Answer(200, "", "<Error><Code>InternalError</Code></Error>"), Close, Silence];
    for at in 0..5 {
        for failure in &failures {
            // The last request is a HEAD, whose answer has no body.
            if at == 4 && matches!(failure, Answer(200, ..)) {
                continue;
            }
            let mut script = vec![BEGUN, OK, OK, COMPLETED, STORED];
            script.insert(at, failure.clone());
            let server = ScriptedServer::start(&script);
            let options = ObjectOptions { parts_in_flight: 1, ..server.options() };
            let writes = Writes::open(&place(), &options, wall).unwrap();
            let mut upload = writes.upload("a/key").unwrap();
            upload.write(&[7; 1500]).unwrap();
            let facts = upload.finish().unwrap_or_else(|error| panic!("{at} {failure:?}: {error}"));
            assert_eq!(facts, ObjectFacts { bytes: 1500, tag: "\"whole-2\"".to_owned() }, "{at} {failure:?}");
            let deleted = server.lines().iter().any(|line| line.starts_with("DELETE"));
            assert!(!deleted, "an upload that was completed is not aborted");
            assert_eq!(writes.may_have_left_uploads(), at == 0, "{at} {failure:?}");
        }
    }
}

#[test]
fn a_lost_answer_to_the_completion_is_found_out() {
    let gone = Answer(404, "", "<Error><Code>NoSuchUpload</Code></Error>");
    let body: &'static str = String::from_utf8(vec![b'a'; 1500]).unwrap().leak();
    let piece = Answer(
        206,
        "etag: \"whole-2\"\r\ncontent-range: bytes 0-1499/1500\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT",
        body,
    );
    for (byte, is_ours) in [(b'a', true), (b'b', false)] {
        let script = [BEGUN, OK, OK, Close, gone.clone(), STORED, piece.clone()];
        let server = ScriptedServer::start(&script);
        let options = ObjectOptions { parts_in_flight: 1, ..server.options() };
        let writes = Writes::open(&place(), &options, wall).unwrap();
        let mut upload = writes.upload("a/key").unwrap();
        upload.write(&[byte; 1500]).unwrap();
        assert_eq!(upload.finish().is_ok(), is_ours);
    }
    // Without a lost answer, an upload that is gone is an error.
    let server = ScriptedServer::start(&[BEGUN, OK, OK, gone]);
    let options = ObjectOptions { parts_in_flight: 1, ..server.options() };
    let writes = Writes::open(&place(), &options, wall).unwrap();
    let mut upload = writes.upload("a/key").unwrap();
    upload.write(&[1; 1500]).unwrap();
    assert!(upload.finish().unwrap_err().to_string().contains("NoSuchUpload"));
}

#[test]
fn bytes_and_attempts_are_progress_and_silence_is_not() {
    let server = ScriptedServer::start(&[Silence, Silence, Silence, Silence]);
    let (outcome, writes) = put(&server, PutCondition::Always);
    outcome.unwrap_err();
    let silent = writes.progress();
    assert!(silent <= 2 * 4, "attempts and their bodies: {silent}");
    let server = ScriptedServer::start(&[OK, FIVE]);
    let writes = server.writes();
    let mut upload = writes.upload("a/key").unwrap();
    upload.write(&[1; 900]).unwrap();
    assert_eq!(writes.progress(), 0);
    let _ = upload.finish();
    assert!(writes.progress() > 1);
}

#[test]
fn one_attempt_is_one_attempt() {
    let server = ScriptedServer::start(&[Answer(503, "", ""), OK, FIVE]);
    server.writes().put_once("a/key", b"hello", PutCondition::Always).unwrap_err();
    assert_eq!(server.lines().len(), 1);
}

#[test]
fn an_upload_that_ends_early_is_aborted() {
    let server = ScriptedServer::start(&[BEGUN]);
    let writes = server.writes();
    let mut upload = writes.upload("a/key").unwrap();
    upload.write(&[1; 2500]).unwrap();
    drop(upload);
    let last = server.lines().pop().unwrap();
    assert!(last.starts_with("DELETE") && last.contains("uploadId=id1"), "{last}");
    // Nothing was begun for an object that never needed a second part.
    let mut upload = writes.upload("b").unwrap();
    upload.write(&[1; 1000]).unwrap();
    drop(upload);
    assert!(server.lines().iter().all(|line| !line.contains("/bucket/b")));
}

#[test]
fn with_every_part_refused_an_upload_ends_at_once_with_little_memory() {
    let refused = Answer(403, "", "<Error><Code>AccessDenied</Code></Error>");
    let script: Vec<Scripted> = std::iter::once(BEGUN).chain(std::iter::repeat_n(refused, 10_000)).collect();
    let server = ScriptedServer::start(&script);
    let options = ObjectOptions { part_bytes: 1 << 16, parts_in_flight: 2, ..server.options() };
    let writes = Writes::open(&place(), &options, wall).unwrap();
    let mut upload = writes.upload("a/key").unwrap();
    let mut written = 0u64;
    let error = loop {
        match upload.write(&[1; 1 << 16]) {
            Ok(()) => written += 1 << 16,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    assert!(written < 1 << 20, "{written} bytes were taken although every part is refused");
}

#[test]
fn requests_are_distributed_over_the_endpoints() {
    let servers = [ScriptedServer::start(&[]), ScriptedServer::start(&[])];
    let endpoints = servers.iter().map(|server| format!("http://{}", server.address)).collect();
    let options = ObjectOptions { endpoints, ..servers[0].options() };
    let writes = Writes::open(&place(), &options, wall).unwrap();
    for number in 0..6 {
        writes.delete(&format!("k{number}")).unwrap();
    }
    assert_eq!(servers.map(|server| server.lines().len()), [3, 3]);
    // One that does not answer is replaced by the next.
    let server = ScriptedServer::start(&[]);
    let endpoints = vec!["http://127.0.0.1:1".to_owned(), format!("http://{}", server.address)];
    let options = ObjectOptions { endpoints, ..server.options() };
    Writes::open(&place(), &options, wall).unwrap().delete("k").unwrap();
    assert_eq!(server.lines(), ["DELETE /bucket/k"]);
}

#[test]
fn names_that_would_be_changed_are_refused() {
    let server = ScriptedServer::start(&[]);
    let writes = server.writes();
    for key in ["", "a//b", "/a", "a/", "a/../b", "."] {
        let error = writes.put(key, b"", PutCondition::Always).unwrap_err();
        assert!(error.to_string().contains("cannot be written"), "{key}: {error}");
    }
    assert_eq!(server.lines(), [""; 0]);
}

/// Answers like the metadata service of an instance, once.
fn metadata(id: &str) -> [Scripted; 3] {
    let keys = format!(
        "{{\"Code\":\"Success\",\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"s\",\"Token\":\"t\",\
         \"Expiration\":\"2999-01-01T00:00:00Z\"}}"
    );
    [Answer(200, "", "token"), Answer(200, "", "role"), Answer(200, "", keys.leak())]
}

#[test]
fn expired_credentials_are_fetched_again() {
    let source = ScriptedServer::start(&[metadata("FIRST"), metadata("SECOND")].concat());
    let settings =
        vec![("AWS_METADATA_ENDPOINT".to_owned(), Secret::new(format!("http://{}", source.address)))];
    let expired = Answer(400, "", "<Error><Code>ExpiredToken</Code></Error>");
    let server = ScriptedServer::start(&[expired, OK, FIVE]);
    let options = ObjectOptions { credentials: CredentialSource::Library(settings), ..server.options() };
    let writes = Writes::open(&place(), &options, wall).unwrap();
    let id = |writes: &Writes| match &*writes.credentials().get() {
        Credential::Keys { id, .. } => id.expose().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!((id(&writes), writes.credentials().version()), ("FIRST".to_owned(), 1));
    assert_eq!(writes.put("a/key", b"hello", PutCondition::Always).unwrap(), done(5));
    assert_eq!((id(&writes), writes.credentials().version()), ("SECOND".to_owned(), 2));
    assert_eq!(writes.counts().failed(AttemptFailure::Expired), 1);
    let used: Vec<bool> =
        server.received().iter().map(|request| request.head.contains("credential=second/")).collect();
    assert_eq!(used, [false, true, true]);
    // Keys that the options contain cannot be fetched again.
    let server = ScriptedServer::start(&[Answer(400, "", "<Error><Code>ExpiredToken</Code></Error>")]);
    let error = put(&server, PutCondition::Always).0.unwrap_err();
    assert!(error.to_string().contains("have expired"), "{error}");
    assert_eq!(server.lines().len(), 1);
}

#[test]
fn a_source_of_credentials_that_is_not_there_is_named_soon() {
    let begin = Instant::now();
    for (endpoint, words) in
        [("http://127.0.0.1:1", "127.0.0.1:1"), ("http://169.254.169.254", "metadata service")]
    {
        let settings = vec![("aws_metadata_endpoint".to_owned(), Secret::new(endpoint))];
        let mut retry = quick();
        retry.silence = Nanos(60_000_000_000);
        let options = ObjectOptions {
            credentials: CredentialSource::Library(settings),
            retry,
            ..ObjectOptions::default()
        };
        let error = Writes::open(&place(), &options, wall).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("no credentials for s3://bucket"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(15));
    let settings = vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI".to_owned(), Secret::new("http://x"))];
    let options =
        ObjectOptions { credentials: CredentialSource::Library(settings), ..ObjectOptions::default() };
    let error = Writes::open(&place(), &options, wall).unwrap_err().to_string();
    assert!(error.contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), "{error}");
}

/// The certificate of the service does not match a name with more dots, so the host has no bucket in its name.
#[test]
fn a_bucket_with_dots_is_in_the_path() {
    for (bucket, host) in
        [("plain", "plain.s3.us-east-1.amazonaws.com"), ("with.dots", "s3.us-east-1.amazonaws.com")]
    {
        let server = ScriptedServer::start(&[Answer(502, "", "")]);
        let options = ObjectOptions {
            endpoints: Vec::new(),
            proxy: Some(Secret::new(format!("http://{}", server.address))),
            retry: RetryPolicy { attempts: 1, ..quick() },
            ..server.options()
        };
        let place = ObjectPlace::parse(Service::S3, bucket);
        let writes = Writes::open(&place, &options, || 0).unwrap();
        writes.put("a/key", b"hello", PutCondition::Always).unwrap_err();
        assert_eq!(server.lines(), [format!("CONNECT {host}:443")]);
    }
}
