//! The preload library and the marks without feedline: every check of `library/check.py`, with the library that this
//! program embeds.

use std::path::Path;
use std::time::Duration;

use super::{PYTHON, audit, script};
use crate::util::Dir;

/// For jobs that import PyTorch and TensorFlow dozens of times.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The library and the folder of the marks, copied out of an audited job.
fn extract(dir: &Dir) -> [String; 2] {
    let copy = "cp \"$FEEDLINE_AUDIT_LIBRARY\" library.so && cp -r \"$FEEDLINE_AUDIT_PYTHON\" marks";
    audit(dir, &["sh", "-c", copy]).run().exits(0);
    ["library.so", "marks"].map(|name| dir.path(name).to_str().unwrap().to_owned())
}

#[track_caller]
fn check(names: &[&str]) {
    let dir = Dir::new();
    let [library, marks] = extract(&dir);
    let python =
        std::env::var("FEEDLINE_TEST_PYTHON").expect("FEEDLINE_TEST_PYTHON is not set: run scripts/test");
    let command = dir.command(Path::new(PYTHON), &["-B", &script("audit/library/check.py")]).args(names);
    let command = command.env("FEEDLINE_CHECK_LIBRARY", library).env("FEEDLINE_CHECK_MARKS", marks);
    let command = command.env("FEEDLINE_CHECK_PYTHON", python).env("PYTHONDONTWRITEBYTECODE", "1");
    command.start().wait_for(TIME_LIMIT).exits(0);
}

#[test]
fn every_check_is_run() {
    let text = std::fs::read_to_string(script("audit/library/check.py")).unwrap();
    let this = include_str!("library.rs");
    let names = text.split("\n@check\ndef ").skip(1).map(|rest| rest.split('(').next().unwrap());
    let missing: Vec<&str> = names.filter(|name| !this.contains(&format!("\"{name}\""))).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn functions_return_what_they_do_alone() {
    check(&["every_function_returns_what_it_does_alone", "plain_python"]);
}

#[test]
fn descriptors_are_told_apart() {
    check(&["half_read_file_of_a_process_that_starts_others", "inherited_descriptor_is_flagged"]);
}

#[test]
fn programs_are_observed_with_an_empty_environment_and_silent_without_feedline() {
    check(&["child_with_an_empty_environment", "silent_without_feedline"]);
}

#[test]
fn loaders_are_marked() {
    check(&["marks_of_torch_loaders"]);
}

#[test]
fn tensorflow_is_marked() {
    check(&["marks_of_tensorflow"]);
}

#[test]
fn no_code_can_panic_and_an_old_c_library_is_enough() {
    let dir = Dir::new();
    let [library, _] = extract(&dir);
    let bytes = std::fs::read(&library).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(!has(b"feedline-preload panicked"), "some code of the library can panic");
    let table = dir.command(Path::new("objdump"), &["-T", &library]).run().exits(0).stdout;
    let versions = table.split(['(', ')', ' ', '\n']).filter_map(|word| word.strip_prefix("GLIBC_"));
    let number = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap()).collect() };
    let newest = versions.map(number).max().expect("the library needs the C library");
    // The first one of 64-bit ARM, and that of CentOS 7.
    assert!(newest <= vec![2, 17], "the library needs glibc {newest:?}");
}

/// Packages of a lock file that come from elsewhere: name, version, checksum.
fn packages(lock: &'static str) -> Vec<Vec<&'static str>> {
    let lines = |package: &'static str| -> Vec<&'static str> {
        let keys = ["name = ", "version = ", "checksum = "];
        package.lines().filter(|line| keys.iter().any(|key| line.starts_with(key))).collect()
    };
    lock.split("[[package]]").skip(1).map(lines).filter(|package| package.len() == 3).collect()
}

#[test]
fn the_library_is_built_from_what_the_workspace_has_fetched() {
    let workspace = packages(include_str!("../../../../Cargo.lock"));
    let library = packages(include_str!("../../../audit/preload/Cargo.lock"));
    assert!(!library.is_empty());
    let missing: Vec<_> = library.iter().filter(|package| !workspace.contains(package)).collect();
    assert!(
        missing.is_empty(),
        "cargo update -p NAME --precise VERSION in crates/audit/preload: {missing:?}"
    );
}
