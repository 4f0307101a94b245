//! Power failures: everything that is renamed is flushed before the rename, and its folder after it. These tests check
//! a trace of system calls; `scripts/attack power` simulates power failures on real file systems.

use crate::util::{Cmd, Dir};

/// The system calls of a command that flush and rename, in order.
struct Trace(Vec<String>);

impl Trace {
    fn of(dir: &Dir, command: Cmd<'_>) -> Trace {
        let calls = "fsync,fdatasync,syncfs,rename,renameat,renameat2,linkat,mkdirat,mkdir";
        let done = command.traced(calls, "trace").run().ran();
        let trace = dir.read("trace");
        if !trace.contains("sync(") {
            done.fail(
                "strace does not work here: this test needs ptrace (in a container: --cap-add SYS_PTRACE)",
            );
        }
        // A call is one line, or two lines around those of other threads. The first line has all that is needed here.
        let lines = trace.lines().filter(|line| !line.contains(" = -1 ") && !line.contains(" resumed>"));
        Trace(lines.map(str::to_owned).collect())
    }

    /// The renames: position, folder, old name, new name.
    fn renames(&self) -> Vec<(usize, String, String, String)> {
        let calls = self.0.iter().enumerate().filter(|(_, call)| call.contains(" rename"));
        let parts = calls.map(|(at, call)| {
            let folder = call.split(['<', '>']).nth(1).unwrap().to_owned();
            let names: Vec<&str> = call.split('"').collect();
            (at, folder, names[1].to_owned(), names[3].to_owned())
        });
        parts.collect()
    }

    fn is_flushed(&self, calls: std::ops::Range<usize>, path: &str) -> bool {
        let mark = format!("<{path}>");
        self.0[calls].iter().any(|call| call.contains("sync(") && call.contains(&mark))
    }

    /// Checks every rename, and returns the new names.
    fn check(&self) -> Vec<String> {
        let renames = self.renames();
        for (at, folder, from, to) in &renames {
            assert!(
                self.is_flushed(0..*at, &format!("{folder}/{from}")),
                "{to} was not flushed: {:#?}",
                self.0
            );
            assert!(
                self.is_flushed(*at..self.0.len(), folder),
                "the name {to} was not flushed: {:#?}",
                self.0
            );
        }
        renames.into_iter().map(|(.., to)| to).collect()
    }

    /// The same for a data set, whose files are flushed together at the end.
    fn check_manifests(&self) -> Vec<String> {
        let others = self.0.iter().filter(|call| !(call.contains("rename") && call.contains("img_")));
        Trace(others.cloned().collect()).check()
    }
}

#[test]
fn a_data_set_is_flushed_before_its_manifest_is_marked_complete() {
    let dir = Dir::small();
    for flags in [&[][..], &["--overwrite", "--set", "train.seed=5"]] {
        let trace = Trace::of(&dir, dir.feedline(&["generate", "w.yaml", "--quiet"]).args(flags));
        assert_eq!(trace.check_manifests(), ["dataset.json", ".mlps-datagen-manifest.json", "dataset.json"]);
        // The manifest is marked incomplete before the first file is written, and complete after all files are on disk.
        let renames = trace.renames();
        let named = |name: &str| {
            let mut places = renames.iter().filter(|(.., to)| to == name).map(|(at, ..)| *at);
            (places.next().unwrap(), places.next_back())
        };
        let (begun, complete) = named("dataset.json");
        let file =
            |call: &String| call.contains("img_") && (call.contains("linkat(") || call.contains("rename"));
        let first = trace.0.iter().position(file).unwrap();
        let last = trace.0.iter().rposition(file).unwrap();
        assert!(begun < first && last < complete.unwrap());
        assert!(trace.0[begun..first].iter().any(|call| call.contains("fsync(")));
        assert!(trace.0[last..complete.unwrap()].iter().any(|call| call.contains("syncfs(")));
    }
}

#[test]
fn a_data_set_is_not_marked_complete_while_files_are_written() {
    let dir = Dir::small_with_data();
    for flags in [&[][..], &["--overwrite"]] {
        std::fs::remove_file(dir.path("data/train/img_03_of_24.npz")).unwrap();
        let command = dir.feedline(&["generate", "w.yaml", "--quiet"]).args(flags);
        let calls = Trace::of(&dir, command).0;
        let place = |mark: &str| calls.iter().position(|call| call.contains(mark) && !call.contains("sync("));
        assert!(place("\"dataset.json\"") < place("img_"), "{calls:#?}");
        assert!(place("\"dataset.json\"").is_some());
        assert_eq!(dir.json("data/.feedline/dataset.json")["complete"], true);
    }
}

#[test]
fn catalogs_are_flushed() {
    let dir = Dir::new();
    dir.write("data/a.jpg", "x");
    dir.write("out/other", "x");
    let trace = Trace::of(&dir, dir.feedline(&["catalog", "data", "--quiet"]));
    assert_eq!(trace.check(), ["catalog"]);
    let root = dir.path("data").canonicalize().unwrap();
    assert!(
        trace.is_flushed(0..trace.0.len(), root.to_str().unwrap()),
        "the hidden folder is new, so its parent is flushed"
    );
    let output = ["catalog", "data", "--quiet", "--output", "out/list"];
    assert_eq!(Trace::of(&dir, dir.feedline(&output)).check(), ["list"]);
}

#[test]
fn results_are_flushed_with_their_parent_folders() {
    let dir = Dir::small();
    let run = ["run", "w.yaml", "--quiet", "--store", "null", "--results-dir", "some/where"];
    let trace = Trace::of(&dir, dir.feedline(&run));
    assert_eq!(trace.check().len(), 1);
    let (at, folder, from, _) = trace.renames().remove(0);
    for file in ["spec.yaml", "plan.json", "ledger.json", "epochs.csv", "summary.json", "SHA256SUMS"] {
        assert!(trace.is_flushed(0..at, &format!("{folder}/{from}/{file}")), "{file}");
    }
    for folder in ["", "some", "some/where"] {
        let path = dir.path(folder).canonicalize().unwrap();
        assert!(trace.is_flushed(0..at, path.to_str().unwrap()), "{path:?}");
    }
}

#[test]
fn sweeps_are_flushed() {
    let dir = Dir::small();
    let sweep = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--repeat", "2", "--output", "out"];
    let command = dir.feedline(&sweep).args(&["--over", "reader.read_threads=1,2", "--store", "null"]);
    let trace = Trace::of(&dir, command);
    assert_eq!(trace.check(), ["sweep.csv", "sweep.json", "sweep.svg", "sweep.html"]);
    let journal = format!("<{}>", dir.path("out/cells.jsonl").canonicalize().unwrap().display());
    let flushed = trace.0.iter().filter(|call| call.contains("fdatasync(") && call.contains(&journal));
    assert_eq!(flushed.count(), 5, "once for its header and once for each run");
}
