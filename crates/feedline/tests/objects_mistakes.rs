//! Object stores that cannot be used: missing buckets, wrong keys, other regions, clocks, endpoints that are no object
//! store, certificates. Each has its own message and the documented exit code, and no output has a secret.

use std::net::TcpListener;
use std::time::Duration;

use crate::objects::proxy::{Proxy, Rule, Trouble};
use crate::objects::servers::{Place, Scheme, variable};
use crate::util::{Dir, Done};

const LIMIT: Duration = Duration::from_secs(60);

/// What no output may have.
fn secrets() -> Vec<String> {
    let mut all = vec!["hunter2-swordfish".to_owned()];
    all.extend(["S3_SECRET", "S3_READER_SECRET", "AZURE_KEY"].map(variable));
    all
}

#[track_caller]
fn has_no_secret(dir: &Dir, done: &Done) {
    for secret in secrets() {
        let shown = [&done.stdout, &done.stderr].iter().any(|text| text.contains(&secret));
        assert!(!shown, "{}\n{}", done.stdout, done.stderr);
        for (name, bytes) in dir.tree(".") {
            let holds = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!holds, "{name}");
        }
    }
}

/// A command at a place with other variables. It ends with one error, which has these texts, and no secret.
#[track_caller]
fn refused(dir: &Dir, place: &Place, args: &[&str], variables: &[(&str, &str)], code: i32, says: &[&str]) {
    let command =
        place.with(dir.feedline(args).set(&["storage.retry_attempts=2", "storage.silence_timeout=2"]));
    let command = variables.iter().fold(command, |command, (name, value)| command.env(name, value));
    let done = command.start().wait_for(LIMIT).exits(code).one_error();
    let done = says.iter().fold(done, |done, text| done.says(text));
    has_no_secret(dir, &done);
    assert!(dir.results().is_empty(), "a result of what did not run");
}

/// The commands that access a data set, and their arguments up to its location.
const GENERATE: [&str; 4] = ["generate", "w.yaml", "--quiet", "--data-dir"];
const RUN: [&str; 5] = ["run", "w.yaml", "--quiet", "--no-calibration", "--data-dir"];

/// Both commands are refused with the same texts.
#[track_caller]
fn both_refused(dir: &Dir, place: &Place, url: &str, variables: &[(&str, &str)], says: &[&str]) {
    refused(dir, place, &[&RUN[..], &[url]].concat(), variables, 3, says);
    refused(dir, place, &[&GENERATE[..], &[url]].concat(), variables, 3, says);
}

/// A data set that nothing is wrong with.
fn with_data() -> (Dir, Place, String) {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    place.with(dir.feedline(&GENERATE).args(&[&url])).run().exits(0);
    (dir, place, url)
}

#[test]
fn a_bucket_that_does_not_exist() {
    for scheme in [Scheme::S3, Scheme::Azure, Scheme::Google] {
        let (dir, place) = (Dir::small(), Place::new(scheme));
        let missing = Place { bucket: "feedline-no-such-bucket".to_owned(), ..place };
        let says =
            ["the bucket does not exist: create it, or correct the URL", "feedline-no-such-bucket", "404"];
        both_refused(&dir, &missing, &missing.url("data"), &[], &says);
    }
}

#[test]
fn a_data_set_that_does_not_exist() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("two words");
    let says =
        ["the data set is missing", &format!("feedline generate w.yaml --data-dir '{url}'"), "--generate"];
    refused(&dir, &place, &[&RUN[..], &[&url]].concat(), &[], 3, &says);
}

#[test]
fn a_user_without_permission_to_write() {
    let (dir, place, url) = with_data();
    let [key, secret] = ["S3_READER_KEY", "S3_READER_SECRET"].map(variable);
    let reader = [("AWS_ACCESS_KEY_ID", key.as_str()), ("AWS_SECRET_ACCESS_KEY", secret.as_str())];
    let other = place.url("other");
    let says = [other.as_str(), "403 AccessDenied; this account may not do that: check its permissions"];
    refused(&dir, &place, &[&GENERATE[..], &[&other]].concat(), &reader, 4, &says);
    // What exists can be read, and a complete data set needs no write.
    for args in [&GENERATE[..], &RUN] {
        let command = place.with(dir.feedline(args).args(&[&url]));
        let done = reader.iter().fold(command, |command, (name, value)| command.env(name, value)).run();
        has_no_secret(&dir, &done.ran());
    }
}

#[test]
fn keys_that_the_server_does_not_accept() {
    let (dir, place, url) = with_data();
    let wrong = [("AWS_SECRET_ACCESS_KEY", "hunter2-swordfish")];
    both_refused(
        &dir,
        &place,
        &url,
        &wrong,
        &["SignatureDoesNotMatch", "the secret does not match the access key"],
    );
    let unknown = [("AWS_ACCESS_KEY_ID", "UNKNOWN")];
    both_refused(
        &dir,
        &place,
        &url,
        &unknown,
        &["InvalidAccessKeyId", "the server does not know the access key"],
    );
    let (dir, place) = (Dir::small(), Place::new(Scheme::Azure));
    // A key is base64 text; any other one is wrong.
    let wrong = [("AZURE_STORAGE_ACCOUNT_KEY", "aHVudGVyMi1zd29yZGZpc2g=")];
    // The emulator's word for a wrong key. The service itself has another one.
    let says = ["403 AuthorizationFailure", "the key is wrong, or this account may not do that"];
    both_refused(&dir, &place, &place.url("data"), &wrong, &says);
    let failed = Rule::new(Trouble::Error(403, "AuthenticationFailed"));
    let proxy = Proxy::to(&place.endpoint).rule(failed).start();
    let says =
        ["403 AuthenticationFailed", "the key or the signature is wrong or has expired, or the clocks"];
    both_refused(&dir, &place.through(&proxy), &place.url("data"), &[], &says);
}

#[test]
fn regions_and_clocks() {
    let (dir, place, url) = with_data();
    for (trouble, says) in [
        (
            Trouble::Redirect,
            ["PermanentRedirect", "the bucket is in another region: set storage.storage_options.region"],
        ),
        (
            Trouble::Error(400, "AuthorizationHeaderMalformed"),
            ["AuthorizationHeaderMalformed", "another region"],
        ),
        (
            Trouble::Error(403, "RequestTimeTooSkewed"),
            [
                "RequestTimeTooSkewed",
                "the clocks of this host and the server differ too much: set this host's",
            ],
        ),
        (Trouble::Error(400, "ExpiredToken"), ["ExpiredToken", "the credentials have expired: get new ones"]),
        (
            Trouble::Error(400, "InvalidToken"),
            ["InvalidToken", "the server does not accept the session token: check that it belongs"],
        ),
    ] {
        let proxy = Proxy::to(&place.endpoint).rule(Rule::new(trouble)).start();
        both_refused(&dir, &place.through(&proxy), &url, &[], &says);
        assert!(proxy.requests() < 20, "{:?}", proxy.log());
    }
}

#[test]
fn an_endpoint_that_is_no_object_store() {
    let (dir, place, url) = with_data();
    let is_this = "object store";
    for (trouble, says) in [
        (Trouble::WebPage, is_this),
        (Trouble::Garbage, "the answer is not HTTP"),
        (Trouble::Status(404), "404 NoSuchBucket"),
        (Trouble::Status(405), "405"),
        (Trouble::Close, "(2 attempts)"),
        (Trouble::Stall, "no byte for 2.00 s (2 attempts)"),
    ] {
        let proxy = Proxy::to(&place.endpoint).rule(Rule::new(trouble)).start();
        both_refused(&dir, &place.through(&proxy), &url, &[], &[says]);
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{closed}");
    let says = ["Connection refused", &closed.to_string(), "(2 attempts)"];
    both_refused(&dir, &Place { endpoint, ..place.clone() }, &url, &[], &says);
    let nowhere = Place { endpoint: "http://no-such-host.invalid:9000".to_owned(), ..place.clone() };
    both_refused(&dir, &nowhere, &url, &[], &["cannot find the address of the host no-such-host.invalid"]);
    for (endpoint, says) in [
        ("ftp://127.0.0.1", "the address in AWS_ENDPOINT_URL has a scheme other than http and https"),
        ("http://me:hunter2-swordfish@127.0.0.1", "the address in AWS_ENDPOINT_URL has a user or a password"),
        ("http://127.0.0.1:port", "the endpoint 'http://127.0.0.1:port' is not a URL"),
    ] {
        let wrong = Place { endpoint: endpoint.to_owned(), ..place.clone() };
        both_refused(&dir, &wrong, &url, &[], &[says]);
    }
}

#[test]
fn certificates_and_encryption() {
    let (dir, place, url) = with_data();
    let secure = Place { endpoint: variable("S3_TLS"), ..place.clone() };
    let ca = variable("CA");
    let trusted = [("AWS_CA_BUNDLE", ca.as_str())];
    let not_trusted = ["its certificate is not trusted", "storage.ca_bundle or AWS_CA_BUNDLE"];
    both_refused(&dir, &secure, &url, &[], &not_trusted);
    let other_name = Place { endpoint: secure.endpoint.replace("127.0.0.1", "localhost"), ..place.clone() };
    both_refused(&dir, &other_name, &url, &trusted, &["cannot use TLS with localhost", "certificate"]);
    let no_tls = Place { endpoint: place.endpoint.replace("http://", "https://"), ..place.clone() };
    both_refused(&dir, &no_tls, &url, &trusted, &["it does not speak TLS; is the endpoint an http:// one?"]);
    let plain = Place { endpoint: secure.endpoint.replace("https://", "http://"), ..place.clone() };
    both_refused(&dir, &plain, &url, &[], &["whether it needs http:// or https://"]);
    let missing = [("AWS_CA_BUNDLE", "no-such-file.pem")];
    both_refused(&dir, &secure, &url, &missing, &["no-such-file.pem"]);
    dir.write("empty.pem", "no certificate");
    both_refused(&dir, &secure, &url, &[("AWS_CA_BUNDLE", "empty.pem")], &["empty.pem"]);
    // With the right authority it is a server like any other.
    let command = secure.with(dir.feedline(&RUN).args(&[&url])).env("AWS_CA_BUNDLE", &ca);
    has_no_secret(&dir, &command.run().ran());
}

#[test]
fn locations_that_are_none() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    for command in [&RUN[..], &GENERATE] {
        let refused = |location: &str, more: &[&str], code: i32, says: &[&str]| {
            refused(&dir, &place, &[command, &[location], more].concat(), &[], code, says);
        };
        refused("s3://", &[], 2, &["s3:// names no bucket; write s3://BUCKET/PREFIX"]);
        refused("s3:///prefix", &[], 2, &["names no bucket; write s3://BUCKET/PREFIX"]);
        refused("gs://", &[], 2, &["gs:// names no bucket; write gs://BUCKET/PREFIX"]);
        refused(
            "hdfs://bucket/data",
            &[],
            3,
            &["hdfs:// is not supported", "use a folder, s3://, gs:// or az://"],
        );
        refused("s3://me:hunter2-swordfish@host/b", &[], 3, &["@host/b contains credentials"]);
        let named = ["--set", "storage.store=posix"];
        let says = ["the backend posix reads files in folders", "use --store s3, or leave out"];
        refused(&url, &named, 2, &says);
        let says = ["the backend s3 reads objects, but data is a folder", "such as s3://BUCKET/PREFIX"];
        refused("data", &["--set", "storage.store=s3"], 2, &says);
        refused(
            &url,
            &["--set", "storage.store=gs"],
            2,
            &["the backend gs cannot read s3://", "use --store s3"],
        );
    }
    let posix = [&RUN[..], &[&url, "--store", "posix"]].concat();
    refused(&dir, &place, &posix, &[], 2, &["the backend posix reads files in folders, but s3://"]);
    let objects = [&RUN[..], &["data", "--store", "s3"]].concat();
    refused(&dir, &place, &objects, &[], 2, &["the backend s3 reads objects, but data is a folder"]);
    let results = [&RUN[..], &[&url, "--results-dir", "s3://bucket/results"]].concat();
    refused(
        &dir,
        &place,
        &results,
        &[],
        3,
        &["s3://bucket/results is in an object store, but a folder is needed"],
    );
    let made: Vec<String> = dir.listing().into_iter().filter(|line| !line.starts_with("w.yaml")).collect();
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn names_that_cannot_be_keys() {
    let (dir, place) = (Dir::small(), Place::s3());
    let twice = format!("{}//data", place.url("a"));
    refused(
        &dir,
        &place,
        &[&GENERATE[..], &[&twice]].concat(),
        &[],
        4,
        &["an empty part", "between slashes"],
    );
    // The server limits parts of keys.
    let long = place.url(&"x".repeat(1024));
    let said =
        place.with(dir.feedline(&GENERATE).args(&[&long])).start().wait_for(LIMIT).exits(4).one_error();
    has_no_secret(&dir, &said.says("KeyTooLong"));
    let listed = place.boto(&dir, &["list", &place.key("")]).exits(0).stdout;
    assert_eq!(listed, "", "nothing was written");
}

#[test]
fn with_json_an_error_is_an_object_with_a_remedy() {
    let (dir, place) = (Dir::small(), Place::s3());
    let missing = Place { bucket: "feedline-no-such-bucket".to_owned(), ..place };
    let url = missing.url("data");
    for command in [&RUN[..], &GENERATE] {
        let args = [command, &[&url, "--json"]].concat();
        let done = missing.with(dir.feedline(&args)).run().exits(3).one_error();
        let object = done.json();
        assert_eq!(object["exit_code"], 3);
        assert!(object["error"].as_str().unwrap().contains("NoSuchBucket"), "{object}");
    }
}

#[test]
fn a_plan_needs_no_server() {
    let (dir, place) = (Dir::small(), Place::s3());
    let closed = Place { endpoint: "http://127.0.0.1:1".to_owned(), ..place };
    let url = closed.url("data");
    for args in
        [&["plan", "w.yaml", "--data-dir", &url][..], &["plan", "w.yaml", "--json", "--data-dir", &url]]
    {
        let done = closed.with(dir.feedline(args)).start().wait_for(LIMIT).exits(0);
        has_no_secret(&dir, &done.prints("s3"));
    }
}

/// How often a text is in the messages of a command.
#[track_caller]
fn says_once(done: &Done, text: &str) {
    let times = done.stderr.matches(text).count();
    assert_eq!(times, 1, "{text}\n{}", done.stderr);
}

#[test]
fn what_is_not_used_is_reported_once_by_every_command() {
    let (dir, place, url) = with_data();
    let unused = |command| place.with(command).env("AWS_DEFAULT_REGION", "eu-west-9");
    let text = "AWS_DEFAULT_REGION is not used: AWS_REGION is set";
    let objects = ["00", "01"].map(|file| format!("{url}/train/img_{file}_of_24.npz"));
    for args in [
        &["run", "w.yaml", "--no-calibration", "--data-dir", &url][..],
        &["generate", "w.yaml", "--data-dir", &url],
        &["catalog", &url, "--output", "list.catalog"],
        &["inspect", &objects[0], &objects[1]],
    ] {
        says_once(&unused(dir.feedline(args)).run().exits(0), text);
    }
    let dlio = [
        "dlio",
        "workload=default",
        "++workload.workflow.generate_data=True",
        "++workload.workflow.train=False",
    ];
    let sets = [
        format!("++workload.dataset.data_folder={}", place.url("dlio")),
        "++workload.dataset.num_files_train=2".to_owned(),
        "++workload.storage.storage_options.region=us-east-1".to_owned(),
        "hydra.run.dir=out".to_owned(),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let done = unused(dir.feedline(&[&dlio[..], &sets].concat())).run().exits(0);
    says_once(&done, "AWS_DEFAULT_REGION is not used: storage.storage_options.region is given");
}

#[test]
fn a_public_bucket_needs_no_credentials() {
    let dir = Dir::small();
    let google = Place::new(Scheme::Google);
    google.with(dir.feedline(&GENERATE).args(&[&google.url("data")])).run().exits(0);
    // The stand-in for Google speaks S3, too, and asks for no signature.
    let endpoint = format!("storage.storage_options.endpoint_url='{}'", google.endpoint);
    let anonymous = ["--set", "storage.anonymous=true", "--set", &endpoint];
    for url in [google.url("data"), google.url("data").replace("gs://", "s3://")] {
        let listed = dir.feedline(&["catalog", &url, "--json", "--output", "list.catalog"]).args(&anonymous);
        assert_eq!(listed.run().exits(0).silent().json()["files"], 24, "{url}");
        let object = format!("{url}/train/img_00_of_24.npz");
        dir.feedline(&["inspect", &object]).args(&anonymous).run().exits(0).silent().prints("npz");
        std::fs::remove_file(dir.path("list.catalog")).unwrap();
    }
    // A server that asks for signatures gets none, although there are keys.
    let private = Place::s3();
    let url = private.url("data");
    for variable in [None, Some(("AWS_NO_SIGN_REQUEST", "YES"))] {
        let args = ["catalog", &url, "--output", "list.catalog"];
        let command = private.with(dir.feedline(&args));
        let (command, why) = match variable {
            Some((name, value)) => (command.env(name, value), "AWS_NO_SIGN_REQUEST is set"),
            None => (command.args(&anonymous[..2]), "storage.anonymous is true"),
        };
        let done = command.run().exits(3).says("403");
        says_once(&done, &format!("AWS_ACCESS_KEY_ID is not used: {why}"));
        has_no_secret(&dir, &done);
    }
}

#[test]
fn commands_without_a_workload_take_settings_of_object_stores_only() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("data")).unwrap();
    dir.write("data/x.npz", "x");
    for command in [["catalog", "data"], ["inspect", "data/x.npz"]] {
        for key in [
            "reader.read_threads=2",
            "storage.storage_root=x",
            "storage.store=posix",
            "account_key=hunter2-swordfish",
        ] {
            let done = dir.feedline(&command).args(&["--set", key]).run().exits(2).one_error();
            let name = key.split('=').next().unwrap();
            has_no_secret(&dir, &done.says(&format!("--set {name}")).says("storage.anonymous"));
        }
        let unknown = dir.feedline(&command).args(&["--set", "storage.anonymus=true"]).run().exits(2);
        unknown.says("did you mean 'anonymous'?");
    }
    // For a folder, they have no effect.
    let done = dir.feedline(&["catalog", "data", "--set", "storage.anonymous=true"]).run().exits(0);
    says_once(&done, "'storage.anonymous' at --set storage.anonymous=true has no effect");
}

#[test]
fn keys_for_names_beside_a_complete_location_are_reported() {
    let (dir, place, url) = with_data();
    let sets = ["storage.storage_options.uri_scheme=gs", "storage.storage_options.use_full_object_uri=true"];
    let done =
        place.with(dir.feedline(&["generate", "w.yaml", "--data-dir", &url]).set(&sets)).run().exits(0);
    for key in ["uri_scheme", "use_full_object_uri"] {
        says_once(&done, &format!("'storage.storage_options.{key}' at"));
    }
    done.says("the location of the data is given as a whole");
}

/// Checkpoints of a workload whose storage type is that of an object store.
const CHECKPOINTS: &str = "
workflow: {train: false, checkpoint: true}
storage: {storage_type: s3, storage_root: no-such-bucket}
model: {name: m, model_size_bytes: 100000}
checkpoint: {checkpoint_folder: ckpt/m, fsync: true, num_checkpoints_write: 1, num_checkpoints_read: 1,
             time_between_checkpoints: 0}
";

#[test]
fn the_scheme_of_checkpoint_folders_is_known_or_refused() {
    let dir = Dir::new();
    dir.write("w.yaml", CHECKPOINTS);
    let variable = "MLPSTORAGE_CHECKPOINT_URI_SCHEME";
    let run = |scheme: &str, more: &[&str]| {
        let args = [&["run", "w.yaml", "--no-calibration", "--set", "storage.anonymous=true"], more].concat();
        dir.feedline(&args).env(variable, scheme).run()
    };
    let done = run("nfs", &[]).exits(2).one_error().says("MLPSTORAGE_CHECKPOINT_URI_SCHEME is 'nfs'");
    done.says("set it to s3, gs, az, file or direct");
    for (scheme, store) in [("file", "posix"), ("direct", "direct")] {
        let done = run(scheme, &["--json"]).ran();
        assert!(!done.stderr.contains(variable), "{}", done.stderr);
        assert!(dir.path("ckpt/m").is_dir(), "a local folder");
        let plan = dir.feedline(&["plan", "w.yaml", "--set", "storage.anonymous=true"]).env(variable, scheme);
        plan.run().exits(0).prints(store);
        std::fs::remove_dir_all(dir.path("ckpt")).unwrap();
    }
    let local = ["--checkpoint-dir", "./here", "--set", "storage.storage_type=local_fs"];
    says_once(
        &run("gs", &local).ran(),
        &format!("{variable} is not used: storage.storage_type is not that of"),
    );
    let absolute = dir.path("here").display().to_string();
    let done = run("gs", &["--checkpoint-dir", &absolute]).ran();
    says_once(
        &done,
        &format!("{variable} is not used: checkpoint.checkpoint_folder says itself where it is"),
    );
}
