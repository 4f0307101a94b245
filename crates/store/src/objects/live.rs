//! Tests on real servers, which `scripts/test` starts: the conformance suite of stores on each service, listings,
//! uploads that were left behind, TLS, keys with unusual characters.

use std::time::{SystemTime, UNIX_EPOCH};

use model::extent::Extent;
use model::location::Location;
use model::names::Name;
use model::objects::{CredentialSource, ObjectOptions, ObjectPlace, Service};
use model::secret::Secret;
use model::units::Nanos;

use super::contract::{ListRequest, ListedKey, Objects, PutCondition, PutOutcome};
use super::random::random;
use super::store::{ObjectStore, open_bucket};
use crate::{Buffer, Fetch, FetchWait, Mode, Purpose, Selection, Store, StoreError, Traffic, conformance};

fn variable(name: &str) -> String {
    let name = format!("FEEDLINE_TEST_{name}");
    std::env::var(&name)
        .unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which starts the servers"))
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// How to reach a service's server.
fn options(service: Service) -> ObjectOptions {
    let (endpoint, account, credentials) = match service {
        Service::S3 => {
            let (id, secret) = (Secret::new(variable("S3_KEY")), Secret::new(variable("S3_SECRET")));
            (variable("S3"), None, CredentialSource::Keys { id, secret, token: None })
        }
        Service::Gcs => (variable("GCS"), None, CredentialSource::Anonymous),
        Service::Azure => {
            let key = CredentialSource::AccountKey(Secret::new(variable("AZURE_KEY")));
            (variable("AZURE"), Some(variable("AZURE_ACCOUNT")), key)
        }
    };
    ObjectOptions { endpoints: vec![endpoint], account, credentials, ..ObjectOptions::default() }
}

/// A place of its own for each test.
fn place(service: Service) -> ObjectPlace {
    let bucket = match service {
        Service::S3 => variable("S3_BUCKET"),
        Service::Gcs => variable("GCS_BUCKET"),
        Service::Azure => variable("AZURE_CONTAINER"),
    };
    ObjectPlace { service, bucket, prefix: format!("store-{:016x}", random()) }
}

fn selection(service: Service, options: ObjectOptions) -> Selection {
    Selection::named(service.name(), Mode::default()).unwrap().with_objects(options, wall)
}

fn store(service: Service) -> ObjectStore {
    ObjectStore::open(&Location::Objects(place(service)), &selection(service, options(service))).unwrap()
}

#[test]
fn every_service_passes_the_conformance_tests() {
    for service in Service::ALL {
        let store = store(service);
        conformance::store_with_files(&store);
        conformance::whole_files_of_odd_sizes(&store);
        assert_eq!(store.name(), service.name());
    }
}

fn put(bucket: &dyn Objects, key: &str, bytes: &[u8]) {
    assert!(matches!(bucket.put(key, bytes, PutCondition::Always), Ok(PutOutcome::Done(_))), "{key}");
}

/// All keys of a request, page by page, and the number of pages.
fn listed(bucket: &dyn Objects, request: ListRequest<'_>) -> (Vec<(String, u64)>, usize) {
    let (mut keys, mut next, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let request = ListRequest { continues: next.as_deref(), ..request };
        next = bucket
            .list(&request, &mut |key| match key {
                ListedKey::Object { key, bytes, version } => {
                    assert!(version.is_some(), "{key} has a tag");
                    keys.push((key.to_owned(), bytes));
                }
                ListedKey::Prefix(prefix) => keys.push((prefix.to_owned(), 0)),
            })
            .unwrap();
        pages += 1;
        if next.is_none() {
            return (keys, pages);
        }
    }
}

#[test]
fn listings_have_every_key_in_order() {
    for service in Service::ALL {
        let place = place(service);
        let (_, bucket) = open_bucket(&place, &selection(service, options(service))).unwrap();
        let names = ["a", "a b", "b/1", "b/2", "c&d<e>\"'", "\u{fc}/\u{4e2d}", "z+%2B=?#"];
        for (bytes, name) in names.iter().enumerate() {
            put(&*bucket, &place.key(name), &vec![7; bytes]);
        }
        let mut expected: Vec<(String, u64)> =
            names.iter().enumerate().map(|(bytes, name)| (place.key(name), bytes as u64)).collect();
        expected.sort();
        let prefix = format!("{}/", place.prefix);
        let all = ListRequest { prefix: &prefix, ..ListRequest::default() };
        assert_eq!(listed(&*bucket, all).0, expected, "{service:?}");
        let (keys, pages) = listed(&*bucket, ListRequest { most: 3, ..all });
        assert!(keys == expected && pages >= 3, "{service:?}: {pages} pages");
        let (folders, _) = listed(&*bucket, ListRequest { by_folder: true, ..all });
        assert!(folders.contains(&(place.key("b/"), 0)) && !folders.contains(&(place.key("b/1"), 2)));
        if bucket.lists_after() {
            let after = place.key("b/1");
            let (rest, _) = listed(&*bucket, ListRequest { after: &after, ..all });
            assert_eq!(rest, expected[3..], "{service:?}");
        }
        for (name, bytes) in &expected {
            assert_eq!(bucket.head(name).unwrap().unwrap().bytes, *bytes);
            bucket.delete(name).unwrap();
            assert_eq!(bucket.head(name), Ok(None));
        }
    }
}

#[test]
fn uploads_that_were_left_are_listed_and_aborted() {
    let place = place(Service::S3);
    let (_, bucket) = open_bucket(&place, &selection(Service::S3, options(Service::S3))).unwrap();
    let key = place.key("large");
    let mut upload = bucket.upload(&key).unwrap();
    // Two parts have been sent when the process is killed.
    upload.write(&vec![1; 17 << 20]).unwrap();
    std::mem::forget(upload);
    let begun = || bucket.uploads(&place.prefix).unwrap();
    let mut waited = 0;
    while begun().is_empty() && waited < 100 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        waited += 1;
    }
    let left = begun();
    assert_eq!(left.iter().map(|upload| upload.key.as_str()).collect::<Vec<_>>(), [key.as_str()]);
    bucket.abort(&left[0]).unwrap();
    bucket.abort(&left[0]).unwrap();
    assert_eq!(begun(), []);
    assert_eq!(bucket.head(&key), Ok(None), "the object never appeared");
}

fn read(store: &dyn Store, name: &str, bytes: u64) -> Result<Vec<u8>, StoreError> {
    let (name, whole) = (Name::new(name).unwrap(), [Extent { offset: 0, len: bytes }]);
    let mut lane = store.lane(Traffic { transfer: 1 << 20, ..Traffic::untimed() }).unwrap();
    lane.submit(
        0,
        Fetch {
            name: &name,
            purpose: Purpose::Upkeep,
            ranges: &whole,
            file_bytes: bytes,
            version: None,
            keep_open: false,
            at: Nanos::ZERO,
            into: Some(Buffer::default()),
        },
    );
    loop {
        match (lane.reap(), lane.awaits()) {
            (Some(done), _) => return done.outcome.map(|_| done.kept.unwrap().bytes().to_vec()),
            (None, FetchWait::Medium) => lane.wait(Nanos(100_000_000)),
            (None, _) => panic!("nothing is in flight"),
        }
    }
}

/// Long keys too: 1,023 bytes in short segments.
#[test]
fn keys_with_unusual_characters_are_read() {
    let store = store(Service::S3);
    let long = "segment-of-32-bytes-xxxxxxxxxxxx/".repeat(30);
    for name in ["a b.npz", "\u{fc}\u{4e2d}", "plus+and%25", "q?x=1&y#z", &long[..980]] {
        let mut writer = store.files().create(&Name::new(name).unwrap()).unwrap();
        writer.write(name.as_bytes()).unwrap();
        writer.finish().unwrap();
        assert_eq!(read(&store, name, name.len() as u64).unwrap(), name.as_bytes(), "{name}");
    }
}

#[test]
fn tls_is_verified() {
    let secure = |ca_bundle: Option<String>| {
        let options =
            ObjectOptions { endpoints: vec![variable("S3_TLS")], ca_bundle, ..options(Service::S3) };
        let place = Location::Objects(place(Service::S3));
        ObjectStore::open(&place, &selection(Service::S3, options)).unwrap()
    };
    let store = secure(Some(variable("CA")));
    let content: Vec<u8> = (0..5_000_000u64).map(|at| ((at * at) >> 9) as u8).collect();
    let mut writer = store.files().create(&Name::new("x").unwrap()).unwrap();
    content.chunks(1 << 20).for_each(|piece| writer.write(piece).unwrap());
    writer.finish().unwrap();
    assert!(read(&store, "x", content.len() as u64).unwrap() == content);
    let mut writer = store.files().create(&Name::new("small").unwrap()).unwrap();
    writer.write(&[1; 100]).unwrap();
    writer.finish().unwrap();
    conformance::lane_completes_every_fetch(&store, &Name::new("small").unwrap(), 100);
    let error = read(&secure(None), "x", 5).unwrap_err();
    assert!(error.to_string().contains("certificate is not trusted"), "{error}");
    assert!(!error.is_about_a_file(), "no other object can be read either");
    assert!(
        secure(None).files().size(&Name::new("x").unwrap()).unwrap_err().to_string().contains("not trusted")
    );
}

/// Passes connections on to a server, except for the second one, which it answers without TLS.
fn garbled_once(server: &str) -> String {
    let target = server.strip_prefix("https://").unwrap().to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            if number == 1 {
                let _ =
                    std::io::Write::write_all(&mut &client, b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            let server = std::net::TcpStream::connect(&target).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    url
}

/// An answer without TLS is a mistake of the configuration only if the server never spoke TLS.
#[test]
fn a_server_that_spoke_tls_before_is_asked_again() {
    let endpoints = vec![garbled_once(&variable("S3_TLS"))];
    let options = ObjectOptions { endpoints, ca_bundle: Some(variable("CA")), ..options(Service::S3) };
    let place = place(Service::S3);
    let (_, bucket) = open_bucket(
        &place,
        &selection(Service::S3, ObjectOptions { endpoints: vec![variable("S3")], ..options.clone() }),
    )
    .unwrap();
    put(&*bucket, &place.key("x"), b"hello");
    let store = ObjectStore::open(&Location::Objects(place), &selection(Service::S3, options)).unwrap();
    for _ in 0..3 {
        assert_eq!(read(&store, "x", 5).unwrap(), b"hello");
    }
}

#[test]
fn wrong_accounts_buckets_and_clocks_are_named() {
    let with = |change: &dyn Fn(&mut ObjectOptions), bucket: Option<&str>, wall: fn() -> u64| {
        let mut options = options(Service::S3);
        change(&mut options);
        let mut place = place(Service::S3);
        place.bucket = bucket.map_or(place.bucket, str::to_owned);
        let selection = Selection::named("s3", Mode::default()).unwrap().with_objects(options, wall);
        let store = ObjectStore::open(&Location::Objects(place), &selection).unwrap();
        let reads = read(&store, "x", 5).unwrap_err();
        let lists = store.files().census(&Name::new("x").unwrap(), "", "").unwrap_err();
        [reads, lists].map(|error| {
            assert!(!error.is_about_a_file(), "{error}");
            error.to_string()
        })
    };
    let wrong_secret = |options: &mut ObjectOptions| {
        let (id, secret) = (Secret::new(variable("S3_KEY")), Secret::new("hunter2"));
        options.credentials = CredentialSource::Keys { id, secret, token: None };
    };
    for error in with(&wrong_secret, None, wall) {
        assert!(
            error.contains("SignatureDoesNotMatch") && error.contains("secret does not match"),
            "{error}"
        );
        assert!(!error.contains("hunter2"));
    }
    let unknown = |options: &mut ObjectOptions| {
        let (id, secret) = (Secret::new("AKIAUNKNOWN"), Secret::new("hunter2"));
        options.credentials = CredentialSource::Keys { id, secret, token: None };
    };
    for error in with(&unknown, None, wall) {
        assert!(error.contains("InvalidAccessKeyId") && !error.contains("AKIAUNKNOWN"), "{error}");
    }
    for error in with(&|_| {}, Some("no-such-bucket"), wall) {
        assert!(error.contains("the bucket does not exist"), "{error}");
    }
    for error in with(&|_| {}, None, || wall() - 1200) {
        assert!(error.contains("RequestTimeTooSkewed") && error.contains("clocks"), "{error}");
    }
}
