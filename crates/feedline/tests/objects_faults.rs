//! Faults of object stores, injected between client and server: each ends as documented with both error policies.
//! Passing faults are repeated, lasting ones are named with the object, and no command waits forever.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::objects::proxy::{Ask, Proxy, Rule, Trouble};
use crate::objects::servers::Place;
use crate::util::{Dir, Done, outcome};

/// A run takes a second or less, and up to three seconds of waiting for a server that is silent.
const LIMIT: Duration = Duration::from_secs(60);

/// The object whose requests fail.
const BAD: &str = "train/img_07_of_24.jpeg";

/// Whole objects, one request each; with `RANGES` two requests each.
const SETTINGS: [&str; 6] = [
    "dataset.format=jpeg",
    "dataset.record_length_bytes=8000",
    "train.epochs=1",
    "reader.verify=full",
    "storage.retry_attempts=2",
    "storage.silence_timeout=1",
];
const WHOLE: &[&str] = &[];
const RANGES: &[&str] = &["reader.transfer_size=4096"];

/// How a run with a fault ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// All samples are delivered.
    Fine,
    /// All samples are delivered, after one attempt that failed and is counted under this kind.
    Again(&'static str),
    /// The sample fails: the policy decides. Errors are counted under this kind, and the message has this text.
    Fails(&'static str, &'static str),
    /// The run ends, whatever the policy: no other request would succeed. The message has this text.
    Ends(&'static str),
}

/// A fault of one object: its settings, how a run ends if it happens once, and if it happens always.
type Fault = (Trouble, &'static [&'static str], Ending, Ending);

/// Checks that a run ended as it should.
fn check(done: Done, ending: Ending, policy: &str, fault: &str) {
    match (ending, policy) {
        (Ending::Fine | Ending::Again(_), _) => {
            let summary = done.ran().json();
            if let Ending::Again(kind) = ending {
                let failed = &summary["feedline"]["epochs"][0]["requests"]["failed_attempts"];
                assert_eq!(*failed, json!({ kind: 1 }), "{fault}: {summary:#}");
                assert_eq!(outcome(&summary, "requests"), "note", "{fault}");
            }
            for rule in ["complete", "exactly-once", "bytes-as-planned", "data-verified", "errors"] {
                assert_eq!(outcome(&summary, rule), "pass", "{fault}, {rule}: {summary:#}");
            }
        }
        (Ending::Fails(kind, says), "stop") => {
            let done = done.exits(4).one_error().says(BAD).says("rank 0").says(says);
            let errors = &done.json()["feedline"]["errors"];
            assert_eq!(errors[kind]["count"], 1, "{fault}: {errors}");
        }
        (Ending::Fails(kind, says), _) => {
            // Wrong bytes are never valid, even if they are counted.
            let done = if kind == "wrong-bytes" { done.exits(5) } else { done.ran() };
            let summary = done.json();
            let (errors, epoch) = (&summary["feedline"]["errors"], &summary["feedline"]["epochs"][0]);
            assert_eq!(errors[kind]["count"], 1, "{fault}: {errors}");
            let example = &errors[kind]["examples"][0];
            assert_eq!(example["file"], BAD, "{fault}: {example}");
            assert!(example["message"].as_str().unwrap().contains(says), "{fault}: {example}");
            let samples = (&epoch["samples_delivered"], &epoch["samples_failed"]);
            assert_eq!(samples, (&json!(23), &json!(1)), "{fault}");
            assert_eq!(outcome(&summary, "exactly-once"), "pass", "{fault}");
        }
        (Ending::Ends(says), _) => {
            done.exits(4).one_error().says(BAD).says(says);
        }
    }
}

/// Runs each fault once and always, with both policies, at the same time.
fn end_as_documented(faults: &[Fault]) {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    place
        .with(dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &url]).set(&SETTINGS))
        .run()
        .exits(0);
    for (trouble, settings, once, always) in faults {
        let mut running = Vec::new();
        for (ending, times) in [(*once, 1), (*always, u64::MAX)] {
            for policy in ["stop", "count"] {
                let rule = Rule::new(trouble.clone()).only(Ask::Get).key(BAD).limit(times);
                let proxy = Proxy::to(&place.endpoint).rule(rule).start();
                let results = format!("results-{policy}-{times}");
                let on_error = format!("reader.on_error={policy}");
                let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &url];
                let command = dir.feedline(&args).args(&["--results-dir", &results]);
                let command = command.set(&SETTINGS).set(settings).set(&[&on_error]);
                running.push((place.through(&proxy).with(command).start(), proxy, ending, policy, times));
            }
        }
        for (run, proxy, ending, policy, times) in running {
            let fault = format!("{trouble:?} x {times}, {policy}");
            let done = run.wait_for(LIMIT);
            assert!(proxy.struck(0) >= 1, "{fault} did not happen");
            check(done, ending, policy, &fault);
        }
    }
}

const fn fails(kind: &'static str, says: &'static str) -> Ending {
    Ending::Fails(kind, says)
}

#[test]
fn answers_that_refuse() {
    use Ending::{Again, Ends};
    end_as_documented(&[
        (
            Trouble::Status(500),
            WHOLE,
            Again("server-error"),
            fails("http-500", "answered 500 InternalError (2 attempts)"),
        ),
        (
            Trouble::Status(503),
            RANGES,
            Again("throttled"),
            fails("http-503", "answered 503 ServiceUnavailable (2 attempts)"),
        ),
        (
            Trouble::SlowDown(1),
            WHOLE,
            Again("throttled"),
            fails("http-503", "answered 503 SlowDown (2 attempts)"),
        ),
        (
            Trouble::TooMany(1),
            WHOLE,
            Again("throttled"),
            fails("http-429", "answered 429 TooManyRequests (2 attempts)"),
        ),
        (
            Trouble::Error(404, "NoSuchKey"),
            WHOLE,
            fails("enoent", "does not exist"),
            fails("enoent", "does not exist"),
        ),
        (
            // Keys that were given cannot be fetched again.
            Trouble::Error(403, "ExpiredToken"),
            WHOLE,
            Ends("403 ExpiredToken; the credentials have expired: get new ones"),
            Ends("403 ExpiredToken; the credentials have expired: get new ones"),
        ),
        (
            Trouble::Error(403, "AccessDenied"),
            WHOLE,
            Ends("403 AccessDenied; this account may not do that: check its permissions"),
            Ends("403 AccessDenied; this account may not do that: check its permissions"),
        ),
        (
            Trouble::Error(403, "RequestTimeTooSkewed"),
            WHOLE,
            Ends("the clocks of this host and the server differ too much"),
            Ends("the clocks of this host and the server differ too much"),
        ),
        (Trouble::Redirect, WHOLE, Ends("is in another region"), Ends("is in another region")),
        (
            Trouble::Error(404, "NoSuchBucket"),
            WHOLE,
            Ends("the bucket does not"),
            Ends("the bucket does not"),
        ),
    ]);
}

#[test]
fn connections_that_break() {
    use Ending::{Again, Fine};
    let reset = fails("reset", "(2 attempts)");
    let silent = fails("silent", "no byte for 1.00 s (2 attempts)");
    end_as_documented(&[
        (Trouble::Reset, WHOLE, Fine, reset),
        (Trouble::Close, WHOLE, Fine, reset),
        (Trouble::LostAnswer, RANGES, Fine, reset),
        (Trouble::ResetInBody, WHOLE, Again("reset"), reset),
        (Trouble::CloseInBody, RANGES, Again("reset"), reset),
        (Trouble::Stall, WHOLE, Again("silent"), silent),
        (Trouble::StallInBody, WHOLE, Again("silent"), silent),
        (Trouble::SlowFirstByte(Duration::from_millis(300)), WHOLE, Fine, Fine),
        // Longer than the timeout in all, but never silent for that time.
        (Trouble::SlowBody(6, Duration::from_millis(300)), WHOLE, Fine, Fine),
    ]);
}

#[test]
fn answers_that_are_wrong() {
    use Ending::{Again, Fine};
    let short = fails("short", "is too short");
    let malformed = fails("malformed", "another range than was requested (2 attempts)");
    let changed = fails("changed", "its entity tag differs");
    let flipped = fails("wrong-bytes", "differs from what was written");
    end_as_documented(&[
        (Trouble::LongLength, WHOLE, fails("long", "is too long"), fails("long", "is too long")),
        (Trouble::ShortLength, WHOLE, short, short),
        (Trouble::Surplus, WHOLE, short, short),
        (Trouble::WebPage, WHOLE, short, short),
        (Trouble::Garbage, WHOLE, Again("malformed"), fails("malformed", "the answer is not HTTP")),
        (Trouble::ShortLength, RANGES, Again("malformed"), malformed),
        (Trouble::WrongRange, RANGES, Again("malformed"), malformed),
        (Trouble::RangeAsWhole, RANGES, Again("malformed"), malformed),
        // One of two ranges is of another version of the object; if both are, nothing tells.
        (Trouble::WrongEtag, RANGES, changed, Fine),
        (Trouble::NoEtag, RANGES, Fine, Fine),
        (Trouble::FlippedByte, WHOLE, flipped, flipped),
        (Trouble::FlippedByte, RANGES, flipped, flipped),
    ]);
}

#[test]
fn a_server_that_asks_for_patience_gets_it() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    place
        .with(dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &url]).set(&SETTINGS))
        .run()
        .exits(0);
    let rule = Rule::new(Trouble::SlowDown(2)).only(Ask::Get).key(BAD).limit(1);
    let proxy = Proxy::to(&place.endpoint).rule(rule).start();
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &url];
    let begin = Instant::now();
    place.through(&proxy).with(dir.feedline(&args).set(&SETTINGS)).run().ran();
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(
        proxy.log().iter().filter(|line| line.starts_with("GET") && line.contains(BAD)).count(),
        2,
        "{:?}",
        proxy.log()
    );
}

#[test]
fn a_stall_is_reported_with_object_range_attempt_and_server() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    place
        .with(dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", &url]).set(&SETTINGS))
        .run()
        .exits(0);
    let get = |trouble| Rule::new(trouble).only(Ask::Get).key(BAD);
    let proxy =
        Proxy::to(&place.endpoint).rule(get(Trouble::Status(500)).limit(1)).rule(get(Trouble::Stall)).start();
    let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--stall-timeout", "3s", "--data-dir", &url];
    let patient = ["storage.silence_timeout=60"];
    let command = dir.feedline(&args).set(&SETTINGS).set(&patient);
    let done = place.through(&proxy).with(command).start().wait_for(LIMIT);
    let server = proxy.endpoint().trim_start_matches("http://").to_owned();
    done.exits(4)
        .says("no progress for ")
        .says(&format!("read {BAD} at bytes 0 to "))
        .says(&format!(", attempt 2 on {server}, for "));
    assert_eq!((proxy.struck(0), proxy.struck(1)), (1, 1));
}

/// A data set of two objects with three parts each and of small ones.
const WRITTEN: [&str; 6] = [
    "dataset.format=jpeg",
    "dataset.num_files_train=3",
    "dataset.record_length_bytes=11000000",
    "storage.part_size=5MiB",
    "storage.retry_attempts=2",
    "storage.silence_timeout=2",
];

fn writes(dir: &Dir, place: &Place, url: &str) -> Done {
    let args = ["generate", "w.yaml", "--quiet", "--json", "--data-dir", url];
    place.with(dir.feedline(&args).set(&WRITTEN)).start().wait_for(LIMIT)
}

#[test]
fn writes_are_repeated_until_they_succeed() {
    let (dir, place) = (Dir::small(), Place::s3());
    dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", "all/local"]).set(&WRITTEN).run().exits(0);
    let mut names = Vec::new();
    for (ask, trouble) in [
        (Ask::Part, Trouble::Status(500)),
        (Ask::Part, Trouble::Error(500, "InternalError")),
        (Ask::Part, Trouble::Reset),
        (Ask::Part, Trouble::LostAnswer),
        (Ask::Part, Trouble::SlowDown(1)),
        (Ask::Part, Trouble::Stall),
        (Ask::CreateUpload, Trouble::Status(503)),
        (Ask::Complete, Trouble::Status(500)),
        (Ask::Complete, Trouble::LateError),
        (Ask::Complete, Trouble::LostAnswer),
        (Ask::Put, Trouble::Status(500)),
        (Ask::Put, Trouble::Reset),
        (Ask::List, Trouble::Status(503)),
        (Ask::Head, Trouble::Status(500)),
    ] {
        // The names have words of errors in them, which must not be taken for errors where a server repeats the key.
        let words = format!("{ask:?}-{trouble:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let name = format!("all/{words}");
        let proxy = Proxy::to(&place.endpoint).rule(Rule::new(trouble).only(ask).limit(1)).start();
        let done = writes(&dir, &place.through(&proxy), &place.url(&name)).exits(0);
        assert_eq!(done.json()["files_written"], 3, "{name}");
        assert_eq!(proxy.struck(0), 1, "{name} did not happen: {:?}", proxy.log());
        names.push(name);
    }
    let uploads = place.boto(&dir, &["uploads", &place.key("all")]).exits(0).stdout;
    assert_eq!(uploads, "", "left behind");
    for name in names {
        assert_eq!(place.has_files_of(&dir, &name, "all/local"), 3, "{name}");
    }
}

#[test]
fn a_write_that_never_succeeds_is_named_and_leaves_nothing() {
    let (dir, place) = (Dir::small(), Place::s3());
    for (number, (ask, trouble, says)) in [
        (Ask::Part, Trouble::Status(500), "500 InternalError (2 attempts)"),
        (Ask::Part, Trouble::Error(403, "AccessDenied"), "403 AccessDenied"),
        (Ask::Part, Trouble::Error(400, "BadDigest"), "400 BadDigest"),
        (Ask::Part, Trouble::Stall, "(2 attempts)"),
        (Ask::Complete, Trouble::LateError, "InternalError"),
        (Ask::CreateUpload, Trouble::SlowDown(1), "503 SlowDown (2 attempts)"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("bad{number}");
        let rule = Rule::new(trouble.clone()).only(ask).key("train/img_1_of_3.jpeg");
        let proxy = Proxy::to(&place.endpoint).rule(rule).start();
        let done = writes(&dir, &place.through(&proxy), &place.url(&name)).exits(4).one_error();
        done.says(&format!("{}/train/img_1_of_3.jpeg", place.url(&name))).says(says);
        assert!(proxy.struck(0) >= 1, "{trouble:?}");
        let listed = place.boto(&dir, &["list", &place.key(&name)]).exits(0).stdout;
        assert!(!listed.contains("img_1_of_3"), "{trouble:?}: {listed}");
        // A later command ends what could not be aborted, and completes the data set.
        writes(&dir, &place, &place.url(&name)).exits(0);
        let uploads = place.boto(&dir, &["uploads", &place.key(&name)]).exits(0).stdout;
        assert_eq!(uploads, "", "{trouble:?}");
    }
}

/// Peak memory of the process and its child, in bytes.
fn peak(first: u32) -> u64 {
    let peak = |process: u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?.to_owned();
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    crate::util::worker_of(first).and_then(peak).unwrap_or(0) * 1024
}

#[test]
fn a_bucket_that_refuses_every_write_ends_generation_at_once_and_with_little_memory() {
    // Far more than fits into memory, if what cannot be written were kept.
    let settings =
        ["dataset.format=jpeg", "dataset.num_files_train=20000", "dataset.record_length_bytes=4000000"];
    let (dir, place) = (Dir::small(), Place::s3());
    for key in ["", "train"] {
        let refuse = |method| Rule::new(Trouble::Error(403, "AccessDenied")).method(method).key(key);
        let proxy = Proxy::to(&place.endpoint).rule(refuse("PUT")).rule(refuse("POST")).start();
        let url = place.url(&format!("refused{key}"));
        let args = ["generate", "w.yaml", "--quiet", "--data-dir", &url];
        let begin = Instant::now();
        let mut running = place.through(&proxy).with(dir.feedline(&args).set(&settings)).start();
        let (first, mut most) = (running.id(), 0);
        running.until_or_end(|| {
            most = peak(first).max(most);
            false
        });
        let done = running.wait_for(LIMIT);
        // Five seconds are required. A busy machine gets three times that.
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
        done.exits(4).one_error().says("403 AccessDenied").says("check its permissions").says(&url);
        assert!(most < 256 << 20, "{most} bytes");
        assert!(proxy.requests() < 100, "{}", proxy.requests());
        let listed = place.boto(&dir, &["list", &place.key(&format!("refused{key}/train"))]).exits(0).stdout;
        assert_eq!(listed, "");
    }
}
