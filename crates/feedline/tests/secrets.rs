//! Secrets in a workload file or an argument appear in no message and in no file, however the key is written.

use crate::objects::proxy::{Proxy, Rule, Trouble};
use crate::objects::servers::{Place, Scheme};
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
        assert!(!holds || matches!(name.as_str(), "w.yaml" | "aws" | "conf/workload/w.yaml"), "{name}");
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
    ] {
        let args = ["run", "w.yaml", "--store", "null", "--no-calibration", "--set", &odd];
        is_silent_about(&dir, &dir.feedline(&args).run().ran(), SECRET);
    }
    for address in [format!("http://user:{SECRET}@host"), format!("https://host/?sv=1&sig={SECRET}")] {
        let set = format!("storage.storage_options.endpoint_url='{address}'");
        let refused = dir.feedline(&["run", "w.yaml", "--store", "null", "--set", &set]).run().exits(2);
        is_silent_about(&dir, &refused.says("endpoint_url' has "), SECRET);
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

/// A server that refuses every connection.
const CLOSED_PORT: &str = "http://127.0.0.1:1";

/// The small workload in an object store, with secrets in every key that can have one.
fn in_object_store(place: &str) -> Dir {
    let dir = with_storage(&format!(
        "  storage_root: {place}\n  endpoint_uris: ['{CLOSED_PORT}']\n  account: acct\n  account_key: {SECRET}\n  \
         sas_token: sv=1&sig={SECRET}\n  proxy: http://user:{SECRET}@127.0.0.1:1\n  retry_attempts: 1\n  \
         retry_deadline: 1s\n  storage_options:\n    access_key_id: {SECRET}\n    secret_access_key: {SECRET}\n    \
         session_token: {SECRET}\n    connection_string: AccountName=acct;AccountKey={SECRET}"
    ));
    dir.write("aws", format!("[default]\naws_access_key_id={SECRET}\naws_secret_access_key={SECRET}\n"));
    dir
}

/// Secrets in the environment, by all names that are read.
fn environment() -> Vec<(&'static str, String)> {
    let plain = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GCS_ACCESS_KEY_ID",
        "GCS_SECRET_ACCESS_KEY",
        "GOOGLE_BEARER_TOKEN",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_CLIENT_SECRET",
    ];
    let mut all: Vec<(&'static str, String)> = plain.map(|name| (name, SECRET.to_owned())).into();
    all.extend([
        ("AZURE_CLIENT_ID", "app".to_owned()),
        ("AZURE_TENANT_ID", "tenant".to_owned()),
        ("AZURE_STORAGE_SAS_TOKEN", format!("?sv=1&sig={SECRET}")),
        ("AZURE_STORAGE_CONNECTION_STRING", format!("AccountName=acct;AccountKey={SECRET}")),
        ("HTTP_PROXY", format!("http://user:{SECRET}@127.0.0.1:1")),
        ("HTTPS_PROXY", format!("http://user:{SECRET}@127.0.0.1:1")),
        ("AWS_SHARED_CREDENTIALS_FILE", "aws".to_owned()),
    ]);
    all
}

/// Every command with an object store whose server cannot be reached. It may fail, but not show a secret.
#[test]
fn no_command_shows_a_secret_of_an_object_store() {
    let commands: &[&[&str]] = &[
        &["plan", "w.yaml"],
        &["plan", "w.yaml", "--json"],
        &["run", "w.yaml", "--no-calibration"],
        &["run", "w.yaml", "--no-calibration", "--json"],
        &["run", "w.yaml", "--store", "null", "--no-calibration"],
        &["run", "w.yaml", "--generate", "--set", "workflow.checkpoint=true"],
        &["generate", "w.yaml"],
        &["sweep", "w.yaml", "--over", "storage.requests_in_flight=1,2", "--repeat", "1", "--output", "s"],
        &["capacity", "w.yaml", "--up-to", "1"],
        &["stall", "w.yaml", "--steps", "25"],
        &["catalog", "s3://bucket/x", "--output", "c"],
        &["inspect", "s3://bucket/x/file.npz"],
        &["validate", "feedline-results"],
        &["compare", "feedline-results", "feedline-results"],
        &["report", "feedline-results", "-o", "page.html"],
        &["trace", "t.pfw.gz"],
        &["mlperf", "check", "feedline-results"],
        // A job's own output is not changed, so this one prints nothing of the file.
        &["audit", "--", "cksum", "w.yaml"],
        &["infer", "feedline-results"],
        &[
            "dlio",
            "workload=default",
            "++workload.storage.storage_type=s3",
            "++workload.storage.storage_root=bucket",
        ],
        &["doctor"],
        &["doctor", "--json"],
        &["docs"],
        &["workloads"],
        &["completions", "bash"],
    ];
    let dir = Dir::new();
    let help = dir.feedline(&["--help"]).run().exits(0).stdout;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // The description of a command may continue on a line of its own, further to the right.
    let names: Vec<&str> = listed
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.len() > 10, "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(commands.iter().any(|command| command[0] == name), "{name} is not tried");
    }
    for place in ["s3://bucket/x", "gs://bucket/x", "az://container/x"] {
        let dir = in_object_store(place);
        for command in commands {
            let mut started = dir.feedline(command);
            for (name, value) in environment() {
                started = started.env(name, value);
            }
            let done = started.run();
            is_silent_about(&dir, &done, SECRET);
            assert!(!done.stderr.contains("panicked"), "{command:?}: {}", done.stderr);
        }
    }
}

/// The words of a job's command, and of the programs that it starts.
#[test]
fn an_audit_hides_the_secrets_of_the_job() {
    let dir = Dir::new();
    dir.write("train.bin", "data");
    let child = format!("cat train.bin --token {SECRET} https://user:{SECRET}@host 2>/dev/null; true");
    dir.write("job.sh", format!("sh -c 'exec cat train.bin' --password={SECRET} >/dev/null; {child}"));
    let job = ["audit", "--", "sh", "job.sh", "--key", SECRET, &format!("--hf_auth={SECRET}")];
    let done = dir.feedline(&job).run().exits(0);
    dir.write("job.sh", "");
    is_silent_about(&dir, &done, SECRET);
    assert_eq!(dir.results().len(), 1, "there is a result to look into");
}

/// The files that describe a job of Hydra, and what is printed instead of running it.
#[test]
fn the_configuration_of_a_dlio_job_has_no_secret() {
    let dir = Dir::new();
    let storage = format!("storage:\n  account_key: {SECRET}\n  storage_root: ./\n");
    dir.write("conf/workload/w.yaml", format!("{SMALL}{storage}"));
    let options = "++workload.storage.storage_options";
    let arguments = [
        "dlio",
        "workload=w",
        "--config-dir=conf",
        "++hydra.run.dir=leaf",
        &format!("{options}.secret_access_key={SECRET}"),
        &format!("{options}.access_key_id=${{oc.env:NO_SUCH_KEY,{SECRET}}}"),
        &format!("{options}.session_token=${{oc.env:MY_TOKEN}}"),
    ];
    for more in [
        &["--cfg", "job"][..],
        &["--cfg", "job", "--resolve"],
        &["--cfg", "all", "--package", "workload.storage"],
        &["--cfg", "all", "--package", "workload.storage.account_key"],
        &["--info", "all"],
        &["--help"],
        &["++workload.workflow.generate_data=True"],
    ] {
        let done = dir.feedline(&arguments).args(more).env("MY_TOKEN", SECRET).run().exits(0);
        is_silent_about(&dir, &done, SECRET);
    }
    let config = dir.read("leaf/.hydra/config.yaml");
    for line in [
        "account_key: (secret)",
        "secret_access_key: (secret)",
        "access_key_id: (secret)",
        "session_token: ${oc.env:MY_TOKEN}",
    ] {
        assert!(config.contains(line), "{line}:\n{config}");
    }
    let overrides = dir.read("leaf/.hydra/overrides.yaml");
    assert!(overrides.contains("secret_access_key=****"), "{overrides}");
    assert!(dir.path("leaf/summary.json").is_file(), "the job ran with what is hidden");
}

/// A location is shown in messages, so credentials in it are refused and hidden.
#[test]
fn credentials_in_a_location_are_refused_and_hidden() {
    for place in [
        format!("s3://AKIA:{SECRET}@bucket/x"),
        format!("s3://AKIA:a/{SECRET}@bucket/x"),
        format!("az://container/x?sv=1&sig={SECRET}"),
        format!("s3://bucket/x?X-Amz-Credential=a&X-Amz-Signature={SECRET}"),
        format!("https://acct.blob.core.windows.net/c?sv=1&sig={SECRET}"),
    ] {
        for command in [
            &["run", "w.yaml", "--data-dir"][..],
            &["generate", "w.yaml", "--data-dir"],
            &["plan", "w.yaml", "--data-dir"],
            &["run", "w.yaml", "--checkpoint-dir"],
            &["catalog"],
            &["inspect"],
        ] {
            let dir = Dir::small();
            let done = dir.feedline(command).args(&[&place]).run();
            is_silent_about(&dir, &done, SECRET);
            // A plan needs no place, and no checkpoint is saved.
            let needs_place = command[0] != "plan" && !command.contains(&"--checkpoint-dir");
            assert!(
                !needs_place || matches!(done.code(), Some(2 | 3)),
                "{command:?} {place}: {}",
                done.stderr
            );
        }
    }
}

/// Every kind of credentials in requests that are signed with them, answered and refused. What a signature consists of
/// is not shown either.
#[test]
fn no_signed_request_is_shown() {
    let sas = format!("sv=2024-11-04&ss=b&srt=sco&sp=rwl&se=2099-01-01&sig={SECRET}");
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1".to_owned());
    for (scheme, credentials) in [
        (Scheme::Azure, vec![("AZURE_STORAGE_SAS_TOKEN", sas), account.clone()]),
        (Scheme::Azure, vec![("AZURE_STORAGE_TOKEN", SECRET.to_owned()), account]),
        (Scheme::Google, vec![("GOOGLE_BEARER_TOKEN", SECRET.to_owned())]),
        (
            Scheme::Google,
            vec![("GCS_ACCESS_KEY_ID", "GOOG1".to_owned()), ("GCS_SECRET_ACCESS_KEY", SECRET.to_owned())],
        ),
        (
            Scheme::S3,
            vec![
                ("AWS_ACCESS_KEY_ID", "AKIA-swordfish".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
                ("AWS_SESSION_TOKEN", SECRET.to_owned()),
            ],
        ),
    ] {
        for trouble in [
            None,
            Some(Trouble::Error(403, "AccessDenied")),
            Some(Trouble::Status(500)),
            Some(Trouble::Reset),
        ] {
            let place = Place::new(scheme);
            let rule = trouble.into_iter().map(Rule::new);
            let proxy = rule.fold(Proxy::to(&place.endpoint), |setup, rule| setup.rule(rule)).start();
            let dir = Dir::small();
            let place = place.through(&proxy);
            let url = place.url("data");
            for command in [
                &["generate", "w.yaml", "--data-dir", &url][..],
                &["run", "w.yaml", "--no-calibration", "--data-dir", &url],
                &["run", "w.yaml", "--no-calibration", "--json", "--data-dir", &url],
                &["catalog", &url],
                &["inspect", &format!("{url}/train/img_00_of_24.npz")],
            ] {
                let server = place.environment().swap_remove(0);
                let variables = credentials.iter().chain([&server]);
                let done = variables
                    .fold(dir.feedline(command), |command, (name, value)| command.env(name, value))
                    .run();
                for secret in
                    [SECRET, "AKIA-swordfish", "GOOG1", "sig=", "Signature=", "Credential=", "Bearer "]
                {
                    is_silent_about(&dir, &done, secret);
                }
            }
            assert!(proxy.requests() > 5, "{scheme:?}: requests were made: {:?}", proxy.log());
        }
    }
}
