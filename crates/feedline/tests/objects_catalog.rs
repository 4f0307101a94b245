//! `feedline catalog` on real object stores: every key once, in parallel and page by page, resumed, never a shorter
//! list after an error; runs with the catalog notice objects that changed.

use rustix::process::Signal;
use serde_json::Value;

use crate::objects::proxy::{Ask, Proxy, Rule, Trouble};
use crate::objects::servers::{Place, Scheme};
use crate::util::{Cmd, Dir, Done, outcome};

/// Objects that have nothing to do with a data set; the long form has as many as the promise says.
fn unrelated() -> u64 {
    if std::env::var_os("FEEDLINE_TEST_LONG").is_some() { 100_000 } else { 3_000 }
}

/// `feedline catalog` with its journal in the test's own folder.
fn catalog<'a>(dir: &'a Dir, place: &Place, args: &[&str]) -> Cmd<'a> {
    let command = dir.feedline(&["catalog", &place.url("data"), "--quiet"]).args(args);
    place.with(command).env("XDG_STATE_HOME", dir.path("state"))
}

fn json(dir: &Dir, place: &Place, args: &[&str]) -> Value {
    catalog(dir, place, &[args, &["--json"]].concat()).run().exits(0).silent().json()
}

fn generate(dir: &Dir, place: &Place, settings: &[&str]) {
    let args = ["generate", "w.yaml", "--quiet", "--data-dir", &place.url("data")];
    place.with(dir.feedline(&args).set(settings)).run().exits(0);
}

fn run(dir: &Dir, place: &Place, settings: &[&str]) -> Done {
    let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration", "--data-dir", &place.url("data")];
    place.with(dir.feedline(&args).set(settings)).run()
}

#[test]
fn every_service_is_listed_and_read_by_its_catalog() {
    for scheme in [Scheme::S3, Scheme::Azure, Scheme::Google] {
        let (dir, place) = (Dir::small(), Place::new(scheme));
        generate(&dir, &place, &["dataset.num_subfolders_train=3"]);
        let listed = json(&dir, &place, &["--threads", "4"]);
        assert_eq!((&listed["files"], &listed["folders"]), (&24.into(), &5.into()), "{scheme:?}: {listed:#}");
        assert!(listed["catalog"].as_str().unwrap().ends_with("/data/.feedline/catalog"), "{listed:#}");
        let local = json(&dir, &place, &["--threads", "1", "--output", "here.catalog"]);
        assert_eq!(local["digest"], listed["digest"], "{scheme:?}");
        for more in [&[][..], &["dataset.catalog=here.catalog"]] {
            let settings = [&["dataset.num_subfolders_train=3"], more].concat();
            let summary = run(&dir, &place, &settings).ran().json();
            assert_eq!(outcome(&summary, "exactly-once"), "pass", "{scheme:?}: {summary:#}");
            assert_eq!(summary["feedline"]["epochs"][0]["samples_delivered"], 24);
        }
        assert!(!dir.path("state/feedline").exists() || dir.tree("state").is_empty(), "no journal is left");
    }
}

/// An object of the same size with other bytes has another entity tag. The content is not compared here.
#[test]
fn a_run_with_a_catalog_names_an_object_that_was_replaced() {
    let (dir, place) = (Dir::small(), Place::s3());
    let settings = ["dataset.format=jpeg", "reader.verify=none"];
    generate(&dir, &place, &settings);
    json(&dir, &place, &[]);
    let key = place.key("data/train/img_07_of_24.jpeg");
    let listed = place.boto(&dir, &["list", &key]).exits(0).stdout;
    let size: usize = listed.trim().rsplit_once(' ').unwrap().1.parse().unwrap();
    place.boto(&dir, &["put", &key, &"x".repeat(size)]).exits(0);
    run(&dir, &place, &settings).exits(4).one_error().says("img_07_of_24.jpeg").says("changed");
    let counted = run(&dir, &place, &[&settings[..], &["reader.on_error=count"]].concat()).ran().json();
    assert_eq!(counted["feedline"]["errors"]["changed"]["count"], 2, "once per epoch: {counted:#}");
    json(&dir, &place, &["--refresh"]);
    run(&dir, &place, &settings).ran();
}

#[test]
fn a_listing_with_errors_is_repeated_or_fails_and_is_never_shorter() {
    let (dir, place) = (Dir::small(), Place::s3());
    generate(&dir, &place, &[]);
    let complete = json(&dir, &place, &["--output", "complete.catalog"]);
    for trouble in [Trouble::SlowDown(0), Trouble::Status(500), Trouble::ResetInBody, Trouble::Reset] {
        let shown = format!("{trouble:?}");
        let proxy = Proxy::to(&place.endpoint).rule(Rule::new(trouble).only(Ask::List).limit(2)).start();
        let listed = json(&dir, &place.through(&proxy), &["--output", "again.catalog"]);
        assert_eq!(listed["digest"], complete["digest"], "{shown}");
        assert_eq!(proxy.struck(0), 2, "{shown}");
    }
    for (trouble, code) in [
        (Trouble::Status(500), 4),
        (Trouble::SlowDown(0), 4),
        (Trouble::WebPage, 4),
        (Trouble::ShortLength, 4),
        (Trouble::Error(403, "AccessDenied"), 3),
    ] {
        let shown = format!("{trouble:?}");
        let proxy = Proxy::to(&place.endpoint).rule(Rule::new(trouble).only(Ask::List)).start();
        let done = catalog(&dir, &place.through(&proxy), &["--output", "none.catalog"]).run();
        assert_eq!(done.code(), Some(code), "{shown}: {}", done.stderr);
        assert!(!dir.path("none.catalog").exists(), "{shown}: a catalog of a listing that failed");
    }
}

#[test]
fn a_place_among_unrelated_objects_is_listed_alone_and_resumed() {
    let (dir, place) = (Dir::small(), Place::s3());
    let count = unrelated();
    // Next to the data set, before and after it in the order of keys, and below it.
    for name in ["aaa", "data-old", "zzz"] {
        place.boto(&dir, &["fill", &place.key(name), &(count / 3).to_string()]).exits(0);
    }
    let proxy = Proxy::to(&place.endpoint).start();
    generate(&dir, &place.through(&proxy), &[]);
    run(&dir, &place.through(&proxy), &[]).ran();
    let listed = json(&dir, &place.through(&proxy), &[]);
    assert_eq!(listed["files"], 24, "{listed:#}");
    let lists: Vec<String> = proxy.log().into_iter().filter(|line| line.contains("list-type")).collect();
    assert!(!lists.is_empty(), "the data set was listed");
    let inside = format!("prefix={}", place.key("data/").replace('/', "%2F"));
    assert!(lists.iter().all(|line| line.contains(&inside)), "only the data set is listed: {lists:#?}");
    // All of it, killed half-way and resumed. This server lists `data/` before `data-old/`, so it goes by folders.
    let url = format!("s3://{}/{}", place.bucket, place.prefix);
    let listing = |threads: &str, proxy: &Proxy, output: &str| {
        let args = ["catalog", &url, "--quiet", "--json", "--threads", threads, "--output", output];
        place.through(proxy).with(dir.feedline(&args))
    };
    let slow = Proxy::to(&place.endpoint).latency(std::time::Duration::from_millis(60)).start();
    let mut running = listing("1", &slow, "all.catalog").start();
    let is_over = running.until_or_end(|| slow.count(Ask::List) >= 20);
    if !is_over {
        running.signal(Signal::KILL);
    }
    let done = running.wait();
    assert!(!is_over, "the listing takes more requests: {:?} {}", slow.log(), done.stderr);
    assert!(!dir.path("all.catalog").exists());
    // By the same address: a bucket of another server is another place.
    let resumed = listing("1", &slow, "all.catalog").run().exits(0).json();
    assert_eq!(resumed["files"], count / 3 * 3 + 24, "{resumed:#}");
    assert!(resumed["files_resumed"].as_u64().unwrap() >= 500, "{resumed:#}");
    assert_eq!(resumed["in_byte_order"], false, "{resumed:#}");
    let parallel = listing("8", &proxy, "parallel.catalog").run().exits(0).json();
    assert_eq!(parallel["digest"], resumed["digest"]);
}

#[test]
fn keys_that_are_not_paths_are_counted_and_long_ones_are_read() {
    let (dir, place) = (Dir::small(), Place::s3());
    // A key of the longest length that S3 allows, 1,024 bytes, in segments that this server accepts.
    let room = 1024 - place.key("data/").len() - ".npz".len();
    let long: String = "segment/".repeat(room / 8 + 1)[..room].trim_end_matches('/').to_owned();
    dir.write("local/x.npz", "x");
    for name in [format!("{long}.npz"), "two words.npz".to_owned(), "\u{fc}/\u{4e2d}.npz".to_owned()] {
        place.boto(&dir, &["put", &place.key(&format!("data/{name}")), "text"]).exits(0);
    }
    let listed = json(&dir, &place, &[]);
    assert_eq!((&listed["files"], &listed["bytes"]), (&3.into(), &12.into()), "{listed:#}");
    let shown = place.with(dir.feedline(&["inspect", &place.url(&format!("data/{long}.npz"))])).run();
    // It is text and not an array, which is found by reading it.
    shown.exits(5).says("npz");
}
