//! Runs that are killed at random moments while they generate a data set in S3, or save, drain and restore checkpoints
//! there: the newest checkpoint that was reported complete can be restored in full, incomplete ones are never offered,
//! and neither objects nor unfinished uploads accumulate. Checkpoints in Azure and Google Cloud Storage, without kills.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::kills::{Killer, span};
use crate::objects::proxy::{Ask, Proxy};
use crate::objects::servers::{Place, Scheme};
use crate::util::{Dir, Done, Running, TINY_MODEL, outcome};

/// How often commands are killed.
struct Kills {
    /// For each save mode.
    saves: u64,
    restores: u64,
    generations: u64,
}

/// The long form has 100 kills: those of three save modes, and of generations.
fn kills() -> Kills {
    match std::env::var_os("FEEDLINE_TEST_LONG") {
        Some(_) => Kills { saves: 22, restores: 5, generations: 19 },
        None => Kills { saves: 5, restores: 1, generations: 4 },
    }
}

const KEPT: usize = 2;

/// A transformer whose checkpoints have 8 files and 8 MB, on 4 ranks.
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
    fn new(mode: &'static str, scheme: Scheme) -> Bucket {
        let dir = Dir::new();
        dir.write("w.yaml", format!("{TINY_MODEL}{WORKLOAD}"));
        Bucket { dir, mode, place: Place::new(scheme) }
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
    let bucket = Bucket::new(mode, Scheme::S3);
    let Kills { saves, restores, .. } = kills();
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
    let (before, mut runs) = (bucket.lines("list"), 0);
    while killer.killed < restores {
        killer.end(bucket.restores());
        assert_eq!(bucket.lines("list"), before, "a restore changes nothing");
        runs += 1;
        assert!(runs < 6 * restores.max(2), "{} of {runs} restores were killed", killer.killed);
    }
    ended(bucket.saves().wait());
    bucket.is_in_order();
}

/// Objects of three parts, so that there are uploads to interrupt.
const LARGE: [&str; 5] = [
    "dataset.format=jpeg",
    "dataset.num_files_train=6",
    "dataset.record_length_bytes=11000000",
    "storage.part_size=5MiB",
    "reader.batch_size=1",
];

#[test]
fn generation_is_killed_at_any_moment() {
    let (dir, place) = (Dir::small(), Place::s3());
    let generate = |name: &str, more: &[&str]| {
        let url = place.url(name);
        let args = [&["generate", "w.yaml", "--json", "--quiet", "--data-dir", &url], more].concat();
        place.with(dir.feedline(&args)).set(&LARGE).start()
    };
    let mut killer = Killer::new(11, span(|| drop(generate("first", &[]).wait().exits(0))));
    let (generations, mut runs) = (kills().generations, 0);
    while killer.killed < generations {
        // Three commands continue one data set, then it is checked.
        let name = format!("data{}", runs / 3);
        killer.end(generate(&name, &[]));
        if runs % 3 == 2 {
            let done = generate(&name, &["--verify"]).wait().exits(0).json();
            let [written, kept] = ["files_written", "files_kept"].map(|key| done[key].as_u64().unwrap());
            assert_eq!(written + kept, 6, "{done}");
            let uploads = place.boto(&dir, &["uploads", &place.key(&name)]).exits(0).stdout;
            assert_eq!(uploads, "", "left behind");
        }
        runs += 1;
        assert!(runs < 6 * generations, "{} of {runs} were killed", killer.killed);
    }
}

#[test]
fn a_second_generation_takes_over_and_the_first_one_says_so() {
    let (dir, place) = (Dir::small(), Place::s3());
    // The first one takes several seconds.
    let proxy = Proxy::to(&place.endpoint).latency(Duration::from_millis(300)).start();
    let url = place.url("data");
    let args = ["generate", "w.yaml", "--quiet", "--writers", "1", "--data-dir", &url];
    let mut first = place.through(&proxy).with(dir.feedline(&args)).set(&LARGE).start();
    assert!(!first.until_or_end(|| proxy.count(Ask::Part) > 0), "it ended too soon");
    place.with(dir.feedline(&args)).set(&LARGE).run().exits(0);
    first.wait().exits(3).one_error().says("another feedline is writing to ").says(&url);
    let checked = ["generate", "w.yaml", "--quiet", "--verify", "--data-dir", &url];
    place.with(dir.feedline(&checked)).set(&LARGE).run().exits(0);
    let uploads = place.boto(&dir, &["uploads", &place.key("data")]).exits(0).stdout;
    assert_eq!(uploads, "", "left behind");
}

/// Saves to another service in every mode, and restores.
fn is_saved_and_restored(scheme: Scheme) {
    for mode in ["direct", "async", "burst-buffer"] {
        let bucket = Bucket::new(mode, scheme);
        let done = ended(bucket.saves().wait());
        let restored = &done.json()["feedline"]["checkpoint"]["restores"][0];
        assert_eq!((&restored["failure"], restored["moment"]["step"].as_u64()), (&Value::Null, Some(3)));
        assert_eq!(outcome(&done.json(), "checkpoints-saved"), "pass", "{mode}");
        assert_eq!(bucket.restored_step(), 3, "{mode}");
        // The same moments are replaced.
        ended(bucket.saves().wait());
        assert_eq!(bucket.restored_step(), 3, "{mode}");
    }
}

#[test]
fn checkpoints_in_azure_are_restored_in_every_mode() {
    is_saved_and_restored(Scheme::Azure);
}

#[test]
fn checkpoints_in_google_cloud_storage_are_restored_in_every_mode() {
    is_saved_and_restored(Scheme::Google);
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
