//! Files of other users: whatever object is planted at a name that feedline writes or removes, the object and what it
//! points to are unchanged, and the command ends with a result or with an error that names it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::util::{Dir, Done, TINY_MODEL, walk};

/// The kind of a planted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LinkToFile,
    LinkToFolder,
    LinkToNothing,
    HardLink,
    Pipe,
    Folder,
}

const KINDS: [Kind; 6] =
    [Kind::LinkToFile, Kind::LinkToFolder, Kind::LinkToNothing, Kind::HardLink, Kind::Pipe, Kind::Folder];

/// A folder of another user.
fn theirs(dir: &Dir) {
    dir.write("theirs/precious", "work of years");
    dir.write("theirs/folder/precious", "more of it");
}

/// Every file of the other user with its content, and every other entry.
fn snapshot(dir: &Dir) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    walk(&dir.path("theirs"), &mut |path| {
        found.insert(path.to_owned(), fs::read(path).unwrap_or_default());
    });
    found
}

/// Plants an object at a name, in place of an existing one.
fn plant(dir: &Dir, name: &str, kind: Kind) {
    let path = dir.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(&path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(&path).unwrap();
    }
    let at = |name: &str| dir.path("theirs").join(name);
    match kind {
        Kind::LinkToFile => symlink(at("precious"), path).unwrap(),
        Kind::LinkToFolder => symlink(at("folder"), path).unwrap(),
        Kind::LinkToNothing => symlink(at("new"), path).unwrap(),
        Kind::HardLink => fs::hard_link(at("precious"), path).unwrap(),
        Kind::Pipe => {
            let mode = rustix::fs::Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        Kind::Folder => {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("precious"), "in a folder").unwrap();
        }
    }
}

/// The identity of a planted object.
fn identity(path: &Path) -> Option<(u64, bool, bool, bool)> {
    let facts = path.symlink_metadata().ok()?;
    let kind = facts.file_type();
    Some((facts.ino(), kind.is_symlink(), kind.is_fifo(), kind.is_dir()))
}

/// Whether feedline may replace a planted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Never.
    Free,
    /// If it is a regular file, because feedline's manifest lists the name.
    Listed,
    /// If it is a folder, which feedline may write to.
    Folder,
}

/// Plants every kind of object at each of the names and runs the command.
fn planted_objects_are_kept(names: &[(&str, Name)], site: impl Fn() -> Dir, command: impl Fn(&Dir) -> Done) {
    for (name, whose) in names {
        for kind in KINDS {
            if *whose == Name::Folder && kind == Kind::Folder {
                continue;
            }
            let dir = site();
            theirs(&dir);
            plant(&dir, name, kind);
            let (before, planted) = (snapshot(&dir), identity(&dir.path(name)));
            let done = command(&dir);
            let what = format!("{kind:?} at {name}");
            if ![Some(0), Some(2), Some(3), Some(4), Some(5)].contains(&done.code()) {
                done.fail(&what);
            }
            if snapshot(&dir) != before {
                done.fail(&format!("{what}: files of another user were changed"));
            }
            let ours_to_replace = *whose == Name::Listed && kind == Kind::HardLink;
            if !ours_to_replace && identity(&dir.path(name)) != planted {
                done.fail(&format!("{what}: it was replaced or removed"));
            }
            if kind == Kind::Folder && dir.read(&format!("{name}/precious")) != "in a folder" {
                done.fail(&format!("{what}: its content was changed"));
            }
            // For files that no manifest lists, the error names their folder.
            let named =
                done.stderr.contains(name.split_once('/').unwrap().1) || done.stderr.contains("train/ holds");
            if [Some(3), Some(4)].contains(&done.code()) && !named {
                done.fail(&format!("{what}: the error does not name it"));
            }
        }
    }
}

#[test]
fn generate_keeps_planted_objects_in_a_new_folder() {
    let names = [
        ("data/.feedline", Name::Folder),
        ("data/.feedline/dataset.json", Name::Free),
        ("data/.feedline/dataset.json.partial", Name::Free),
        ("data/.mlps-datagen-manifest.json", Name::Free),
        ("data/.mlps-datagen-manifest.json.partial", Name::Free),
        ("data/train", Name::Folder),
        ("data/train/img_03_of_24.npz", Name::Free),
        ("data/train/img_03_of_24.npz.partial", Name::Free),
    ];
    planted_objects_are_kept(&names, Dir::small, |dir| {
        dir.feedline(&["generate", "w.yaml", "--quiet"]).run()
    });
}

#[test]
fn generate_keeps_planted_objects_in_its_own_folder() {
    let names = [
        ("data/.feedline/dataset.json.partial", Name::Free),
        ("data/.mlps-datagen-manifest.json", Name::Listed),
        ("data/.mlps-datagen-manifest.json.partial", Name::Free),
        ("data/train", Name::Folder),
        ("data/train/img_03_of_24.npz", Name::Listed),
        ("data/train/img_03_of_24.npz.partial", Name::Free),
    ];
    let flags = ["generate", "w.yaml", "--quiet", "--overwrite", "--set", "train.seed=7"];
    planted_objects_are_kept(&names, Dir::small_with_data, |dir| dir.feedline(&flags).run());
}

#[test]
fn named_temporary_files_do_not_follow_links() {
    // Files without a name are linked through /proc. If /proc is missing, they have a temporary name.
    let generate = |dir: &Dir| {
        let script = "mount -t tmpfs tmpfs /proc || exit 99; exec \"$0\" generate w.yaml --quiet --overwrite";
        let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let args = [namespace, "bash", "-c", script, env!("CARGO_BIN_EXE_feedline")];
        let done = dir.command(Path::new("unshare"), &args).run();
        if done.code() == Some(99) {
            done.fail("this test mounts an empty /proc and needs root or user namespaces");
        }
        done
    };
    let names = [
        ("data/train", Name::Folder),
        ("data/train/img_03_of_24.npz", Name::Listed),
        ("data/train/img_03_of_24.npz.partial", Name::Free),
    ];
    planted_objects_are_kept(&names, Dir::small_with_data, generate);
    let dir = Dir::small_with_data();
    let whole = dir.tree("data");
    dir.write("data/train/img_03_of_24.npz.partial", "leftover of an interrupted run");
    generate(&dir).exits(0);
    assert_eq!(dir.tree("data"), whole);
}

#[test]
fn index_files_are_not_written_through_links() {
    let names = [
        ("data/index", Name::Folder),
        ("data/index/train", Name::Folder),
        ("data/index/train/img_03_of_24.tfrecord.idx", Name::Listed),
        ("data/index/train/img_03_of_24.tfrecord.idx.partial", Name::Free),
    ];
    let set = ["dataset.format=tfrecord", "framework=tensorflow", "reader.data_loader=tensorflow"];
    planted_objects_are_kept(&names, Dir::small, |dir| {
        dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&set).run()
    });
}

#[test]
fn a_catalog_keeps_planted_objects() {
    let site = || {
        let dir = Dir::new();
        dir.write("data/a.jpg", "x");
        dir.write("out/other", "x");
        dir
    };
    let inside = [
        ("data/.feedline", Name::Folder),
        ("data/.feedline/catalog", Name::Free),
        ("data/.feedline/catalog.partial", Name::Free),
        ("data/.feedline/catalog.new", Name::Free),
    ];
    planted_objects_are_kept(&inside, site, |dir| dir.feedline(&["catalog", "data", "--quiet"]).run());
    let outside = [("out/list", Name::Free), ("out/list.partial", Name::Free), ("out/list.new", Name::Free)];
    planted_objects_are_kept(&outside, site, |dir| {
        dir.feedline(&["catalog", "data", "--output", "out/list", "--quiet"]).run()
    });
}

#[test]
fn a_catalog_does_not_replace_other_files() {
    for name in ["catalog", "catalog.partial"] {
        let dir = Dir::new();
        dir.write("data/a.jpg", "x");
        dir.write(&format!("data/.feedline/{name}"), "theirs");
        let done =
            dir.feedline(&["catalog", "data", "--quiet"]).run().exits(if name == "catalog" { 2 } else { 3 });
        done.one_error().says(name).says("remove it");
        assert_eq!(dir.read(&format!("data/.feedline/{name}")), "theirs");
    }
}

/// A sweep of two runs, into the folder `out`.
fn sweep(dir: &Dir) -> Done {
    let flags = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--repeat", "1", "--output", "out"];
    dir.feedline(&flags).args(&["--over", "reader.read_threads=1,2", "--store", "null"]).run()
}

#[test]
fn a_sweep_keeps_planted_objects() {
    let names = [
        ("out/cells.jsonl", Name::Free),
        ("out/sweep.csv", Name::Free),
        ("out/sweep.csv.partial", Name::Free),
        ("out/sweep.json", Name::Free),
        ("out/sweep.json.partial", Name::Free),
        ("out/sweep.svg", Name::Free),
        ("out/sweep.svg.partial", Name::Free),
    ];
    planted_objects_are_kept(&names, Dir::small, sweep);
}

#[test]
fn capacity_and_stall_keep_planted_objects() {
    let capacity = |dir: &Dir| {
        let flags = ["capacity", "w.yaml", "--quiet", "--store", "null", "--up-to", "1", "--output", "out"];
        dir.feedline(&flags).set(&["train.computation_time=0.001", "dataset.num_files_train=200"]).run()
    };
    let names = ["trials.jsonl", "capacity.csv", "capacity.csv.partial", "capacity.json", "capacity.svg"];
    let names = names.map(|name| format!("out/{name}"));
    let names: Vec<(&str, Name)> = names.iter().map(|name| (name.as_str(), Name::Free)).collect();
    planted_objects_are_kept(&names, Dir::small, capacity);
    let stall = |dir: &Dir| {
        let flags = ["stall", "w.yaml", "--quiet", "--store", "null", "--output", "out"];
        dir.feedline(&flags).set(&["dataset.num_files_train=200"]).run()
    };
    let names = ["out/runs.jsonl", "out/stall.csv", "out/stall.json", "out/stall.svg.partial"];
    planted_objects_are_kept(&names.map(|name| (name, Name::Free)), Dir::small, stall);
}

#[test]
fn a_sweep_does_not_touch_files_that_it_did_not_write() {
    for (name, text) in [("cells.jsonl", "no end of line"), ("cells.jsonl", "a\nb"), ("sweep.csv", "theirs")]
    {
        let dir = Dir::small();
        dir.write(&format!("out/{name}"), text);
        sweep(&dir).exits(3).one_error().says(name);
        assert_eq!(dir.read(&format!("out/{name}")), text);
    }
}

#[test]
fn a_result_keeps_planted_objects() {
    // The names contain the process id and the time at which the run ends.
    let script = "for name in feedline-results feedline-results/w; do mkdir -p $name; done
        NAMES=\"$1\"; for name in $(eval echo $NAMES); do
            case $2 in
                LinkToFile) ln -s ../../theirs/precious feedline-results/w/$name;;
                LinkToFolder) ln -s ../../theirs/folder feedline-results/w/$name;;
                LinkToNothing) ln -s ../../theirs/new feedline-results/w/$name;;
                HardLink) ln theirs/precious feedline-results/w/$name;;
                Pipe) mkfifo feedline-results/w/$name;;
                Folder) mkdir feedline-results/w/$name; echo theirs > feedline-results/w/$name/spec.yaml;;
            esac
        done
        ls -Ai feedline-results/w > planted
        exec $0 run w.yaml --quiet --store null";
    let stamps = "$(for s in 0 1 2 3 4 5 6 7 8 9; do date -d \"+$s seconds\" +%Y%m%d_%H%M%S; done)";
    for names in [".partial-$$", stamps] {
        for kind in KINDS {
            let dir = Dir::small();
            theirs(&dir);
            let before = snapshot(&dir);
            let program = env!("CARGO_BIN_EXE_feedline");
            let args = ["-c", script, program, names, &format!("{kind:?}")];
            let done = dir.command(Path::new("bash"), &args).run();
            let what = format!("{kind:?} at {names}");
            // A busy machine may make the verdict invalid.
            if snapshot(&dir) != before || ![Some(0), Some(5)].contains(&done.code()) {
                done.fail(&what);
            }
            let mut entries = String::new();
            for entry in fs::read_dir(dir.path("feedline-results/w")).unwrap().flatten() {
                let inode = entry.path().symlink_metadata().unwrap().ino();
                entries.push_str(&format!("{inode} {}\n", entry.file_name().to_str().unwrap()));
            }
            for line in dir.read("planted").lines() {
                assert!(entries.contains(line.trim()), "{what}: {line} is gone from {entries}");
            }
        }
    }
}

#[test]
fn a_results_folder_may_be_a_link_but_its_folders_may_not() {
    let dir = Dir::small();
    theirs(&dir);
    symlink("theirs/folder", dir.path("feedline-results")).unwrap();
    dir.feedline(&["run", "w.yaml", "--quiet", "--store", "null"]).run().ran();
    assert_eq!(dir.results_below("theirs/folder").len(), 1);
    let dir = Dir::small();
    theirs(&dir);
    let before = snapshot(&dir);
    fs::create_dir(dir.path("feedline-results")).unwrap();
    symlink("../theirs/folder", dir.path("feedline-results/w")).unwrap();
    let done = dir.feedline(&["run", "w.yaml", "--quiet", "--store", "null"]).run().exits(3);
    done.one_error().says("feedline-results/w is a symbolic link");
    assert_eq!(snapshot(&dir), before);
}

#[test]
fn data_may_be_read_through_links() {
    let dir = Dir::small_with_data();
    fs::rename(dir.path("data/train"), dir.path("elsewhere")).unwrap();
    symlink("../elsewhere", dir.path("data/train")).unwrap();
    fs::rename(dir.path("elsewhere/img_03_of_24.npz"), dir.path("three")).unwrap();
    symlink("../three", dir.path("elsewhere/img_03_of_24.npz")).unwrap();
    dir.feedline(&["run", "w.yaml", "--quiet"]).run().ran();
    symlink("data", dir.path("linked")).unwrap();
    dir.feedline(&["run", "w.yaml", "--quiet", "--data-dir", "linked"]).run().ran();
    // Writing through a link is refused.
    let done = dir.feedline(&["generate", "w.yaml", "--quiet", "--overwrite"]).run().exits(3);
    done.one_error().says("data/train is a symbolic link");
}

const SAVES: [&str; 6] = ["run", "w.yaml", "--ranks", "2", "--json", "--quiet"];

/// A workload that saves two checkpoints and keeps one.
fn checkpoints() -> Dir {
    let dir = Dir::new();
    let settings = "checkpoint: {checkpoint_folder: last, burst_folder: fast, num_checkpoints_write: 2, \
                    num_checkpoints_read: 0, time_between_checkpoints: 0, keep_last: 1, fsync: true}\n";
    dir.write("w.yaml", format!("{TINY_MODEL}{settings}"));
    dir
}

fn save(dir: &Dir, mode: &str) -> Done {
    dir.feedline(&SAVES).args(&["--save", mode]).run()
}

/// The names, in and next to the folder of a checkpoint, that a save writes or removes.
fn names_of_a_checkpoint(tier: &str) -> Vec<(String, Name)> {
    let dir = checkpoints();
    save(&dir, "direct");
    let files = fs::read_dir(dir.path("last/global_epoch1_step2")).unwrap().flatten();
    let first = files.map(|file| file.file_name().into_string().unwrap()).find(|name| name.ends_with(".pt"));
    let within =
        ["checkpoint.draft", "checkpoint.draft.partial", "checkpoint.json", "checkpoint.json.partial"];
    let folder = format!("{tier}/global_epoch1_step1");
    let mut names: Vec<(String, Name)> =
        within.iter().map(|file| (format!("{folder}/{file}"), Name::Free)).collect();
    names.push((format!("{folder}/{}", first.unwrap()), Name::Free));
    names.push((format!("{folder}.replaced"), Name::Folder));
    names.push((folder, Name::Folder));
    names
}

#[test]
fn a_save_keeps_planted_objects() {
    for (mode, tier) in [("direct", "last"), ("burst-buffer", "fast"), ("burst-buffer", "last")] {
        let names = names_of_a_checkpoint(tier);
        let names: Vec<(&str, Name)> = names.iter().map(|(name, whose)| (name.as_str(), *whose)).collect();
        planted_objects_are_kept(&names, checkpoints, |dir| save(dir, mode));
    }
}

#[test]
fn removing_a_checkpoint_keeps_planted_objects() {
    // The first of two kept checkpoints is due for removal, and it contains an object of another user.
    let site = || {
        let dir = checkpoints();
        dir.feedline(&SAVES).set(&["checkpoint.keep_last=2"]).run();
        assert!(dir.path("last/global_epoch1_step1/checkpoint.json").exists());
        dir
    };
    let names = names_of_a_checkpoint("last");
    let names: Vec<(&str, Name)> = names
        .iter()
        .map(|(name, whose)| (name.as_str(), if name.ends_with(".pt") { Name::Free } else { *whose }))
        .collect();
    planted_objects_are_kept(&names, site, |dir| {
        dir.feedline(&SAVES).set(&["checkpoint.num_checkpoints_write=1"]).run()
    });
}

#[test]
fn a_linked_checkpoint_is_not_removed() {
    // A complete checkpoint in another folder, reached through a link, is due for removal.
    let dir = checkpoints();
    save(&dir, "direct").ran();
    fs::create_dir(dir.path("theirs")).unwrap();
    fs::rename(dir.path("last/global_epoch1_step2"), dir.path("theirs/global_epoch1_step2")).unwrap();
    symlink("../theirs/global_epoch1_step2", dir.path("last/global_epoch1_step2")).unwrap();
    let before = snapshot(&dir);
    assert!(before.len() > 4);
    let done = dir.feedline(&SAVES).set(&["checkpoint.num_checkpoints_write=1"]).run();
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    assert_eq!(snapshot(&dir), before);
}

#[test]
fn a_file_whose_size_differs_from_the_manifest_is_kept() {
    let dir = checkpoints();
    dir.feedline(&SAVES).set(&["checkpoint.keep_last=2"]).run();
    let folder = dir.path("last/global_epoch1_step1");
    let file = fs::read_dir(&folder).unwrap().flatten().map(|file| file.path());
    let file = file.filter(|path| path.extension().is_some_and(|end| end == "pt")).min().unwrap();
    fs::write(&file, "theirs").unwrap();
    let done = dir.feedline(&SAVES).set(&["checkpoint.num_checkpoints_write=1"]).run();
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    assert_eq!(fs::read(&file).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the rest of the checkpoint is removed");
}

/// Repeatedly swaps a folder for a link to another user's folder and back while `work` runs.
fn while_swapping(folder: &Path, theirs: &Path, work: impl FnOnce()) {
    let (over, away) = (AtomicBool::new(false), folder.with_extension("away"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if fs::rename(folder, &away).is_ok() {
                    let _ = symlink(theirs, folder);
                    let _ = fs::remove_file(folder);
                    let _ = fs::rename(&away, folder);
                }
            }
        });
        work();
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn folders_that_are_swapped_for_links_are_not_followed() {
    for round in 0..4 {
        let dir = checkpoints();
        dir.feedline(&SAVES).set(&["checkpoint.keep_last=2"]).run();
        let folder = dir.path("last/global_epoch1_step1");
        let copy = ["-r", "last/global_epoch1_step1", "theirs"];
        dir.command(Path::new("cp"), &copy).run().exits(0);
        let before = snapshot(&dir);
        while_swapping(&folder, &dir.path("theirs"), || {
            dir.feedline(&SAVES).set(&["checkpoint.num_checkpoints_write=1"]).run();
        });
        assert_eq!(snapshot(&dir), before, "round {round}");
    }
    for round in 0..4 {
        let dir = Dir::small();
        fs::create_dir_all(dir.path("data/train")).unwrap();
        theirs(&dir);
        let before = snapshot(&dir);
        while_swapping(&dir.path("data/train"), &dir.path("theirs"), || {
            dir.feedline(&["generate", "w.yaml", "--quiet", "--set", "dataset.num_files_train=500"]).run();
        });
        assert_eq!(snapshot(&dir), before, "round {round}");
    }
}
