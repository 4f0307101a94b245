//! `feedline --version` and `feedline doctor`: the facts, folders of every kind, limits, and nothing left behind.

#[allow(dead_code, reason = "the build script uses the rest")]
#[path = "../build/version.rs"]
mod build_version;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use self::build_version::Commit;
use crate::cluster::launch::Mpi;
use crate::pty::{PtyCommand, screen};
use crate::util::{Cmd, Dir, Done, relative, walk};

/// The result of a check for the host, or, with a folder, for the first folder.
fn result<'a>(report: &'a Value, name: &str) -> &'a Value {
    let host = report["host"].as_array().unwrap().iter();
    let folders = report["folders"].as_array().unwrap().iter();
    let of_folders = folders.take(1).flat_map(|folder| folder["checks"].as_array().unwrap());
    let mut all = host.chain(of_folders);
    all.find(|result| result["name"] == name).unwrap_or_else(|| panic!("no check {name} in {report:#}"))
}

fn state<'a>(report: &'a Value, name: &str) -> &'a str {
    result(report, name)["state"].as_str().unwrap()
}

#[track_caller]
fn contains(report: &Value, name: &str, key: &str, text: &str) {
    let result = result(report, name);
    assert!(result[key].as_str().is_some_and(|told| told.contains(text)), "{text} in {key} of {result:#}");
}

/// The report for a folder, as JSON, with its exit code.
fn doctor(dir: &Dir, folder: &str, code: i32) -> Value {
    dir.feedline(&["doctor", "--json", folder]).run().exits(code).silent().json()
}

/// A folder on the disk of the build: the one for temporary files may be in memory.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs a script in a mount namespace in which `$0` is the program.
fn in_namespace(dir: &Dir, script: &str) -> Done {
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let args = [namespace, "bash", "-c", script, env!("CARGO_BIN_EXE_feedline")];
    let done = dir.command(Path::new("unshare"), &args).run();
    if done.code() == Some(99) {
        done.fail("this test mounts a file system and needs root or user namespaces");
    }
    done
}

#[test]
fn the_short_version_is_one_line() {
    let dir = Dir::new();
    let text = dir.feedline(&["-V"]).run().exits(0).silent().stdout;
    let rest = text.strip_prefix(concat!("feedline ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    let build = rest.strip_suffix(")\n").unwrap();
    assert!(!build.contains('\n') && !build.is_empty(), "{text}");
    let (commit, date) = build.split_once(' ').unwrap_or((build, "2026-01-01"));
    let is_commit = commit.trim_end_matches("-dirty").chars().all(|c| c.is_ascii_hexdigit());
    assert!(commit == "commit" || (is_commit && commit.len() >= 7), "{text}");
    assert!(commit == "commit" || (date.len() == 10 && date.matches('-').count() == 2), "{text}");
    assert!(dir.listing().is_empty());
}

#[test]
fn the_long_version_has_a_line_for_each_fact() {
    let dir = Dir::new();
    let text = dir.feedline(&["--version"]).run().exits(0).silent().stdout;
    let mut lines = text.lines();
    let short = dir.feedline(&["-V"]).run().exits(0).stdout;
    assert_eq!(lines.next(), short.lines().next());
    let facts: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap()).collect();
    let names: Vec<&str> = facts.iter().map(|(name, _)| *name).collect();
    let expected = [
        "commit",
        "commit date",
        "target",
        "profile",
        "rustc",
        "backends",
        "formats",
        "io_uring",
        "O_DIRECT in this folder",
        "cachestat",
        "MPI library",
        "perf events",
    ];
    assert_eq!(names, expected);
    let fact = |name: &str| facts.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(fact("target").contains("-linux-"), "{text}");
    assert!(fact("rustc").starts_with("1."), "{text}");
    assert_ne!(fact("profile"), "unknown");
    assert!(fact("backends").starts_with("posix, direct") && fact("formats").contains("tfrecord"), "{text}");
    for name in ["io_uring", "O_DIRECT in this folder", "cachestat", "perf events"] {
        assert!(fact(name) == "yes" || fact(name).starts_with("no: "), "{text}");
    }
    // The same facts as in the report.
    let report = doctor(&dir, ".", 0);
    for (name, check) in [
        ("io_uring", "io-uring"),
        ("O_DIRECT in this folder", "o-direct"),
        ("cachestat", "cachestat"),
        ("perf events", "page-faults"),
    ] {
        assert_eq!(fact(name) == "yes", state(&report, check) == "ok", "{name}: {text}{report:#}");
    }
    assert!(dir.listing().is_empty());
}

#[test]
fn dlio_prints_the_version_of_hydra() {
    let dir = Dir::new();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_feedline"), dir.path("dlio_benchmark")).unwrap();
    let done = dir.command(&dir.path("dlio_benchmark"), &["--version"]).run().exits(0).silent();
    let expected = concat!("(feedline ", env!("CARGO_PKG_VERSION"), ")\n");
    assert!(done.stdout.starts_with("Hydra ") && done.stdout.ends_with(expected), "{}", done.stdout);
}

/// Runs git in a folder, with a fixed date.
fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(identity).args(arguments);
    command.env("GIT_COMMITTER_DATE", "2026-01-02T23:30:00-0500").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with one commit.
fn repository() -> Dir {
    let dir = Dir::new();
    dir.write("crates/a/src/lib.rs", "");
    git(&dir.path("."), &["init", "-q"]);
    git(&dir.path("."), &["add", "."]);
    git(&dir.path("."), &["commit", "-q", "-m", "first"]);
    dir
}

fn commit_of(folder: &Path, variables: &[(&str, &str)]) -> Commit {
    build_version::commit(folder, &|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn commit(name: &str, date: &str) -> Commit {
    Commit { name: name.to_owned(), date: date.to_owned() }
}

#[test]
fn the_environment_names_the_commit_where_git_cannot() {
    let dir = Dir::new();
    let root = dir.path(".");
    let name = ("FEEDLINE_COMMIT", "0123abcd");
    for (variables, expected, summary) in [
        (&[][..], commit("unknown", "unknown"), "commit unknown"),
        (&[name], commit("0123abcd", "unknown"), "0123abcd"),
        (
            &[name, ("SOURCE_DATE_EPOCH", "1767312000")],
            commit("0123abcd", "2026-01-02"),
            "0123abcd 2026-01-02",
        ),
        (
            &[name, ("FEEDLINE_COMMIT_DATE", "2026-01-03"), ("SOURCE_DATE_EPOCH", "1767312000")],
            commit("0123abcd", "2026-01-03"),
            "0123abcd 2026-01-03",
        ),
        (&[("SOURCE_DATE_EPOCH", "0")], commit("unknown", "1970-01-01"), "commit unknown, 1970-01-01"),
        // What would break the line is not used.
        (
            &[("FEEDLINE_COMMIT", "a\nb"), ("SOURCE_DATE_EPOCH", "soon")],
            commit("unknown", "unknown"),
            "commit unknown",
        ),
    ] {
        let found = commit_of(&root, variables);
        assert_eq!(build_version::summary(&found), summary);
        assert_eq!(found, expected, "{variables:?}");
    }
    for (second, day) in [
        (951_782_399, "2000-02-28"),
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (4_102_444_799, "2099-12-31"),
    ] {
        assert_eq!(build_version::day(second), day);
    }
}

#[test]
fn git_names_the_commit() {
    let dir = repository();
    let root = dir.path(".");
    let found = commit_of(&root, &[]);
    assert_eq!(found.date, "2026-01-03", "the day in UTC");
    assert!(found.name.len() == 12 && found.name.chars().all(|c| c.is_ascii_hexdigit()), "{found:?}");
    assert_eq!(commit_of(&root, &[("FEEDLINE_COMMIT", "abc")]), commit("abc", "unknown"));
    assert_eq!(commit_of(&root, &[("SOURCE_DATE_EPOCH", "0")]).date, "1970-01-01");
    // A folder below it is none of its commits.
    assert_eq!(commit_of(&dir.path("crates"), &[]).name, "unknown");
    dir.write("crates/a/src/lib.rs", "//! x\n");
    assert_eq!(commit_of(&root, &[]).name, format!("{}-dirty", found.name));
}

#[test]
fn a_new_commit_changes_a_watched_file() {
    let dir = repository();
    git(&dir.path("."), &["worktree", "add", "-q", "-b", "other", "beside"]);
    for (root, packs) in [(dir.path("."), false), (dir.path("beside"), false), (dir.path("."), true)] {
        if packs {
            git(&root, &["pack-refs", "--all"]);
        }
        let watched = build_version::watched(&root);
        assert!(watched.iter().any(|path| path.ends_with("crates/a/src")), "{watched:?}");
        // Cargo would run the build script each time because of a path that does not exist.
        assert!(watched.iter().all(|path| path.exists()), "{watched:?}");
        let content = || watched.iter().map(|path| fs::read(path).unwrap_or_default()).collect::<Vec<_>>();
        let (before, name) = (content(), commit_of(&root, &[]).name);
        git(&root, &["commit", "-q", "--allow-empty", "-m", "next"]);
        assert_ne!(commit_of(&root, &[]).name, name);
        assert_ne!(content(), before, "{watched:?}");
    }
}

#[test]
fn the_profile_is_the_folder_of_the_build() {
    for (folder, profile) in [
        ("/a/target/debug/build/feedline-1/out", "dev"),
        ("/a/target/release/build/feedline-1/out", "release"),
        ("/a/build/x86_64-unknown-linux-gnu/dist/build/feedline-1/out", "dist"),
        ("/a/out", "unknown"),
        ("", "unknown"),
    ] {
        assert_eq!(build_version::profile(folder), profile, "{folder}");
    }
}

#[test]
fn a_folder_on_a_disk_has_what_runs_need() {
    let (dir, disk) = (Dir::new(), disk());
    let path = disk.path().to_str().unwrap();
    let report = doctor(&dir, path, 0);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["folders"][0]["path"], path);
    assert_ne!(report["state"], "missing");
    assert_eq!(state(&report, "folder"), "ok");
    // What the store itself says of this folder.
    let stack = store::StorageStack::of(fs::File::open(path).unwrap(), path).unwrap();
    assert_eq!(state(&report, "file-system") == "ok", stack.untold().is_none(), "{report:#}");
    contains(&report, "file-system", "observed", stack.file_system.name);
    if !stack.file_system.is_memory() {
        assert_eq!(state(&report, "eviction"), "ok", "{report:#}");
        let direct =
            dir.feedline(&["run", "demo", "--store", "direct", "--quiet", "--generate", "--data-dir"]);
        let direct = direct.args(&[path]).set(&SHORT_RUN).run();
        assert_eq!(state(&report, "o-direct") == "ok", direct.code() != Some(3), "{report:#}");
    }
}

/// Settings with which the demo runs in a moment.
const SHORT_RUN: [&str; 5] = [
    "dataset.num_files_train=16",
    "dataset.record_length_bytes=4096",
    "train.epochs=1",
    "train.computation_time=0",
    "reader.batch_size=2",
];

#[test]
fn the_current_folder_and_the_data_folder_are_checked_by_default() {
    let dir = Dir::new();
    let paths = |dir: &Dir| {
        let report = dir.feedline(&["doctor", "--json"]).run().exits(0).silent().json();
        let folders = report["folders"].as_array().unwrap().clone();
        folders.iter().map(|folder| folder["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&dir), ["."]);
    fs::create_dir(dir.path("feedline-data")).unwrap();
    assert_eq!(paths(&dir), [".", "feedline-data"]);
}

#[test]
fn a_folder_in_memory_is_limited() {
    let dir = Dir::new();
    fs::create_dir(dir.path("memory")).unwrap();
    let script = "mount -t tmpfs -o size=8m tmpfs memory || exit 99; exec \"$0\" doctor --json memory";
    let report = in_namespace(&dir, script).exits(0).silent().json();
    for name in ["file-system", "o-direct", "eviction", "read-counter", "free-space"] {
        assert_eq!(state(&report, name), "limited", "{report:#}");
    }
    assert_eq!((state(&report, "folder"), &report["state"]), ("ok", &Value::from("limited")));
    contains(&report, "file-system", "observed", "tmpfs on ");
    contains(&report, "file-system", "means", "tmpfs keeps files in memory");
    contains(&report, "o-direct", "remedy", "--store posix");
    contains(&report, "free-space", "observed", "MiB free");
}

#[test]
fn a_folder_on_an_overlay_is_limited() {
    let dir = Dir::new();
    fs::create_dir(dir.path("m")).unwrap();
    let script = "mount -t tmpfs tmpfs m && mkdir m/lower m/upper m/work m/all || exit 99\n\
                  mount -t overlay overlay -o lowerdir=m/lower,upperdir=m/upper,workdir=m/work m/all || exit 99\n\
                  \"$0\" doctor --json m/all || exit 1\n\
                  find m/upper m/lower m/all -mindepth 1 > left";
    let report = in_namespace(&dir, script).exits(0).silent().json();
    assert_eq!((state(&report, "folder"), state(&report, "file-system")), ("ok", "limited"));
    contains(&report, "file-system", "observed", "overlay on ");
    contains(&report, "eviction", "observed", "only 0 of ");
    contains(&report, "file-system", "means", "reads from another file system");
    assert_eq!(dir.read("left"), "");
}

#[test]
fn a_read_only_folder_is_checked_with_a_file_of_it() {
    let (dir, disk) = (Dir::new(), disk());
    fs::create_dir_all(disk.path().join("full/train")).unwrap();
    fs::create_dir_all(disk.path().join("bare")).unwrap();
    fs::write(disk.path().join("full/train/a"), vec![7; 100_000]).unwrap();
    let read_only = |name: &str| {
        let place = disk.path().join(name).display().to_string();
        let script = format!(
            "mount --bind '{place}' '{place}' && mount -o remount,bind,ro '{place}' || exit 99\n\
             exec \"$0\" doctor --json '{place}'"
        );
        in_namespace(&dir, &script).exits(0).silent().json()
    };
    let report = read_only("full");
    assert_eq!(state(&report, "folder"), "limited");
    contains(&report, "folder", "observed", "Read-only file system");
    contains(&report, "eviction", "observed", "train/a");
    let writable = doctor(&dir, disk.path().to_str().unwrap(), 0);
    for name in ["o-direct", "eviction", "file-system"] {
        assert_eq!(state(&report, name), state(&writable, name), "{report:#}");
    }
    let report = read_only("bare");
    assert_eq!(state(&report, "folder"), "limited");
    for name in ["o-direct", "eviction"] {
        assert_eq!(state(&report, name), "not-applicable", "{report:#}");
        assert!(result(&report, name)["remedy"].is_null());
    }
    assert_eq!(state(&report, "file-system"), state(&writable, "file-system"));
}

#[test]
fn a_folder_that_cannot_be_opened_is_missing() {
    let dir = Dir::new();
    dir.write("file", "text");
    dir.feedline(&["doctor", "none"])
        .run()
        .exits(5)
        .silent()
        .prints("none does not exist")
        .prints("1 missing");
    for (folder, reason) in
        [("none", "none does not exist"), ("file", "Not a directory"), ("file/x", "Not a directory")]
    {
        let report = doctor(&dir, folder, 5);
        assert_eq!((state(&report, "folder"), &report["state"]), ("missing", &Value::from("missing")));
        contains(&report, "folder", "observed", reason);
        for name in ["file-system", "read-counter", "o-direct", "eviction", "free-space"] {
            assert_eq!(state(&report, name), "not-applicable", "{report:#}");
        }
        assert_ne!(state(&report, "kernel"), "missing", "the host was checked");
    }
    let url = "s3://bucket/x";
    dir.feedline(&["doctor", url]).run().exits(2).one_error().says("checks folders").says(url);
}

#[test]
fn permissions_are_those_of_the_user() {
    let dir = Dir::new();
    dir.write("closed/a", "text");
    dir.write("open/a", vec![7; 10_000]);
    dir.set_mode("closed", 0o700);
    dir.set_mode("open", 0o755);
    if !rustix::process::geteuid().is_root() {
        dir.set_mode("closed", 0);
        dir.set_mode("open", 0o555);
    }
    let report = dir.feedline_unprivileged(&["doctor", "--json", "closed"]).run().exits(5).silent().json();
    contains(&report, "folder", "observed", "Permission denied");
    dir.set_mode("closed", 0o700);
    let report = dir.feedline_unprivileged(&["doctor", "--json", "open"]).run().exits(0).silent().json();
    assert_eq!(state(&report, "folder"), "limited");
    contains(&report, "folder", "observed", "Permission denied");
    if rustix::process::geteuid().is_root() {
        // Another user's file, whose pages the kernel does not show.
        assert_eq!(state(&report, "eviction"), "limited", "{report:#}");
        contains(&report, "eviction", "observed", "open/a");
        contains(&report, "eviction", "means", "RWF_NOWAIT");
    }
    assert_eq!(dir.read("open/a").len(), 10_000);
}

#[test]
fn nothing_is_left_behind() {
    let (dir, disk) = (Dir::new(), disk());
    fs::write(disk.path().join("file"), "text").unwrap();
    let path = disk.path().canonicalize().unwrap().display().to_string();
    let listing = || {
        let mut names = Vec::new();
        walk(disk.path(), &mut |path| names.push(relative(disk.path(), path)));
        names
    };
    dir.feedline(&["doctor", &path])
        .traced("openat,openat2,open,unlink,unlinkat,mkdir,mkdirat,rename", "trace")
        .run()
        .exits(0);
    assert_eq!(listing(), ["file"]);
    let trace = dir.read("trace");
    let here: Vec<&str> = trace.lines().filter(|line| line.contains(&format!("<{path}>"))).collect();
    let count =
        |word: &str| here.iter().filter(|line| line.contains(word) && !line.contains(" = -1 ")).count();
    assert!(count("O_TMPFILE") + count("O_CREAT") > 0, "no file was made: {here:#?}");
    assert_eq!(count("O_CREAT"), count("unlink"), "{here:#?}");
    assert_eq!((count("mkdir"), count("rename")), (0, 0), "{here:#?}");
    // Killed while the file exists.
    let program = env!("CARGO_BIN_EXE_feedline");
    let inject = [
        "-f",
        "-o",
        "killed",
        "-e",
        "trace=fdatasync",
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:signal=SIGKILL:when=1",
        "--",
        program,
        "doctor",
        &path,
    ];
    dir.command(Path::new("strace"), &inject).run().exits(4).says("killed by SIGKILL");
    assert!(dir.read("killed").contains("fdatasync("));
    assert_eq!(listing(), ["file"]);
}

#[test]
fn a_folder_that_does_not_answer_ends_the_command_after_the_host() {
    let dir = Dir::new();
    let line = format!(
        "exec strace -D -f -qq -o trace -e trace=fdatasync -e inject=fdatasync:delay_enter=25s:when=1 \
         {} doctor . --stall-timeout 3s > output 2> errors",
        env!("CARGO_BIN_EXE_feedline")
    );
    let started = dir.command(Path::new("sh"), &["-c", &line]).start();
    let done = started.wait_for(Duration::from_secs(20)).exits(4);
    let (output, errors) = (dir.read("output"), dir.read("errors"));
    if !errors.contains("no progress for 3.") || !errors.contains("sync") {
        done.fail(&format!("the report does not name the call: {errors}"));
    }
    assert!(output.contains("\n  ok       architecture"), "{output}");
    assert!(!output.contains("\nfolder "), "{output}");
}

/// Secrets that must not be printed.
const SECRETS: [(&str, &str); 7] = [
    ("AWS_ACCESS_KEY_ID", "AKIAVERYSECRETID"),
    ("AWS_SECRET_ACCESS_KEY", "secretsecretaccess"),
    ("AWS_SESSION_TOKEN", "secrettoken"),
    ("GOOGLE_BEARER_TOKEN", "secretbearer"),
    ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
    ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0a2V5c2VjcmV0"),
    ("AZURE_STORAGE_CLIENT_SECRET", "secretclient"),
];

/// The command without any setting for object stores.
fn without_credentials<'a>(dir: &'a Dir, args: &[&str]) -> Cmd<'a> {
    let mut command = dir.feedline(args).env("HOME", dir.path(".")).env("AWS_EC2_METADATA_DISABLED", "");
    for (name, _) in std::env::vars() {
        if ["AWS_", "GOOGLE_", "GCS_", "CLOUDSDK_", "AZURE_", "S3_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command = command.env(&name, "");
        }
    }
    command
}

#[test]
fn credentials_are_named_by_their_source_only() {
    let dir = Dir::new();
    for args in [&["doctor"][..], &["doctor", "--json"], &["--version"]] {
        let mut command = without_credentials(&dir, args);
        for (name, value) in SECRETS {
            command = command.env(name, value);
        }
        let done = command.run().exits(0);
        let text = format!("{}{}", done.stdout, done.stderr);
        for (name, value) in SECRETS.iter().filter(|(name, _)| *name != "AZURE_STORAGE_ACCOUNT_NAME") {
            assert!(!text.contains(value), "the value of {name} is in: {text}");
        }
        if args[0] == "doctor" {
            for source in
                ["S3: environment: AWS_ACCESS_KEY_ID", "GOOGLE_BEARER_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"]
            {
                assert!(text.contains(source), "{source} is missing in: {text}");
            }
        }
    }
}

#[test]
fn incomplete_credentials_are_limited() {
    let dir = Dir::new();
    let command = without_credentials(&dir, &["doctor", "--json"]);
    let report = command.env("AWS_SECRET_ACCESS_KEY", "secretsecretaccess").run().exits(0).json();
    assert_eq!(state(&report, "credentials"), "limited");
    contains(
        &report,
        "credentials",
        "observed",
        "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not",
    );
    assert!(!report.to_string().contains("secretsecretaccess"), "{report:#}");
}

/// The rows of the tables: the state and the observed text by name, for the host and then the folders.
fn rows(text: &str) -> Vec<(String, String, String)> {
    let is_row = |line: &&str| {
        let state = line.strip_prefix("  ").and_then(|rest| rest.split_whitespace().next());
        !line.starts_with("   ")
            && state.is_some_and(|state| ["ok", "limited", "missing", "n/a"].contains(&state))
    };
    let row = |line: &str| {
        let (state, rest) = line.trim_start().split_once(' ').unwrap();
        let (name, observed) = rest.trim_start().split_once(' ').unwrap();
        (state.replace("n/a", "not-applicable"), name.to_owned(), observed.trim_start().to_owned())
    };
    text.lines().filter(is_row).map(row).collect()
}

#[test]
fn the_table_and_the_document_say_the_same() {
    let dir = Dir::new();
    let args = ["doctor", ".", "none"];
    let text = dir.feedline(&args).run().exits(5).silent().stdout;
    let report = dir.feedline(&args).args(&["--json"]).run().exits(5).silent().json();
    let folders = report["folders"].as_array().unwrap();
    let of_folders = folders.iter().flat_map(|folder| folder["checks"].as_array().unwrap());
    let all: Vec<&Value> = report["host"].as_array().unwrap().iter().chain(of_folders).collect();
    let word = |result: &Value, key: &str| result[key].as_str().unwrap().to_owned();
    // What is free can change between the two commands.
    let changes = |name: &str| ["memory", "shared-memory", "free-space"].contains(&name);
    let stable = |(state, name, observed): (String, String, String)| {
        let observed = if changes(&name) { String::new() } else { observed };
        (state, name, observed)
    };
    let documents: Vec<_> = all
        .iter()
        .map(|result| stable((word(result, "state"), word(result, "name"), word(result, "observed"))))
        .collect();
    assert_eq!(rows(&text).into_iter().map(stable).collect::<Vec<_>>(), documents, "{text}");
    for result in &all {
        let is_told = ["limited", "missing"].contains(&word(result, "state").as_str());
        for key in ["means", "remedy"] {
            assert_eq!(result[key].is_string(), is_told, "{result:#}");
            if is_told {
                assert!(text.contains(result[key].as_str().unwrap()), "{result:#} is not in:\n{text}");
            }
        }
    }
    let count = |state: &str| all.iter().filter(|result| result["state"] == state).count();
    let summary =
        format!("{} checks: {} limited, {} missing\n", all.len(), count("limited"), count("missing"));
    assert!(text.ends_with(&summary), "{summary}{text}");
}

#[test]
fn reports_fit_into_80_columns() {
    let dir = Dir::new();
    fs::create_dir(dir.path("a")).unwrap();
    let (_, output) = PtyCommand::start(&dir, 80, &["doctor", "a", "none", "--color=never"], &[]).wait();
    assert!(output.contains("\n  missing: folder"), "{output}");
    for line in output.lines() {
        let line = line.trim_end();
        // A path is not broken.
        let has_path = line.split_whitespace().any(|word| word.contains('/') && word.len() > 40);
        assert!(line.chars().count() <= 80 || has_path, "{line}");
    }
    assert!(!screen(&output, 80).is_empty());
}

#[test]
fn limits_of_the_process_are_limited() {
    let dir = Dir::new();
    let program = env!("CARGO_BIN_EXE_feedline");
    let line = format!("ulimit -n 200; exec {program} doctor --json");
    let report = dir.command(Path::new("sh"), &["-c", &line]).run().exits(0).silent().json();
    assert_eq!(state(&report, "open-files"), "limited");
    contains(&report, "open-files", "observed", "200");
    contains(&report, "open-files", "remedy", "ulimit -Hn");
    let args = ["--cpu-list", "0", program, "doctor", "--json"];
    let report = dir.command(Path::new("taskset"), &args).run().exits(0).silent().json();
    let online = std::thread::available_parallelism().unwrap().get();
    assert_eq!(state(&report, "cpus") == "limited", online > 1, "{report:#}");
    if online > 1 {
        contains(&report, "cpus", "observed", "1 of ");
    }
    let line = format!("ulimit -v 2000000; exec {program} doctor --json");
    let report = dir.command(Path::new("sh"), &["-c", &line]).run().exits(0).silent().json();
    assert_eq!(state(&report, "memory"), "limited");
    contains(&report, "memory", "observed", "ulimit -v");
}

#[test]
fn an_unprivileged_limit_of_locked_memory_is_limited() {
    let dir = Dir::new();
    fs::copy(env!("CARGO_BIN_EXE_feedline"), dir.path("feedline")).unwrap();
    let line = "ulimit -l 64; exec ./feedline doctor --json";
    let mut args = vec!["sh", "-c", line];
    let mut program = "sh";
    if rustix::process::geteuid().is_root() {
        program = "setpriv";
        args.splice(..0, ["--reuid=65534", "--regid=65534", "--clear-groups"]);
    } else {
        args.remove(0);
    }
    let report = dir.command(Path::new(program), &args).run().exits(0).silent().json();
    assert_eq!(state(&report, "locked-memory"), "limited", "{report:#}");
    contains(&report, "locked-memory", "observed", "64");
}

/// Makes the kernel refuse system calls of this process with an error, as container runtimes do.
fn refuse(calls: [(u32, i32); 2]) -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let (jump, answer) = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::BPF_RET | libc::BPF_K);
    let refusal = |error: i32| libc::SECCOMP_RET_ERRNO | error as u32;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(jump, 0, 1, calls[0].0),
        step(answer, 0, 0, refusal(calls[0].1)),
        step(jump, 0, 1, calls[1].0),
        step(answer, 0, 0, refusal(calls[1].1)),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter and its steps live until the calls return; the kernel makes a copy.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if is_set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_filter_of_system_calls_is_named() {
    const CACHESTAT: u32 = 451;
    let dir = Dir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedline"));
    command.args(["doctor", "--json"]).current_dir(dir.path("."));
    let calls = [(libc::SYS_io_uring_setup as u32, libc::EPERM), (CACHESTAT, libc::ENOSYS)];
    // SAFETY: the function makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || refuse(calls)) };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (state(&report, "io-uring"), state(&report, "cachestat")),
        ("limited", "limited"),
        "{report:#}"
    );
    let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let cause = if ["1", "2"].contains(&sysctl.trim()) { "io_uring_disabled" } else { "seccomp filter" };
    contains(&report, "io-uring", "observed", cause);
    contains(&report, "io-uring", "remedy", "--store posix");
    // The fallback counts pages.
    let stack = store::StorageStack::of(fs::File::open(dir.path(".")).unwrap(), "").unwrap();
    assert_eq!(state(&report, "eviction") == "ok", !stack.file_system.is_memory(), "{report:#}");
}

#[test]
fn an_mpi_library_can_be_named() {
    let dir = Dir::new();
    let named =
        |library: &str| dir.feedline(&["doctor", "--json", "--mpi-library", library]).run().exits(0).json();
    let report = named("libc.so.6");
    assert_eq!(state(&report, "mpi"), "limited");
    contains(&report, "mpi", "observed", "MPI_Get_library_version");
    contains(&named("/nonexistent/libmpi.so"), "mpi", "observed", "/nonexistent/libmpi.so");
}

#[test]
fn mpi_libraries_are_found_with_their_files() {
    let dir = Dir::new();
    let folders = [Mpi::OpenMpi5, Mpi::Mpich].map(|mpi| mpi.library_folder().unwrap());
    let list = std::env::join_paths(&folders).unwrap();
    // Both at once: each reports its own version.
    let found = |args: &[&str]| dir.feedline(args).env("LD_LIBRARY_PATH", &list).run().exits(0).silent();
    let report = found(&["doctor", "--json"]).json();
    assert_eq!(state(&report, "mpi"), "ok");
    let [openmpi, mpich] =
        [("libmpi.so.40", 0), ("libmpi.so.12", 1)].map(|(name, at)| folders[at].join(name));
    contains(&report, "mpi", "observed", &format!("({})", openmpi.display()));
    contains(&report, "mpi", "observed", &format!("({})", mpich.display()));
    contains(&report, "mpi", "observed", "Open MPI v5");
    contains(&report, "mpi", "observed", "MPICH Version");
    let version = found(&["--version"]).stdout;
    let line = version.lines().find_map(|line| line.strip_prefix("MPI library: ")).unwrap();
    assert_eq!(Some(line), result(&report, "mpi")["observed"].as_str());
}
