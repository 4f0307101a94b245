//! Runs that are killed at random moments while they save, drain and restore checkpoints in S3: the newest checkpoint
//! that was reported complete can be restored in full, incomplete ones are never offered, and neither objects nor
//! unfinished uploads accumulate. Kills during generation are in objects_training.rs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kills::{Killer, span};
use crate::objects::servers::Place;
use crate::util::{Dir, Done, Running, TINY_MODEL, outcome};

/// Kills per save mode, of runs that save and of runs that only restore; the long form has 100 of both in total.
fn kills() -> (u64, u64) {
    if std::env::var_os("FEEDLINE_TEST_LONG").is_some() { (28, 6) } else { (5, 2) }
}

const KEPT: usize = 2;

/// A transformer whose checkpoints have 8 files and 8 MB, on 4 ranks. Parts are small, so that files have several.
const WORKLOAD: &str = "
checkpoint:
  num_checkpoints_write: 3
  num_checkpoints_read: 1
  time_between_checkpoints: 0
  chunk_size: 262144
  keep_last: 2
  burst_slots: 2
  fsync: true
";

/// The checkpoints of one save mode in a bucket.
struct Bucket {
    dir: Dir,
    mode: &'static str,
    place: Place,
}

impl Bucket {
    fn new(mode: &'static str) -> Bucket {
        let dir = Dir::new();
        dir.write("w.yaml", format!("{TINY_MODEL}{WORKLOAD}"));
        Bucket { dir, mode, place: Place::s3() }
    }

    fn start(&self, settings: &[&str]) -> Running<'_> {
        let url = self.place.url("last");
        let args = ["run", "w.yaml", "--ranks", "4", "--json", "--save", self.mode, "--checkpoint-dir", &url];
        let fast: &[&str] = if self.mode == "burst-buffer" {
            &["checkpoint.burst_folder=fast", "checkpoint.burst_store=posix"]
        } else {
            &[]
        };
        self.place.with(self.dir.feedline(&args)).set(fast).set(settings).start()
    }

    fn saves(&self) -> Running<'_> {
        self.start(&[])
    }

    fn restores(&self) -> Running<'_> {
        self.start(&["checkpoint.num_checkpoints_write=0"])
    }

    fn lines(&self, action: &str) -> Vec<String> {
        let done = self.place.boto(&self.dir, &[action, &self.place.prefix]).exits(0);
        done.stdout.lines().map(str::to_owned).collect()
    }

    /// Restores the newest checkpoint, compares every byte, and returns its step.
    fn restored_step(&self) -> u64 {
        let done = ended(self.restores().wait());
        let summary = done.json();
        let restored = &summary["feedline"]["checkpoint"]["restores"][0];
        assert_eq!(restored["failure"], Value::Null, "{restored}");
        assert_eq!(outcome(&summary, "restored-right"), "pass");
        restored["moment"]["step"].as_u64().unwrap()
    }

    /// Checks that after a completed run there are only the kept checkpoints, and no unfinished uploads.
    fn is_in_order(&self) {
        let mut keys = self.lines("list");
        // A lock that was released stays.
        keys.retain(|line| !line.contains("/.feedline-lock"));
        let folder =
            |line: &String| line.split_once("/last/").unwrap().1.split('/').next().unwrap().to_owned();
        let moment = |folder: String| folder.split('.').next().unwrap().to_owned();
        let moments: BTreeSet<String> = keys.iter().map(|line| moment(folder(line))).collect();
        assert_eq!(moments.len(), KEPT, "{keys:#?}");
        // Eight files and the manifest of each.
        assert_eq!(keys.len(), KEPT * 9, "{keys:#?}");
        assert_eq!(self.lines("uploads"), Vec::<String>::new());
    }
}

/// Checks that a run completed. Rules about a busy client may fail.
fn ended(done: Done) -> Done {
    let of_speed = |rule: &String| ["restored-from-storage", "client-not-the-limit"].contains(&rule.as_str());
    let only_slow = done.code() == Some(5) && done.failed_rules().iter().all(of_speed);
    if done.code() != Some(0) && !only_slow {
        done.fail("expected a completed run");
    }
    done
}

/// The last step that a run reported as complete: on its fast tier, if it has one.
fn promised(done: &Done, mode: &str) -> Option<u64> {
    let place = if mode == "burst-buffer" { "complete on the fast tier" } else { "complete" };
    let steps = done.stderr.lines().filter_map(|line| {
        let (step, told) = line.strip_prefix("checkpoint global_epoch1_step")?.split_once(' ')?;
        (told == place).then(|| step.parse().unwrap())
    });
    steps.max()
}

fn is_killed_at_any_moment(mode: &'static str, seed: u64) {
    let bucket = Bucket::new(mode);
    let (saves, restores) = kills();
    let mut killer = Killer::new(seed, span(|| drop(ended(bucket.saves().wait()))));
    bucket.is_in_order();
    let mut runs = 0;
    while killer.killed < saves {
        let done = killer.end(bucket.saves());
        let step = bucket.restored_step();
        assert!(promised(&done, mode).is_none_or(|promised| step >= promised), "{step}: {}", done.stderr);
        assert!(bucket.lines("uploads").len() <= 16, "uploads accumulate");
        runs += 1;
        assert!(runs < 6 * saves, "{} of {runs} runs were killed", killer.killed);
    }
    let mut killer = Killer::new(seed, span(|| assert!(bucket.restored_step() > 0)));
    let before = bucket.lines("list");
    for _ in 0..restores {
        killer.end(bucket.restores());
        assert_eq!(bucket.lines("list"), before, "a restore changes nothing");
    }
    ended(bucket.saves().wait());
    bucket.is_in_order();
}

#[test]
fn saving_directly_is_killed_at_any_moment() {
    is_killed_at_any_moment("direct", 3);
}

#[test]
fn saving_in_the_background_is_killed_at_any_moment() {
    is_killed_at_any_moment("async", 5);
}

#[test]
fn draining_a_burst_buffer_is_killed_at_any_moment() {
    is_killed_at_any_moment("burst-buffer", 7);
}
