//! Runs that are killed at random moments while they save, drain, remove and restore checkpoints: the newest checkpoint
//! that was reported complete can be restored in full, incomplete ones are never offered, and leftovers do not
//! accumulate.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::kills::{Killer, span};
use crate::util::{Dir, Done, Running, TINY_MODEL, outcome, walk};

/// Kills per save mode: of runs that save and restore, and of runs that only restore.
const KILLS: u64 = 80;
const RESTORE_KILLS: u64 = 20;

/// Complete checkpoints that are kept, and checkpoints that may wait for their drain.
const KEPT: usize = 2;
const SLOTS: usize = 2;

/// A transformer whose checkpoints have 8 files and 8 MB, on 4 ranks.
const WORKLOAD: &str = "
checkpoint:
  checkpoint_folder: last
  num_checkpoints_write: 3
  num_checkpoints_read: 1
  time_between_checkpoints: 0
  chunk_size: 262144
  keep_last: 2
  burst_slots: 2
  fsync: true
";

/// A complete checkpoint, according to its manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    pub serial: u64,
    pub epoch: u64,
    pub step: u64,
    pub bytes: u64,
}

/// The folders of the checkpoints of one save mode.
struct Site {
    dir: Dir,
    mode: &'static str,
    /// In memory if possible, so that it is faster than the other tier.
    fast: TempDir,
}

impl Site {
    fn new(mode: &'static str) -> Site {
        let (dir, memory) = (Dir::new(), Path::new("/dev/shm"));
        dir.write("w.yaml", format!("{TINY_MODEL}{WORKLOAD}"));
        let fast = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Site { dir, mode, fast: fast.unwrap() }
    }

    fn start(&self, settings: &[&str]) -> Running<'_> {
        let args = ["run", "w.yaml", "--ranks", "4", "--json", "--save", self.mode];
        let fast = format!("checkpoint.burst_folder={}", self.fast.path().display());
        let fast: &[&str] = if self.mode == "burst-buffer" { &[&fast] } else { &[] };
        self.dir.feedline(&args).set(fast).set(settings).start()
    }

    fn saves(&self) -> Running<'_> {
        self.start(&[])
    }

    fn restores(&self) -> Running<'_> {
        self.start(&["checkpoint.num_checkpoints_write=0"])
    }

    fn tiers(&self) -> [PathBuf; 2] {
        [self.dir.path("last"), self.fast.path().to_owned()]
    }

    /// Every file and folder of both tiers, with sizes.
    fn listing(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        for tier in self.tiers() {
            walk(&tier, &mut |path| {
                let bytes = if path.is_file() { fs::metadata(path).unwrap().len() } else { 0 };
                found.push((path.to_owned(), bytes));
            });
        }
        found
    }

    /// The newest complete checkpoint. Checks that all of them have the files in their manifests.
    fn newest(&self) -> Standing {
        self.tiers().iter().flat_map(|tier| standing(tier)).max().unwrap()
    }

    /// Checks the number of folders after a kill: at most the kept checkpoints, one more, one that is being written
    /// next to the one it replaces, and one that is being removed.
    fn is_bounded(&self) {
        let [last, fast] = self.tiers().map(|tier| fs::read_dir(tier).unwrap().count());
        assert!(last <= KEPT + 3, "{last} folders in {:?}", self.listing());
        assert!(fast <= SLOTS + 2, "{fast} folders in {:?}", self.listing());
    }

    /// Checks that after a completed run there are only the kept checkpoints, all complete.
    fn is_in_order(&self) {
        let [last, fast] = self.tiers();
        assert_eq!((standing(&last).len(), fs::read_dir(&last).unwrap().count()), (KEPT, KEPT));
        assert_eq!(fs::read_dir(fast).unwrap().count(), 0);
        for (path, _) in self.listing() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(!name.ends_with(".partial") && !name.ends_with(".draft"), "left behind: {path:?}");
        }
    }

    /// Checks that a run that only restores finds this checkpoint, verifies every byte of it, and changes nothing.
    fn is_restored(&self, newest: &Standing) {
        let before = self.listing();
        let done = ended(self.restores().wait());
        let summary = done.json();
        let restored = &summary["feedline"]["checkpoint"]["restores"][0];
        assert_eq!(
            (restored["moment"]["step"].as_u64(), &restored["failure"]),
            (Some(newest.step), &Value::Null)
        );
        assert_eq!(restored["verified_bytes"].as_u64(), Some(newest.bytes));
        assert_eq!(outcome(&summary, "restored-right"), "pass");
        assert_eq!(self.listing(), before);
    }
}

/// The manifest of a checkpoint, if it is complete.
pub(crate) fn manifest(folder: &Path) -> Option<Value> {
    let text = fs::read_to_string(folder.join("checkpoint.json")).ok()?;
    Some(serde_json::from_str(text.rsplit_once("\nsha256 ").unwrap().0).unwrap())
}

/// The complete checkpoints of a tier. Checks that their files exist with the listed sizes.
pub(crate) fn standing(tier: &Path) -> Vec<Standing> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tier).into_iter().flatten() {
        let folder = entry.unwrap().path();
        let Some(list) = manifest(&folder) else { continue };
        let mut bytes = 0;
        for file in list["files"].as_array().unwrap() {
            let size = fs::metadata(folder.join(file["name"].as_str().unwrap())).unwrap().len();
            assert_eq!(file["bytes"].as_u64(), Some(size), "{file} in {folder:?}");
            bytes += size;
        }
        let number = |value: &Value| value.as_u64().unwrap();
        found.push(Standing {
            serial: number(&list["serial"]),
            epoch: number(&list["moment"]["epoch"]),
            step: number(&list["moment"]["step"]),
            bytes,
        });
    }
    found
}

/// Checks that a run completed. Rules about cached restores and a busy client may fail.
fn ended(done: Done) -> Done {
    let of_speed = |rule: &String| ["restored-from-storage", "client-not-the-limit"].contains(&rule.as_str());
    let only_slow = done.code() == Some(5) && done.failed_rules().iter().all(of_speed);
    if done.code() != Some(0) && !only_slow {
        done.fail("expected a completed run");
    }
    done
}

/// The last step that a run saved and reported as complete. On the last tier, a drain may report a checkpoint of an
/// earlier run.
fn promised(done: &Done, mode: &str) -> Option<u64> {
    let place = if mode == "burst-buffer" { "complete on the fast tier" } else { "complete" };
    let steps = done.stderr.lines().filter_map(|line| {
        let (name, told) = line.strip_prefix("checkpoint global_epoch1_step")?.split_once(' ')?;
        assert!(["complete", "complete on the fast tier"].contains(&told), "{line}");
        (told == place).then(|| name.parse().unwrap())
    });
    steps.max()
}

fn is_killed_at_any_moment(mode: &'static str, seed: u64) {
    let site = Site::new(mode);
    let mut killer = Killer::new(seed, span(|| drop(ended(site.saves().wait()))));
    let mut newest = site.newest();
    let (mut runs, mut in_time) = (0, 0);
    while killer.killed < KILLS {
        let done = killer.end(site.saves());
        let now = site.newest();
        // The previous newest, or one that this run completed: at least the one that it reported.
        assert!(now >= newest, "{now:?} after {newest:?}");
        if let Some(step) = promised(&done, mode) {
            assert!(now.serial > newest.serial && now.step >= step, "{now:?}, {step} was reported complete");
            in_time += u64::from(done.signal().is_some());
        }
        newest = now;
        site.is_bounded();
        match done.signal() {
            Some(_) => site.is_restored(&newest),
            None => drop((ended(done), site.is_in_order())),
        }
        runs += 1;
        assert!(runs < 4 * KILLS, "{} of {runs} runs were killed", killer.killed);
    }
    assert!(in_time > KILLS / 4, "{in_time} runs had completed a checkpoint when they were killed");
    let (mut killer, before) = (Killer::new(seed, span(|| site.is_restored(&newest))), site.listing());
    while killer.killed < RESTORE_KILLS {
        killer.end(site.restores());
        assert_eq!(site.listing(), before, "a restore changes nothing");
    }
    ended(site.saves().wait());
    site.is_in_order();
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
fn saving_through_a_burst_buffer_is_killed_at_any_moment() {
    is_killed_at_any_moment("burst-buffer", 7);
}
