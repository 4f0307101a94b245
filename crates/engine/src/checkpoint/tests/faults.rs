//! Tiers that fail, are full, or disappear and come back: training continues where it can, the error is named, and no
//! complete checkpoint is lost. Also which files belong to feedline, and which runs may change them.

use std::collections::BTreeMap;
use std::fs;

use super::*;

/// A model whose checkpoints take milliseconds, with additional settings.
pub(super) fn tiny(overrides: &[&str]) -> CheckpointPlan {
    const SMALL: [&str; 5] = [
        "model.transformer.vocab_size=100",
        "model.transformer.hidden_size=32",
        "model.transformer.ffn_hidden_size=64",
        "checkpoint.chunk_size=16384",
        "checkpoint.files_in_flight=1",
    ];
    plan(&[&SMALL, overrides].concat(), 2, 1)
}

/// Both tiers, named as by a user, and the settings of a burst buffer.
pub(super) fn bench(overrides: &[&str], fast: Option<Box<dyn Tier>>, last: Box<dyn Tier>) -> Bench {
    let mode: &[&str] = if fast.is_some() { &["checkpoint.mode_of_save=burst-buffer"] } else { &[] };
    Bench { plan: tiny(&[mode, overrides].concat()), fast, last, stop: Stop::default() }
}

pub(super) fn posix(root: &Path) -> Box<dyn Tier> {
    tier("posix", root)
}

fn faulty(rule: &str, root: &Path) -> Box<dyn Tier> {
    tier(&format!("fault:posix,{rule}"), root)
}

/// Every file below a folder with its bytes, and every folder.
pub(super) fn tree(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, path.is_file().then(|| fs::read(&path).unwrap()));
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

fn troubles(saved: &SaveRecord) -> String {
    saved.troubles.join("; ")
}

#[test]
fn a_drain_that_fails_for_a_while_succeeds_later() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let slow = faulty("kind=eio,file=optim,limit=3", last.path());
    let bench = bench(&[], Some(posix(fast.path())), slow);
    let (_, saved) = bench.keep(|checkpointer| checkpointer.save(at(1)));
    assert!(troubles(&saved[0]).contains("optim_states.pt: "), "{}", troubles(&saved[0]));
    assert!(saved[0].durable_ns.is_some() && saved[0].drain_ns.is_some());
    assert_eq!(complete(last.path()), ["global_epoch1_step1"]);
    assert_eq!(tree(fast.path()).len(), 0);
}

#[test]
fn a_last_tier_that_keeps_failing_costs_slots_but_no_checkpoint() {
    for (rule, words) in [("kind=eio,file=optim", "Input/output"), ("kind=full", "no space left")] {
        let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let slow = faulty(rule, last.path());
        let failing = bench(&["checkpoint.burst_slots=2"], Some(posix(fast.path())), slow);
        let (_, saved) = failing.keep(|checkpointer| (1..=4).map(|step| checkpointer.save(at(step))).max());
        for seen in &saved[..2] {
            assert!(seen.fast_ns.is_some() && seen.durable_ns.is_none(), "{seen:?}");
            assert!(troubles(seen).contains(words), "{}", troubles(seen));
            assert!(seen.troubles.len() <= 2, "the same cause is reported once per file");
        }
        for seen in &saved[2..] {
            assert!(!seen.is_complete());
            let told = troubles(seen);
            assert!(told.starts_with("no slot on the fast tier") && told.contains(words), "{told}");
        }
        assert_eq!(complete(fast.path()), ["global_epoch1_step1", "global_epoch1_step2"]);
        if rule == "kind=full" {
            assert_eq!(tree(last.path()).len(), 0, "no partial checkpoint is left there");
            // A run that finds them there reports why they stay.
            let (_, saved) = failing.keep(|checkpointer| checkpointer.save(at(5)));
            let told = troubles(&saved[0]);
            assert!(told.contains("of an earlier run: drain: ") && told.contains(words), "{told}");
        }
        // The next run, on a working tier, finishes the drains.
        let mended = bench(&[], Some(posix(fast.path())), posix(last.path()));
        let (restored, _) = mended.keep(|checkpointer| checkpointer.restore(newest()).unwrap());
        assert_eq!(restored.moment, at(2));
        assert_eq!(complete(last.path()), ["global_epoch1_step1", "global_epoch1_step2"]);
        assert_eq!(tree(fast.path()).len(), 0);
    }
}

#[test]
fn a_full_last_tier_keeps_its_checkpoints() {
    let last = tempfile::tempdir().unwrap();
    bench(&[], None, posix(last.path())).keep(|checkpointer| checkpointer.save(at(1)));
    let before = tree(last.path());
    for (mode, step) in [("direct", 2), ("async", 2), ("direct", 1), ("async", 1)] {
        // Full from the beginning, in the middle of the files, and when the manifest is written.
        for rule in ["kind=full", "kind=full,file=optim", "kind=full,file=checkpoint.json"] {
            let mode = format!("checkpoint.mode_of_save={mode}");
            let full = bench(&[&mode], None, faulty(rule, last.path()));
            let (_, saved) = full.keep(|checkpointer| checkpointer.save(at(step)));
            assert!(troubles(&saved[0]).starts_with("no space left"), "{rule}: {saved:?}");
            assert!(!saved[0].is_complete());
            assert!(
                tree(last.path()) == before,
                "{mode}, {rule}: existing checkpoints stay, and nothing is added"
            );
        }
    }
}

#[test]
fn a_last_tier_that_was_away_gets_all_missed_checkpoints() {
    let (fast, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (last, away) = (place.path().join("last"), place.path().join("away"));
    let bench = bench(&["checkpoint.burst_slots=2"], Some(posix(fast.path())), posix(&last));
    let (_, saved) = bench.keep(|checkpointer| {
        checkpointer.save(at(1));
        while checkpointer.state().undrained.contains(&at(1)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::rename(&last, &away).unwrap();
        checkpointer.save(at(2));
        checkpointer.save(at(3));
        // Longer than it takes until a drain counts as failing.
        let told = |state: &BackgroundState| state.saved[1..3].iter().all(|seen| !seen.troubles.is_empty());
        while checkpointer.state().drain_failure.is_none() || !told(&checkpointer.state()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        checkpointer.save(at(4));
        fs::rename(&away, &last).unwrap();
        while !checkpointer.state().undrained.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        checkpointer.save(at(5));
    });
    for seen in [&saved[1], &saved[2]] {
        assert!(troubles(seen).ends_with("last does not exist"), "{}", troubles(seen));
        assert!(seen.durable_ns.is_some());
    }
    assert!(troubles(&saved[3]).contains("draining fails") && !saved[3].is_complete());
    assert!(saved[4].troubles.is_empty() && saved[4].durable_ns.is_some());
    let there = [1, 2, 3, 5].map(|step| format!("global_epoch1_step{step}"));
    assert_eq!(complete(&last), there);
}

#[test]
fn an_interrupted_save_keeps_the_previous_checkpoint() {
    let last = tempfile::tempdir().unwrap();
    bench(&[], None, posix(last.path())).keep(|checkpointer| checkpointer.save(at(1)));
    let before = tree(last.path());
    for mode in ["direct", "async"] {
        let stopped = bench(&[&format!("checkpoint.mode_of_save={mode}")], None, posix(last.path()));
        let (_, saved) = stopped.keep(|checkpointer| {
            stopped.stop.wish();
            (checkpointer.save(at(1)), checkpointer.save(at(2)))
        });
        assert!(saved.iter().all(|seen| !seen.is_complete() && troubles(seen) == "interrupted"), "{saved:?}");
        assert!(tree(last.path()) == before, "{mode}");
    }
}

#[test]
fn a_failed_restore_is_named_and_changes_nothing() {
    let last = tempfile::tempdir().unwrap();
    bench(&[], None, posix(last.path())).keep(|checkpointer| checkpointer.save(at(1)));
    let before = tree(last.path());
    for rule in ["kind=eio,file=optim,after=1", "kind=eio,file=checkpoint.json"] {
        let reads = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
        let failing = bench(&reads, None, faulty(rule, last.path()));
        let error = failing.keep(|checkpointer| checkpointer.restore(newest())).0.unwrap_err().to_string();
        // Two threads restore: the second operation is a read of the first file or the opening of the second.
        let is_named = ["cannot read ", "cannot open "].iter().any(|words| error.starts_with(words));
        assert!(is_named && error.contains("global_epoch1_step1/"), "{error}");
        assert!(tree(last.path()) == before);
    }
    let (restored, _) =
        bench(&[], None, posix(last.path())).keep(|checkpointer| checkpointer.restore(newest()).unwrap());
    assert_eq!(restored.moment, at(1));
}

#[test]
fn a_drain_that_only_lacks_its_last_step_copies_nothing() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for place in [&fast, &last] {
        bench(&[], None, posix(place.path())).keep(|checkpointer| checkpointer.save(at(1)));
    }
    // It could not copy anything.
    let full = || bench(&[], Some(posix(fast.path())), faulty("kind=full", last.path()));
    full().keep(|_| ());
    assert_eq!(tree(fast.path()).len(), 0);
    // But if a file on the last tier has changed, the fast tier has the only good copy.
    bench(&[], None, posix(fast.path())).keep(|checkpointer| checkpointer.save(at(1)));
    let file = last.path().join("global_epoch1_step1/zero_pp_rank_0_mp_rank_0_optim_states.pt");
    fs::write(&file, "short").unwrap();
    full().keep(|_| ());
    assert_eq!(complete(fast.path()), ["global_epoch1_step1"]);
    bench(&[], Some(posix(fast.path())), posix(last.path())).keep(|_| ());
    assert!(fs::metadata(&file).unwrap().len() > 5 && tree(fast.path()).is_empty());
}

#[test]
fn without_fsync_a_checkpoint_is_still_complete_only_when_durable() {
    let last = tempfile::tempdir().unwrap();
    let unsafe_save = ["checkpoint.fsync=false"];
    let (restored, saved) = bench(&unsafe_save, None, posix(last.path())).keep(|checkpointer| {
        checkpointer.save(at(1));
        checkpointer.restore(newest()).unwrap()
    });
    assert_eq!(restored.moment, at(1), "a restore waits for saves in the background");
    assert!(saved[0].durable_ns.is_some());
    // The write succeeds and the flush fails: training does not notice, and there is no checkpoint.
    let plan = tiny(&unsafe_save);
    let file = plan.geometry.files(1).into_iter().find(|file| file.name.contains("optim")).unwrap();
    let writes = file.bytes.div_ceil(plan.chunk_bytes);
    let rule = format!("kind=eio,file={},after={},limit=1", file.name, 1 + writes + 1);
    let failing = bench(&unsafe_save, None, faulty(&rule, last.path()));
    let (_, saved) = failing.keep(|checkpointer| checkpointer.save(at(2)));
    assert!(troubles(&saved[0]).starts_with("cannot flush"), "{saved:?}");
    assert!(!saved[0].is_complete());
    assert_eq!(complete(last.path()), ["global_epoch1_step1"]);
    assert!(!last.path().join("global_epoch1_step2").exists());
    // Also through a fast tier.
    let fast = tempfile::tempdir().unwrap();
    let through = bench(&unsafe_save, Some(posix(fast.path())), posix(last.path()));
    let (_, saved) = through.keep(|checkpointer| checkpointer.save(at(3)));
    assert!(saved[0].fast_ns.is_some() && saved[0].durable_ns > saved[0].fast_ns, "{saved:?}");
    assert_eq!(complete(last.path()), ["global_epoch1_step1", "global_epoch1_step3"]);
}

#[test]
fn files_of_others_are_never_touched() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keep_one = || bench(&["checkpoint.keep_last=1"], Some(posix(fast.path())), posix(last.path()));
    // Another program's checkpoint in a folder named like feedline's; notes; a note in a checkpoint of feedline's.
    for root in [fast.path(), last.path()] {
        fs::create_dir(root.join("global_epoch1_step7")).unwrap();
        fs::write(root.join("global_epoch1_step7/zero_pp_rank_0_mp_rank_0_optim_states.pt"), "theirs")
            .unwrap();
        fs::write(root.join("notes.partial"), "theirs").unwrap();
    }
    let before = (tree(fast.path()), tree(last.path()));
    keep_one().keep(|checkpointer| checkpointer.save(at(1)));
    fs::write(last.path().join("global_epoch1_step1/note"), "theirs").unwrap();
    let (_, saved) = keep_one().keep(|checkpointer| (checkpointer.save(at(2)), checkpointer.save(at(7))));
    assert!(saved[0].troubles.is_empty());
    assert!(
        troubles(&saved[1]).contains("global_epoch1_step7 holds files that feedline did not"),
        "{saved:?}"
    );
    let ours: Vec<String> = tree(last.path().join("global_epoch1_step1").as_path()).into_keys().collect();
    assert_eq!(ours, ["note"]);
    assert_eq!(complete(last.path()), ["global_epoch1_step2"]);
    fs::remove_dir_all(last.path().join("global_epoch1_step1")).unwrap();
    fs::remove_dir_all(last.path().join("global_epoch1_step2")).unwrap();
    assert!((tree(fast.path()), tree(last.path())) == before);
}

#[test]
fn checkpoints_of_another_model_do_not_count_and_are_not_removed() {
    let last = tempfile::tempdir().unwrap();
    let other = Bench { plan: plan(&[], 4, 64), ..bench(&[], None, posix(last.path())) };
    other.keep(|checkpointer| checkpointer.save(at(1)));
    let keep_one = bench(&["checkpoint.keep_last=1"], None, posix(last.path()));
    keep_one.keep(|checkpointer| (checkpointer.save(at(2)), checkpointer.save(at(3))));
    assert_eq!(complete(last.path()), ["global_epoch1_step1", "global_epoch1_step3"]);
}

#[test]
fn one_run_writes_at_a_time_and_many_read() {
    let last = tempfile::tempdir().unwrap();
    let (writes, again) = (bench(&[], None, posix(last.path())), bench(&[], None, posix(last.path())));
    let reads = || {
        let only = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
        bench(&only, None, posix(last.path()))
    };
    writes.keep(|checkpointer| {
        checkpointer.save(at(1));
        let error = again.try_keep(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("another feedline is writing to"), "{error}");
        assert!(reads().try_keep(|_| ()).is_err());
    });
    reads().keep(|checkpointer| {
        checkpointer.restore(newest()).unwrap();
        reads().keep(|checkpointer| checkpointer.restore(newest()).unwrap());
        assert!(again.try_keep(|_| ()).is_err());
    });
    let same = bench(&[], Some(posix(last.path())), posix(last.path()));
    assert!(
        same.try_keep(|_| ()).unwrap_err().to_string().contains("cannot be both the fast tier and the last")
    );
}

#[test]
fn a_checkpoint_that_is_being_read_is_not_removed() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keep_one = bench(&["checkpoint.keep_last=1"], Some(posix(fast.path())), posix(last.path()));
    keep_one.keep(|checkpointer| checkpointer.save(at(1)));
    keep_one.keep(|checkpointer| {
        let reading = checkpointer.reading();
        checkpointer.save(at(2));
        while complete(last.path()).len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(complete(fast.path()), ["global_epoch1_step2"], "it is drained but stays");
        assert_eq!(complete(last.path()), ["global_epoch1_step1", "global_epoch1_step2"]);
        drop(reading);
    });
    assert_eq!(complete(last.path()), ["global_epoch1_step2"]);
    assert_eq!(tree(fast.path()).len(), 0);
}

#[test]
fn a_run_that_only_restores_changes_nothing() {
    let (fast, last) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    bench(&[], None, posix(fast.path())).keep(|checkpointer| checkpointer.save(at(2)));
    // Left by a run that was killed: a partial checkpoint, and the one that it was to replace.
    bench(&[], None, posix(last.path())).keep(|checkpointer| checkpointer.save(at(1)));
    fs::rename(last.path().join("global_epoch1_step1"), last.path().join("global_epoch1_step1.replaced"))
        .unwrap();
    fs::create_dir(last.path().join("global_epoch1_step1")).unwrap();
    fs::write(last.path().join("global_epoch1_step1/checkpoint.draft.partial"), "").unwrap();
    let before = (tree(fast.path()), tree(last.path()));
    let only = ["checkpoint.num_checkpoints_write=0", "checkpoint.num_checkpoints_read=1"];
    let reads = bench(&only, Some(posix(fast.path())), posix(last.path()));
    let wish = |moment| RestoreRequest { moment: Some(moment), cold: false };
    let ((two, one), _) = reads.keep(|checkpointer| {
        (checkpointer.restore(wish(at(2))).unwrap(), checkpointer.restore(wish(at(1))).unwrap())
    });
    assert_eq!((two.from_fast, one.from_fast), (true, false));
    assert!((tree(fast.path()), tree(last.path())) == before);
    // A run that saves recovers it.
    bench(&[], Some(posix(fast.path())), posix(last.path())).keep(|_| ());
    assert_eq!(complete(last.path()), ["global_epoch1_step1", "global_epoch1_step2"]);
    assert_eq!(fs::read_dir(last.path()).unwrap().count(), 2);
}
