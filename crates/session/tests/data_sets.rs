//! Data sets that several members write together, each a thread: the files are those of a single member, whatever their
//! number, and a member that fails is named by all.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::catalog::{self, ListOptions, OpenCatalog};
use engine::generate::Generated;
use engine::host::Host;
use engine::meter;
use engine::world::threads::{ThreadMember, members, members_on};
use engine::{Exchange, Solo, Stop};
use feedline_session::{
    Activity, ActivityUnit, Ask, Asked, DataSetTask, Error, ErrorKind, ObservedWork, Observer,
    SilentObserver, WorkloadText, observed, settle,
};
use model::location::Location;
use model::spec::Override;

const WORKLOAD: &str = "
dataset: {format: npz, num_files_train: 53, num_files_eval: 7, num_subfolders_train: 4, record_length_bytes: 9000,
          record_length_bytes_stdev: 4000}
workflow: {generate_data: true, evaluation: true}
reader: {stall_timeout: 20}
";
const FILES: u64 = 60;

fn asked(folder: &Path, settings: &[&str]) -> Asked {
    let (name, source, text) = ("w".to_owned(), "w.yaml".to_owned(), WORKLOAD.to_owned());
    let workload = WorkloadText { name, source, text, ranks: 1, built_in: false };
    let overrides = settings.iter().map(|setting| Override::hydra(setting, setting)).collect();
    let data = Some(Location::parse(folder));
    Ask { overrides, data, ..Ask::new(workload) }.read().unwrap()
}

const TASK: DataSetTask = DataSetTask { keep_seed: false, verify: false, writers: 2, overwrite: false };

/// Does something at all members, and returns what each returned.
fn at_all<T: Send>(worlds: Vec<ThreadMember>, work: impl Fn(&ThreadMember) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |world: ThreadMember| scope.spawn(move || work(&world));
        let threads: Vec<_> = worlds.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Generates with these members; each returns the same counts.
fn generate(worlds: Vec<ThreadMember>, task: DataSetTask, asked: &Asked) -> Generated {
    let all = at_all(worlds, |world| {
        task.run(asked, world, &SilentObserver, &Stop::default()).map(|(done, _)| done).unwrap()
    });
    assert!(all.iter().all(|done| *done == all[0]), "{all:?}");
    all[0]
}

/// All files below a folder, with their bytes.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                // It has the time of day.
                false if path.ends_with(".mlps-datagen-manifest.json") => {}
                false => {
                    found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn any_number_of_members_writes_the_same_folder() {
    let folders = tempfile::tempdir().unwrap();
    let mut trees = Vec::new();
    for (number, worlds) in
        [members(1), members(2), members_on(&["a", "a", "b"]), members(4)].into_iter().enumerate()
    {
        let folder = folders.path().join(number.to_string()).join("new");
        let asked = asked(&folder, &[]);
        let count = worlds.len() as u64;
        let done = generate(worlds, DataSetTask { verify: true, ..TASK }, &asked);
        assert_eq!((done.files_written, done.files_kept), (FILES, 0), "{count} members");
        assert_eq!(done.bytes_verified, done.bytes_written);
        let kept = generate(members(3), TASK, &asked);
        assert_eq!((kept.files_written, kept.files_kept), (0, FILES));
        let again = generate(members(2), DataSetTask { overwrite: true, ..TASK }, &asked);
        assert_eq!((again.files_written, again.files_kept), (FILES, 0));
        trees.push(tree(&folder));
    }
    assert_eq!(trees[0].len() as u64, FILES + 1, "the files and the manifest");
    assert!(trees.iter().all(|other| *other == trees[0]));
}

#[test]
fn compressed_files_get_one_catalog() {
    let folders = tempfile::tempdir().unwrap();
    let digests = [1, 3].map(|count| {
        let folder = folders.path().join(count.to_string());
        let asked = asked(&folder, &["dataset.compression=zip"]);
        assert_eq!(generate(members(count), TASK, &asked).files_written, FILES);
        let opened = || OpenCatalog::open(&catalog::find(&folder).unwrap(), &folder).unwrap();
        let made = std::fs::metadata(opened().path()).unwrap().modified().unwrap();
        assert_eq!((opened().files(), generate(members(2), TASK, &asked).files_written), (FILES, 0));
        assert_eq!(
            std::fs::metadata(opened().path()).unwrap().modified().unwrap(),
            made,
            "it is not made again"
        );
        std::fs::remove_file(opened().path()).unwrap();
        generate(members(2), TASK, &asked);
        opened().digest()
    });
    assert_eq!(digests[0], digests[1]);
}

/// What each member ends with if a file of one of them cannot be written, and the name of that file.
fn blocked(folder: &Path, count: u64, file: u64) -> Vec<Error> {
    let name = folder.join(format!("train/{}/img_{file:02}_of_53.npz", file % 4));
    std::fs::create_dir_all(&name).unwrap();
    let asked = asked(folder, &[]);
    let errors = at_all(members(count), |world| {
        TASK.run(&asked, world, &SilentObserver, &Stop::default()).unwrap_err()
    });
    std::fs::remove_dir(name).unwrap();
    errors
}

#[test]
fn a_member_that_cannot_write_ends_all_and_another_number_of_members_continues() {
    let folders = tempfile::tempdir().unwrap();
    let whole = folders.path().join("whole");
    generate(members(1), TASK, &asked(&whole, &[]));
    for (number, members_then) in [(0, 1), (1, 2), (2, 4)] {
        let folder = folders.path().join(number.to_string());
        // File 34 is written by member 1 of 3.
        let errors = blocked(&folder, 3, 34);
        let own = errors[1].to_string();
        assert!(own.contains("img_34_of_53.npz is a folder, but should be a file"), "{own}");
        for other in [&errors[0], &errors[2]] {
            assert_eq!(
                other.to_string(),
                format!("process 1 on host1 failed: {own}; the same command finishes the data set")
            );
            assert_eq!(other.kind(), ErrorKind::Incomplete);
        }
        let begun = tree(&folder);
        let text = String::from_utf8(begun[Path::new(".feedline/dataset.json")].clone()).unwrap();
        assert!(text.contains("\"complete\": false"), "{text}");
        let done = generate(members(members_then), TASK, &asked(&folder, &[]));
        assert_eq!(done.files_written + done.files_kept, FILES);
        assert_eq!(done.files_kept, begun.len() as u64 - 1, "what was written stays");
        assert!(tree(&folder) == tree(&whole));
    }
}

#[test]
fn a_member_that_leaves_or_stops_ends_the_others() {
    let folders = tempfile::tempdir().unwrap();
    for (leaves, expected) in [(true, "left before the run was complete"), (false, "was asked to stop")] {
        let asked = asked(&folders.path().join(leaves.to_string()), &[]);
        let errors = at_all(members(3), |world| {
            let stop = Stop::default();
            if world.member() == 2 {
                if leaves {
                    return String::new();
                }
                stop.wish();
            }
            TASK.run(&asked, world, &SilentObserver, &stop).unwrap_err().to_string()
        });
        for error in &errors[..2] {
            assert!(error.starts_with(&format!("process 2 on host2 {expected}")), "{errors:?}");
        }
        assert!(!folders.path().join(leaves.to_string()).exists());
    }
}

/// Each member sees a folder of its own.
#[test]
fn a_folder_that_is_not_shared_is_refused_before_anything_is_written() {
    let folders = tempfile::tempdir().unwrap();
    let root = |member: u64| folders.path().join(member.to_string());
    let refused = |expected: u64| {
        let errors = at_all(members_on(&["a", "b"]), |world| {
            let asked = asked(&root(world.member()), &[]);
            TASK.run(&asked, world, &SilentObserver, &Stop::default()).unwrap_err()
        });
        let own = errors[1].to_string();
        assert!(own.contains(" is not the folder that process 0 on a has at this path"), "{own}");
        assert_eq!(errors[1].kind(), ErrorKind::Refused);
        assert!(errors[0].to_string().starts_with(&format!("process 1 on b failed: {own}")), "{}", errors[0]);
        assert_eq!((tree(&root(0)).len() as u64, tree(&root(1)).len()), (expected, 0));
    };
    std::fs::create_dir(root(0)).unwrap();
    // The second folder does not exist, then it does.
    let errors = at_all(members(2), |world| {
        let asked = asked(&root(world.member()), &[]);
        TASK.run(&asked, world, &SilentObserver, &Stop::default()).is_err()
    });
    assert_eq!(errors, [true, true]);
    assert!(!root(1).exists());
    std::fs::create_dir(root(1)).unwrap();
    refused(0);
    assert_eq!(std::fs::read_dir(root(0)).unwrap().count(), 0, "no trace of the check is left");
    // Complete for member 0 only.
    generate(members(1), TASK, &asked(&root(0), &[]));
    refused(FILES + 1);
}

#[test]
fn members_that_find_different_files_are_named() {
    let folders = tempfile::tempdir().unwrap();
    let root = |member: u64| folders.path().join(member.to_string());
    for member in 0..2 {
        std::fs::create_dir_all(root(member).join("train")).unwrap();
        for file in 0..4 {
            let name = root(member).join(format!("train/img_{file}_of_4.jpeg"));
            std::fs::write(name, vec![0; 100 + (member * file) as usize]).unwrap();
        }
    }
    let settings = [
        "dataset.format=jpeg",
        "dataset.num_files_train=4",
        "dataset.num_subfolders_train=0",
        "workflow.generate_data=false",
        "workflow.evaluation=false",
    ];
    let errors = at_all(members_on(&["a", "b"]), |world| {
        let host = Host::look();
        let settled =
            settle(asked(&root(world.member()), &settings), &host, world, &Stop::default()).unwrap();
        settled.make_data(world, &SilentObserver, &Stop::default()).err().unwrap().to_string()
    });
    for error in errors {
        assert!(error.starts_with("process 0 on a and process 1 on b find different files in "), "{error}");
    }
}

/// Waits until the members' progress adds up to a number of files.
struct SumObserver<'a> {
    files: u64,
    seen: &'a AtomicBool,
}

impl Observer for SumObserver<'_> {
    fn during(&self, _: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let is_sum = shown.progress().files == self.files;
                    self.seen.fetch_or(is_sum, Ordering::Relaxed);
                    if is_sum {
                        return;
                    }
                    meter::pause(Duration::from_millis(10));
                }
            });
            work();
        });
    }
}

/// Keeps the number of files when an activity begins.
struct FirstProgress(AtomicU64);

impl Observer for FirstProgress {
    fn during(&self, _: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        self.0.store(shown.progress().files, Ordering::Relaxed);
        work();
    }
}

#[test]
fn member_0_shows_the_progress_of_all() {
    let folders = tempfile::tempdir().unwrap();
    let seen = AtomicBool::new(false);
    let shown_at = at_all(members(3), |world| {
        let folder = folders.path().join(world.member().to_string());
        std::fs::create_dir(&folder).unwrap();
        // 3, 4 and 5 files.
        for file in 0..3 + world.member() {
            std::fs::write(folder.join(file.to_string()), "x").unwrap();
        }
        let observer = SumObserver { files: 12, seen: &seen };
        let goal = Activity { what: "listing", unit: ActivityUnit::Files, total: 12 };
        let (stop, options) = (Stop::default(), ListOptions::default());
        observed(&observer, world, goal, |events| {
            catalog::scan(&folder, &options, &Solo::new(), &stop, events).unwrap();
            while world.member() == 0 && !seen.load(Ordering::Relaxed) {
                meter::pause(Duration::from_millis(5));
            }
            world.agree(Ok(()), &stop).unwrap();
        });
        world.agree(Ok(()), &stop).unwrap();
        let next = FirstProgress(AtomicU64::new(99));
        observed(&next, world, goal, |_| world.agree(Ok(()), &stop).unwrap());
        next.0.into_inner()
    });
    assert_eq!(shown_at, [0, 99, 99], "the next activity begins at 0, and only member 0 shows it");
    assert!(seen.into_inner());
}
