//! Settings from the command line: which one wins, how messages name it, and values with special characters.

use std::fs;

use crate::util::{Dir, TINY_MODEL};

#[test]
fn a_checkpoint_folder_can_have_any_name() {
    for name in
        ["it's", "a b", "$HOME", "${x}", "gr\u{f6}\u{df}e", "a=b", "[1,2]", "\"", "true", "back\\slash"]
    {
        let dir = Dir::new();
        dir.write("w.yaml", TINY_MODEL);
        let once = ["checkpoint.num_checkpoints_write=1", "checkpoint.num_checkpoints_read=0"];
        let run = dir.feedline(&["run", "w.yaml", "--quiet", "--checkpoint-dir", name]);
        run.set(&once).set(&["checkpoint.fsync=true"]).run().ran();
        assert!(fs::read_dir(dir.path(name)).unwrap().count() > 0, "{name}");
    }
}

#[test]
fn an_error_names_the_flag_that_was_given() {
    let dir = Dir::small();
    for (flags, place) in [
        (&["--cache", "hot"][..], "--> --cache\n"),
        (&["--cache-proof", "some"], "--> --cache-proof\n"),
        (&["--save", "later"], "--> --save\n"),
        (&["--stall-timeout", "1us"], "--> --stall-timeout\n"),
        (&["--set", "reader.cache=hot"], "--> --set reader.cache=hot\n"),
    ] {
        dir.feedline(&["run", "w.yaml", "--store", "null"]).args(flags).run().exits(2).says(place);
    }
    let over = ["sweep", "w.yaml", "--store", "null", "--over", "reader.cache=cold,hot"];
    dir.feedline(&over).run().exits(2).says("--> --over reader.cache=hot\n");
}

/// The flags for folders and the I/O backend win over their keys, wherever the keys are set.
#[test]
fn flags_for_folders_and_backend_win_over_set() {
    let dir = Dir::small();
    let set = ["dataset.data_folder=unused", "output.folder=unused", "storage.store=mmap"];
    dir.feedline(&["generate", "w.yaml", "--quiet", "--data-dir", "data"]).set(&set).run().exits(0);
    let flags = ["--store", "posix", "--data-dir", "data", "--results-dir", "results", "--quiet", "--json"];
    dir.feedline(&["run", "w.yaml", "--no-calibration"]).args(&flags).set(&set).run().ran();
    let results = dir.results_below("results");
    assert_eq!(results.len(), 1);
    assert_eq!(dir.json(&format!("{}/plan.json", results[0]))["store"], "posix");
    assert!(!dir.path("unused").exists());
}

#[test]
fn a_set_without_effect_is_reported() {
    let dir = Dir::small();
    let run =
        dir.feedline(&["plan", "w.yaml", "--cache", "warm", "--set", "reader.cache=cold"]).run().exits(0);
    let warning = "'reader.cache' at --set reader.cache=cold has no effect: --cache overrides it";
    assert!(run.stderr.contains(warning), "{}", run.stderr);
    let help = dir.feedline(&["--help"]).run().exits(0).stdout;
    assert!(help.contains("from the weakest to the strongest"), "{help}");
}
