//! Limits of the process apply to its plans. Control groups need root; see scripts/attacks/limits.py.

use std::path::Path;

use crate::util::{Cmd, Dir};

/// The program, started by a shell that sets a limit, or by another program.
fn started_by<'a>(dir: &'a Dir, script: &str) -> Cmd<'a> {
    let script = format!("{script} \"$@\"");
    let words =
        ["-c", &script, "sh", env!("CARGO_BIN_EXE_feedline"), "run", "w.yaml", "--quiet", "--no-calibration"];
    dir.command(Path::new("sh"), &words)
}

#[test]
fn a_run_that_ulimit_does_not_allow_is_refused() {
    let dir = Dir::small_with_data();
    let settings = ["reader.retain=batch", "reader.prefetch_size=100000", "train.epochs=1000"];
    let done = started_by(&dir, "ulimit -v 262144; exec").set(&settings).run().exits(3).one_error();
    done.says("address space 256.0 MiB, set with ulimit -v").says("lower train.epochs");
}

#[test]
fn a_run_has_the_cores_of_its_affinity() {
    let dir = Dir::small_with_data();
    let summary = started_by(&dir, "exec taskset --cpu-list 0").args(&["--json"]).run().ran().json();
    assert_eq!(summary["host_cpu_count"][0], 1);
    let online = std::thread::available_parallelism().unwrap().get();
    let limits = summary["feedline"]["limits"].as_array().unwrap();
    let named = limits.iter().any(|limit| limit.as_str().unwrap().starts_with("1 of "));
    assert_eq!(named, online > 1, "{limits:?}");
}
