//! Runs that are killed at random moments: no incomplete result looks complete, data files are either complete or
//! absent, and the next command resumes from there.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Dir, Done, Running, outcome, walk};

/// Kills during generation, and as many during runs.
const KILLS: u64 = 100;

const SETTINGS: [&str; 2] = ["dataset.num_files_train=80", "dataset.record_length_bytes=20000"];

/// Pseudo-random numbers that are the same in every run of the test (splitmix64).
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = (x ^ (x >> 31)) as f64 / u64::MAX as f64;
        limit.mul_f64(share)
    }
}

fn generate<'a>(dir: &'a Dir, more: &[&str]) -> Running<'a> {
    dir.feedline(&["generate", "w.yaml", "--quiet", "--writers", "3"]).args(more).set(&SETTINGS).start()
}

fn run(dir: &Dir) -> Running<'_> {
    dir.feedline(&["run", "w.yaml", "--quiet", "--json", "--no-calibration"]).set(&SETTINGS).start()
}

/// Kills commands at random moments of their duration. The estimate of the duration adapts: a command that ended before
/// the kill shortens it, one that was killed lengthens it, so that about four of five kills are in time.
pub(crate) struct Killer {
    chance: Chance,
    span: Duration,
    pub killed: u64,
}

impl Killer {
    pub(crate) fn new(seed: u64, span: Duration) -> Killer {
        Killer { chance: Chance(seed), span, killed: 0 }
    }

    /// Kills a command at a random moment; returns whether it was still running.
    fn kill(&mut self, running: Running<'_>) -> bool {
        let done = self.end(running);
        let killed = done.signal().is_some();
        if !killed {
            done.ran();
        }
        killed
    }

    /// Kills a command at a random moment, unless it ends before.
    pub(crate) fn end(&mut self, running: Running<'_>) -> Done {
        std::thread::sleep(self.chance.below(self.span));
        running.signal(Signal::KILL);
        let done = running.wait();
        let killed = done.signal().is_some();
        self.killed += u64::from(killed);
        self.span = self.span.mul_f64(if killed { 1.05 } else { 0.8 });
        done
    }
}

/// How long the work takes on this machine.
pub(crate) fn span(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

#[test]
fn generation_is_killed_at_random_moments() {
    let dir = Dir::small();
    let mut killer = Killer::new(7, span(|| drop(generate(&dir, &[]).wait().exits(0))));
    let mut refused = 0;
    for number in 0..=KILLS {
        // A finished data set is removed, and so is every third unfinished one. The next command resumes the others.
        if number == 0 || !killer.kill(generate(&dir, &[])) || number % 3 == 0 {
            refused += u64::from(refuses_or_is_right(&dir));
            generate(&dir, &["--verify"]).wait().exits(0);
            dir.has_no_leftovers();
            fs::remove_dir_all(dir.path("data")).unwrap();
        }
    }
    // Otherwise the test has tested nothing.
    let killed = killer.killed;
    assert!(killed > KILLS / 4 && refused > 0, "{killed} kills were in time, {refused} runs were refused");
}

/// A run on the files that a killed generator left; returns whether it was refused.
fn refuses_or_is_right(dir: &Dir) -> bool {
    let done = run(dir).wait();
    if done.code() == Some(3) {
        done.one_error();
        return true;
    }
    let summary = done.ran().json();
    for rule in ["complete", "exactly-once", "bytes-as-planned", "errors"] {
        assert_eq!(outcome(&summary, rule), "pass");
    }
    generate(dir, &["--verify"]).wait().exits(0);
    false
}

#[test]
fn a_run_is_killed_at_random_moments() {
    let dir = Dir::small();
    generate(&dir, &[]).wait().exits(0);
    let mut killer = Killer::new(11, span(|| drop(run(&dir).wait().ran())));
    for _ in 0..KILLS {
        killer.kill(run(&dir));
    }
    let killed = killer.killed;
    assert!(killed > KILLS / 4, "{killed} kills were in time");
    let results = whole_results(&dir);
    let done = dir.feedline(&["validate", "feedline-results/w"]).run();
    if done.code() == Some(3) {
        done.fail("a result was changed");
    }
    // Runs that were not killed left a result; runs that were killed at the very end may have.
    assert!(results > KILLS - killed && results <= KILLS + 1, "{results} of {KILLS}");
    run(&dir).wait().ran();
    generate(&dir, &["--verify"]).wait().exits(0);
}

/// Checks every published result folder, and counts them.
fn whole_results(dir: &Dir) -> u64 {
    let files = ["epochs.csv", "ledger.json", "plan.json", "spec.yaml", "summary.json"];
    let mut results = BTreeSet::new();
    walk(&dir.path("feedline-results/w"), &mut |path| {
        let hidden = |part: &str| part.starts_with('.');
        let inside = path.strip_prefix(dir.path("feedline-results/w")).unwrap();
        if inside.components().any(|part| part.as_os_str().to_str().is_some_and(hidden)) {
            return;
        }
        results.insert(inside.components().next().unwrap().as_os_str().to_owned());
    });
    for result in &results {
        let folder = dir.path("feedline-results/w").join(result);
        for file in files {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(text.ends_with('\n'), "{file} of {result:?} is truncated");
            if file.ends_with(".json") {
                serde_json::from_str::<Value>(&text).unwrap();
            }
        }
        let summary: Value =
            serde_json::from_str(&fs::read_to_string(folder.join("summary.json")).unwrap()).unwrap();
        assert_eq!(outcome(&summary, "complete"), "pass");
        assert_eq!(outcome(&summary, "exactly-once"), "pass");
    }
    results.len() as u64
}
