//! Secrets in a workload file or an argument appear in no message and in no file, however the key is written.

use crate::util::{Dir, Done, SMALL};

/// No other text of a run contains it.
const SECRET: &str = "hunter2-swordfish";
const SECRET_NUMBER: &str = "918273645546372819";
const KEY: &str = "storage.storage_options.secret_access_key";

#[track_caller]
fn is_silent_about(dir: &Dir, done: &Done, secret: &str) {
    assert!(
        !done.stdout.contains(secret) && !done.stderr.contains(secret),
        "{}\n{}",
        done.stdout,
        done.stderr
    );
    for (name, bytes) in dir.tree(".") {
        let holds = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!holds || name == "w.yaml", "{name}");
    }
}

/// The small workload with these lines below `storage`.
fn with_storage(lines: &str) -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", format!("{SMALL}\nstorage:\n{lines}\n"));
    dir
}

#[test]
fn a_secret_that_is_accepted_appears_nowhere() {
    let dir = with_storage(&format!(
        "  storage_options:\n    access_key_id: {SECRET}\n    secret_access_key: {SECRET}\n    region: eu"
    ));
    for command in [
        &["plan", "w.yaml"][..],
        &["plan", "w.yaml", "--json"],
        &["run", "w.yaml", "--store", "null", "--no-calibration"],
        &["run", "w.yaml", "--store", "null", "--no-calibration", "--json"],
        &["capacity", "w.yaml", "--store", "null", "--up-to", "1"],
        &["stall", "w.yaml", "--store", "null", "--steps", "25"],
    ] {
        is_silent_about(&dir, &dir.feedline(command).run(), SECRET);
    }
    let done = dir.feedline(&["run", "w.yaml", "--store", "null", "--no-calibration"]).run().ran();
    assert!(done.stderr.contains("secret_access_key' at w.yaml:"), "the key is named: {}", done.stderr);
    assert!(dir.results().len() > 1, "there are results to look into");
}

#[test]
fn a_secret_in_an_argument_appears_nowhere() {
    let dir = Dir::small();
    let set = format!("{KEY}={SECRET}");
    let run =
        dir.feedline(&["run", "w.yaml", "--store", "null", "--no-calibration", "--set", &set]).run().ran();
    assert!(run.stderr.contains(&format!("at --set {KEY}=***")), "the argument is named: {}", run.stderr);
    is_silent_about(&dir, &run, SECRET);
    for odd in [
        format!("{KEY}='it\\'{SECRET}'"),
        format!("storage.storage_options={{secret_access_key:a\\,{SECRET},region:eu}}"),
        format!("storage.storage_options.endpoint_url=http://user:{SECRET}@host"),
    ] {
        let args = ["run", "w.yaml", "--store", "null", "--no-calibration", "--set", &odd];
        is_silent_about(&dir, &dir.feedline(&args).run().ran(), SECRET);
    }
    let elsewhere = format!("s3://user:{SECRET}@host/b");
    for args in [&["plan", "w.yaml", "--data-dir", &elsewhere][..], &["catalog", &elsewhere]] {
        is_silent_about(&dir, &dir.feedline(args).run(), SECRET);
    }
    // The message that the data set is missing repeats the arguments.
    let missing = dir.feedline(&["run", "w.yaml", "--set", &set]).run().exits(3).says("create it with:");
    is_silent_about(&dir, &missing, SECRET);
    let sweep = ["sweep", "w.yaml", "--store", "null", "--over", "reader.read_threads=1,2", "--repeat", "1"];
    let swept = dir.feedline(&sweep).args(&["--output", "s", "--set", &set]).run().ran();
    assert!(dir.read("s/cells.jsonl").contains(&format!("{KEY}=***")));
    is_silent_about(&dir, &swept, SECRET);
    let over = ["sweep", "w.yaml", "--store", "null", "--over", &format!("{KEY}={SECRET},b")];
    is_silent_about(&dir, &dir.feedline(&over).run().exits(2).says("is a secret"), SECRET);
}

/// Messages quote the line of a mistake. The mistake may be in the key, in the value, or beside them.
#[test]
fn a_mistake_beside_a_secret_does_not_show_it() {
    for (lines, says) in [
        (format!("  storage_options:\n    secret_acces_key: {SECRET}"), "unknown key"),
        (format!("  secret_access_key: {SECRET}"), "in the wrong place"),
        (format!("  storage_options: {{secret_access_key: {SECRET}, regoin: eu}}"), "unknown key"),
        (format!("  storage_options: {{secret_access_key: {SECRET}"), "YAML syntax"),
        (format!("  storage_options:\n    secret_access_key: \"{SECRET}"), "YAML syntax"),
        (format!("  storage_options:\n    secret_access_key: [{SECRET}]"), "must be a text"),
        (format!("  storage_options:\n    secret_access_key:\n      - {SECRET}"), "must be a text"),
        (format!("  storage_options:\n    secret_access_key:\n    - {SECRET}"), "must be a text"),
        (format!("  storage_options: {{secret_access_key: 'it''{SECRET}', regoin: eu}}"), "unknown key"),
        (format!("  storage_options: {{secret_access_key: {{a: {{b: c}}, d: {SECRET}}}}}"), "must be a text"),
        (format!("  storage_options:\n    secret_access_key:{SECRET}"), "is a section and needs keys"),
        (format!("  storage_options:\n    secret_access_key {SECRET}"), "is a section and needs keys"),
        (format!("  storage_options:\n    acces_key_id: {SECRET}"), "unknown key"),
        (format!("  storage_root: s3://user:{SECRET}@host/b\n  storage_typ: local_fs"), "unknown key"),
        (format!("  storage_options: {{endpont_url: 'http://user:{SECRET}@host'}}"), "unknown key"),
        (
            format!("  storage_options:\n    secret_access_key: {SECRET}\n    secret_access_key: {SECRET}"),
            "twice",
        ),
    ] {
        let dir = with_storage(&lines);
        let done = dir.feedline(&["plan", "w.yaml"]).run().exits(2).says(says);
        is_silent_about(&dir, &done, SECRET);
    }
    let dir = with_storage(&format!("  storage_options:\n    secret_access_key:\n      {SECRET_NUMBER}"));
    is_silent_about(
        &dir,
        &dir.feedline(&["plan", "w.yaml"]).run().exits(2).says("must be a text"),
        SECRET_NUMBER,
    );
}

#[test]
fn a_mistake_in_an_argument_does_not_show_a_secret() {
    let dir = with_storage(&format!("  storage_options:\n    secret_access_key: {SECRET}"));
    for (set, says) in [
        (format!("{KEY}={SECRET_NUMBER}"), "must be a text"),
        (format!("{KEY}=[{SECRET_NUMBER}"), "cannot be read"),
        (format!("{KEY}:{SECRET_NUMBER}"), "is not a valid key"),
        (format!("{KEY} {SECRET_NUMBER}"), "is not a valid key"),
        (format!("storage.storage_options.acces_key_id={SECRET_NUMBER}"), "unknown key"),
        (format!("storage.storage_options={{secret_acces_key: {SECRET_NUMBER}}}"), "unknown key"),
        (format!("~{KEY}={SECRET_NUMBER}"), "has another value"),
    ] {
        let done = dir.feedline(&["plan", "w.yaml", "--set", &set]).run().exits(2).says(says);
        is_silent_about(&dir, &done, SECRET_NUMBER);
        is_silent_about(&dir, &done, SECRET);
    }
}
