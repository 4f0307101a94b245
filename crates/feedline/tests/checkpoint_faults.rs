//! Checkpoint tiers that are full, fail, disappear, are in use, or have files of other programs: training continues if
//! it can, the error is named, and complete checkpoints stay complete.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::util::{Dir, Done, Running, TINY_MODEL, outcome};

/// A model whose checkpoints have 8 files and 8 MB, saved three times.
const WORKLOAD: &str = "
checkpoint:
  checkpoint_folder: last
  burst_folder: fast
  burst_store: posix
  mode_of_save: burst-buffer
  num_checkpoints_write: 3
  num_checkpoints_read: 0
  time_between_checkpoints: 0
  burst_slots: 3
  fsync: true
";

const RUN: [&str; 5] = ["run", "w.yaml", "--ranks", "4", "--json"];
const RESTORE: [&str; 2] = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];

fn site() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", format!("{TINY_MODEL}{WORKLOAD}"));
    dir
}

fn run(dir: &Dir, settings: &[&str]) -> Done {
    dir.feedline(&RUN).set(settings).run()
}

/// The complete checkpoints in a folder, by step.
fn complete(dir: &Dir, tier: &str) -> Vec<u64> {
    let steps =
        (1..9).filter(|step| dir.path(&format!("{tier}/global_epoch1_step{step}/checkpoint.json")).exists());
    steps.collect()
}

/// The troubles of each save of a run, in order.
fn troubles(summary: &Value) -> Vec<String> {
    let saves = summary["feedline"]["checkpoint"]["saves"].as_array().unwrap();
    saves.iter().map(|save| save["troubles"].to_string()).collect()
}

/// Checks that a restore reads this step completely, from this tier.
fn restores(dir: &Dir, step: u64, from_fast: bool) {
    let summary = run(dir, &RESTORE).json();
    let restored = &summary["feedline"]["checkpoint"]["restores"][0];
    assert_eq!((&restored["moment"]["step"], &restored["from_fast"]), (&step.into(), &from_fast.into()));
    assert_eq!(outcome(&summary, "restored-right"), "pass");
}

/// Lets a run save three checkpoints, one second apart, with the folder `small` on a separate disk that is filled when
/// the first checkpoint is complete on the last tier. Then the space is freed, and `afterwards` is run. The disk is a
/// tmpfs in a mount namespace, so it disappears with the process, however that ends.
fn with_a_disk_that_fills_up(dir: &Dir, small: &str, afterwards: &str) -> Done {
    fs::create_dir(dir.path(small)).unwrap();
    let program = env!("CARGO_BIN_EXE_feedline");
    let script = format!(
        "mount -t tmpfs -o size=40m tmpfs {small} || exit 99
         {program} {} --set checkpoint.time_between_checkpoints=1 > first.json 2> said & run=$!
         until grep -q 'step1 complete$' said; do kill -0 $run || exit 98; sleep 0.01; done
         cat /dev/zero > {small}/filler 2> full
         wait $run; echo $? > code
         rm {small}/filler
         find {small} -name '*.partial' -o -name '*.draft' > left
         ls fast > fast-then; ls last > last-then
         {program} {afterwards} > second.json || exit 97
         ls fast > fast-now; ls last > last-now",
        RUN.join(" "),
    );
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let done = dir.command(Path::new("unshare"), &[namespace, "bash", "-c", &script]).run();
    if done.code() == Some(99) {
        done.fail("this test mounts a small disk and needs root or user namespaces");
    }
    let done = done.exits(0);
    assert_eq!(dir.read("left"), "", "no partial files are left");
    done
}

#[test]
fn a_fast_tier_that_fills_up() {
    let dir = site();
    with_a_disk_that_fills_up(&dir, "fast", "workloads");
    // Later checkpoints are saved directly to the last tier, and the result notes it.
    assert_eq!(dir.read("code").trim(), "0");
    let told = troubles(&dir.json("first.json"));
    assert_eq!(told[0], "[]");
    for told in &told[1..] {
        assert!(told.contains("fast tier: no space left on the device while writing"), "{told}");
    }
    assert_eq!(outcome(&dir.json("first.json"), "checkpoints-saved"), "note");
    assert_eq!((complete(&dir, "last"), dir.read("fast-then")), (vec![1, 2, 3], String::new()));
    restores(&dir, 3, false);
}

#[test]
fn a_last_tier_that_fills_up() {
    let dir = site();
    let again = format!("{} --set checkpoint.num_checkpoints_write=1", RUN.join(" "));
    with_a_disk_that_fills_up(&dir, "last", &again);
    // Training continued to save to the fast tier, where the checkpoints stayed. The next run drained them.
    assert_eq!(dir.read("code").trim(), "5");
    let first = dir.json("first.json");
    assert_eq!(outcome(&first, "checkpoints-saved"), "fail");
    let told = troubles(&first);
    assert_eq!(told[0], "[]");
    for (told, save) in told.iter().zip(first["feedline"]["checkpoint"]["saves"].as_array().unwrap()).skip(1)
    {
        assert!(told.contains("drain: no space left on the device while writing"), "{told}");
        assert!(save["fast_ns"].is_u64() && save["durable_ns"].is_null(), "{save}");
    }
    assert_eq!(dir.read("fast-then"), "global_epoch1_step2\nglobal_epoch1_step3\n");
    assert_eq!(dir.read("last-then"), "global_epoch1_step1\n");
    assert_eq!(dir.read("fast-now"), "");
    assert_eq!(dir.read("last-now").lines().count(), 3);
}

#[test]
fn errors_of_the_last_tier_are_survived_and_named() {
    let dir = site();
    // Temporarily: each attempt of the first drains fails at a file, and later ones succeed.
    let summary = run(&dir, &["checkpoint.store='fault:posix,kind=eio,file=optim,limit=3'"]).json();
    assert!(troubles(&summary)[0].contains("Input/output error"), "{:?}", troubles(&summary));
    assert_eq!((complete(&dir, "last"), complete(&dir, "fast")), (vec![1, 2, 3], vec![]));
    restores(&dir, 3, false);
    // Permanently.
    let done = run(&dir, &["checkpoint.store='fault:posix,kind=eio,file=step2/zero_pp_rank_3'"]).exits(5);
    let told = troubles(&done.json());
    assert!(told[1].contains("drain: cannot") && told[1].contains("step2/zero_pp_rank_3"), "{told:?}");
    // The previous checkpoint is kept under another name. The new one stays on the fast tier until the next run drains
    // it.
    assert_eq!((complete(&dir, "last"), complete(&dir, "fast")), (vec![1, 3], vec![2]));
    assert!(dir.path("last/global_epoch1_step2.replaced/checkpoint.json").exists());
    restores(&dir, 3, false);
    run(&dir, &["checkpoint.num_checkpoints_write=1"]).exits(0);
    assert_eq!((complete(&dir, "last"), complete(&dir, "fast")), (vec![1, 2, 3], vec![]));
    assert!(!dir.path("last/global_epoch1_step2.replaced").exists());
}

#[test]
fn a_last_tier_that_goes_away_and_comes_back() {
    let dir = site();
    let wait = ["checkpoint.time_between_checkpoints=0.5"];
    let mut running: Running<'_> = dir.feedline(&RUN).set(&wait).start();
    let there = |name: &str| dir.path(name).exists();
    running.until("the first checkpoint", || there("last/global_epoch1_step1/checkpoint.json"));
    running.until("its end on the fast tier", || !there("fast/global_epoch1_step1"));
    fs::rename(dir.path("last"), dir.path("away")).unwrap();
    running.until("the second checkpoint", || there("fast/global_epoch1_step2/checkpoint.json"));
    std::thread::sleep(std::time::Duration::from_millis(100));
    fs::rename(dir.path("away"), dir.path("last")).unwrap();
    let summary = running.wait().exits(0).json();
    assert!(troubles(&summary)[1].contains("last does not exist"), "{:?}", troubles(&summary));
    assert_eq!((complete(&dir, "last"), complete(&dir, "fast")), (vec![1, 2, 3], vec![]));
    restores(&dir, 3, false);
}

#[test]
fn files_of_other_programs_are_kept() {
    let dir = site();
    for tier in ["fast", "last"] {
        dir.write(&format!("{tier}/global_epoch1_step9/model_states-0.pt"), "theirs");
        dir.write(&format!("{tier}/global_epoch2_step1/checkpoint.json"), "theirs");
        dir.write(&format!("{tier}/notes"), "theirs");
    }
    let theirs = (dir.tree("fast"), dir.tree("last"));
    run(&dir, &["checkpoint.keep_last=1"]).exits(0);
    assert_eq!(complete(&dir, "last"), [3]);
    fs::remove_dir_all(dir.path("last/global_epoch1_step3")).unwrap();
    assert_eq!((dir.tree("fast"), dir.tree("last")), theirs);
    // A folder with files of another program is not overwritten.
    dir.write("last/global_epoch1_step2/model_states-0.pt", "theirs");
    let done = run(&dir, &["checkpoint.mode_of_save=direct"]).exits(5);
    let told = troubles(&done.json());
    assert!(told[1].contains("last/global_epoch1_step2 holds files that feedline did not write"), "{told:?}");
    assert_eq!(dir.read("last/global_epoch1_step2/model_states-0.pt"), "theirs");
    assert_eq!(complete(&dir, "last"), [1, 3]);
}

#[test]
fn one_run_at_a_time_saves() {
    let dir = site();
    let wait = ["checkpoint.time_between_checkpoints=2", "checkpoint.num_checkpoints_write=2"];
    let mut running = dir.feedline(&RUN).set(&wait).start();
    running.until("the first checkpoint", || !complete(&dir, "last").is_empty());
    for settings in [&[][..], &RESTORE] {
        run(&dir, settings).exits(3).one_error().says("another feedline is writing to");
    }
    running.wait().exits(0);
    restores(&dir, 2, false);
}

/// The system calls of a run, in order: flushes, renames, and lines on stderr.
fn traced(dir: &Dir, settings: &[&str]) -> Vec<String> {
    let command = dir.feedline(&RUN).set(&["checkpoint.num_checkpoints_write=1"]).set(settings);
    let done = command.traced("fsync,renameat,renameat2,write", "trace").run();
    let trace = dir.read("trace");
    if !trace.contains("fsync(") {
        done.fail("strace cannot trace here: these tests need ptrace (in a container: --cap-add SYS_PTRACE)");
    }
    assert!(matches!(done.code(), Some(0 | 5)), "only rules about speed may fail here: {}", done.stderr);
    trace.lines().map(str::to_owned).collect()
}

#[test]
fn checkpoints_that_are_reported_complete_survive_a_power_failure() {
    for (mode, tiers) in
        [("direct", &["last"][..]), ("async", &["last"]), ("burst-buffer", &["fast", "last"])]
    {
        for fsync in [true, false] {
            let dir = site();
            let settings = [format!("checkpoint.mode_of_save={mode}"), format!("checkpoint.fsync={fsync}")];
            let calls = traced(&dir, &settings.each_ref().map(String::as_str));
            for tier in tiers {
                let root = dir.path(tier).canonicalize().unwrap();
                let folder = root.join("global_epoch1_step1");
                let flushed = |calls: &[String], path: &Path| {
                    let mark = format!("<{}>", path.display());
                    calls.iter().any(|call| call.contains("fsync(") && call.contains(&mark))
                };
                let named = calls.iter().position(|call| {
                    call.contains("rename")
                        && call.contains(&format!("<{}>", folder.display()))
                        && call.contains("\"checkpoint.json\"")
                });
                let named = named.unwrap_or_else(|| panic!("{mode}: no manifest on {tier}"));
                for entry in fs::read_dir(dir.path("last/global_epoch1_step1")).unwrap() {
                    let file = folder.join(entry.unwrap().file_name());
                    let is_manifest = file.ends_with("checkpoint.json");
                    assert!(
                        is_manifest || flushed(&calls[..named], &file),
                        "{mode}, fsync {fsync}: {file:?}"
                    );
                }
                for path in [&root, &folder, &folder.join("checkpoint.json.partial")] {
                    assert!(flushed(&calls[..named], path), "{mode}, fsync {fsync}: {path:?}");
                }
                // The folder is flushed before the checkpoint is reported complete.
                let told = calls[named..].iter().position(|call| call.contains("write(2<")).unwrap();
                assert!(flushed(&calls[named..named + told], &folder), "{mode}, fsync {fsync}");
            }
        }
    }
}

#[test]
fn folders_that_cannot_be_used() {
    let dir = site();
    dir.write("flat", "x");
    for (setting, message) in [
        ("checkpoint.checkpoint_folder=flat", "flat"),
        ("checkpoint.checkpoint_folder=flat/below", "flat"),
        ("checkpoint.burst_folder=flat", "flat"),
        ("checkpoint.burst_folder=./last", "the fast tier"),
        (
            "checkpoint.store='fault:posix,kind=hang'",
            "this kind does not apply to checkpoints; the kinds that do are eio, delay, full",
        ),
    ] {
        let done = run(&dir, &[setting]);
        assert!([Some(2), Some(3)].contains(&done.code()), "{setting}: {:?}", done.code());
        done.one_error().says(message);
    }
    run(&dir, &RESTORE).exits(3).one_error().says("there is no complete checkpoint in");
    // A user without write permission can restore.
    run(&dir, &[]).exits(0);
    dir.set_mode("last", 0o555);
    dir.set_mode("fast", 0o555);
    let results = ["--results-dir", "results"];
    fs::create_dir(dir.path("results")).unwrap();
    dir.set_mode("results", 0o777);
    let done = dir.feedline_unprivileged(&RUN).args(&results).set(&RESTORE).run();
    assert_eq!(outcome(&done.json(), "restored-right"), "pass");
    let done = dir.feedline_unprivileged(&RUN).args(&results).run();
    let told = troubles(&done.exits(5).json()).concat();
    assert!(told.contains("create the folder fast/") && told.contains("Permission denied"), "{told}");
    assert_eq!(complete(&dir, "last"), [1, 2, 3]);
    dir.set_mode("last", 0o755);
    dir.set_mode("fast", 0o755);
}
