//! Sweeps: the grid and its files, mistakes that are reported before anything runs, resuming after an interruption, and
//! cells that fail.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::util::{Cmd, Dir, Done};

const THREADS: &str = "reader.read_threads=1,2";
const PREFETCH: &str = "reader.prefetch_size=0,2";

fn sweep<'a>(dir: &'a Dir, args: &[&str]) -> Cmd<'a> {
    dir.feedline(&["sweep", "w.yaml", "--no-calibration"]).args(args)
}

/// The runs in a journal, without its header.
fn runs(dir: &Dir, folder: &str) -> Vec<Value> {
    let text = dir.read(&format!("{folder}/cells.jsonl"));
    text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn order(runs: &[Value], round: u64) -> Vec<u64> {
    runs.iter().filter(|run| run["round"] == round).map(|run| run["cell"].as_u64().unwrap()).collect()
}

#[test]
fn a_grid_with_its_files() {
    let dir = Dir::small_with_data();
    let args = ["--over", THREADS, "--over", PREFETCH, "--repeat", "3", "--output", "s"];
    let done = sweep(&dir, &args).run().exits(0);
    let rows: Vec<&str> = done.stdout.lines().skip(2).collect();
    let header: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(header[..4], ["reader.read_threads", "reader.prefetch_size", "samples/s", "MB/s"]);
    let settings: Vec<Vec<&str>> =
        rows[1..5].iter().map(|row| row.split_whitespace().take(2).collect()).collect();
    assert_eq!(settings, [["1", "0"], ["1", "2"], ["2", "0"], ["2", "2"]]);
    assert!(
        rows[1].contains(" 1.00  ") && rows[1].contains(" -  "),
        "speed-ups refer to the first cell: {}",
        rows[1]
    );

    let runs = runs(&dir, "s");
    assert_eq!(runs.len(), 12);
    for round in 1..=3 {
        let mut cells = order(&runs[(round - 1) * 4..round * 4], round as u64);
        cells.sort_unstable();
        assert_eq!(cells, [0, 1, 2, 3], "each round has each cell once");
    }
    let orders: Vec<Vec<u64>> = (1..=3).map(|round| order(&runs, round)).collect();
    assert!(orders.iter().any(|other| *other != orders[0]), "rounds have different orders: {orders:?}");

    let json = dir.json("s/sweep.json");
    assert_eq!(json["cells"].as_array().unwrap().len(), 4);
    let last = &json["cells"][3];
    assert_eq!(last["settings"]["reader.read_threads"], "2");
    assert_eq!(last["samples_per_second"]["values"].as_array().unwrap().len(), 3);
    assert!(last["speed_up"].as_f64() > Some(0.0));
    assert!(last["speed_up_interval"].is_null(), "three runs are too few for an interval");
    let csv = dir.read("s/sweep.csv");
    assert_eq!(csv.lines().count(), 5);
    let fields = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().skip(1).all(|line| line.split(',').count() == fields), "{csv}");
    let svg = dir.read("s/sweep.svg");
    assert_eq!(svg.matches("class=\"bar\"").count(), 4);
    dir.has_no_leftovers();
}

#[test]
fn ranks_and_stores_are_swept_like_settings() {
    let dir = Dir::small_with_data();
    let args = ["--over", "ranks=1,2", "--over", "store=posix,null", "--repeat", "1", "--json", "--quiet"];
    let json = sweep(&dir, &args).run().exits(0).silent().json();
    assert_eq!(json["cells"][3]["settings"]["ranks"], "2");
    assert_eq!(json["cells"][3]["settings"]["store"], "null");
    assert_eq!(json["cells"][0]["speed_up_interval"], Value::Null);
    let folder = fs::read_dir(dir.path("feedline-results/sweep/w")).unwrap().next().unwrap().unwrap();
    assert!(folder.path().join("sweep.svg").exists());
}

#[test]
fn mistakes_are_reported_before_anything_runs() {
    let dir = Dir::small();
    let many =
        format!("reader.batch_size={}", (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let many_more = format!("train.seed={}", (1..=101).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let table: &[(&[&str], &[&str])] = &[
        (&[], &["--over"]),
        (
            &["--over", "reader.read_thread=1,2"],
            &["cell reader.read_thread=1", "did you mean 'read_threads'?"],
        ),
        (&["--over", "reader.read_threads=1,many"], &["cell reader.read_threads=many", "must be an integer"]),
        (&["--over", "reader.batch_size=2,99"], &["cell reader.batch_size=99", "there are only 24"]),
        (&["--over", "reader.read_threads="], &["a value is missing"]),
        (&["--over", "reader.read_threads"], &["there is no '='"]),
        (&["--over", "reader.read_threads=1,1"], &["the value 1 is given twice"]),
        (&["--over", THREADS, "--over", "reader.read_threads=4"], &["reader.read_threads is swept twice"]),
        (&["--over", "ranks=1,two"], &["'two' is not a number of ranks"]),
        (&["--over", "ranks=1,25"], &["cell ranks=25", "25 ranks x batch 2"]),
        (&["--over", "store=posix,disc"], &["cell store=disc", "there is no store 'disc'"]),
        (&["--over", many.as_str(), "--over", many_more.as_str()], &["101 x 101 cells", "10000"]),
        (&["--over", THREADS, "--repeat", "0"], &["--repeat"]),
        (&["--over", THREADS, "--output", "w.yaml"], &["w.yaml is a file, not a folder"]),
    ];
    let before = dir.listing();
    for (args, texts) in table {
        let done = dir.feedline(&["sweep", "w.yaml"]).args(args).run().exits(2).one_error();
        for text in *texts {
            assert!(done.stderr.contains(text), "{args:?} does not say {text}:\n{}", done.stderr);
        }
    }
    // A missing data set is not a usage error; the sweep is refused.
    sweep(&dir, &["--over", THREADS]).run().exits(3).one_error().says("feedline generate w.yaml");
    assert_eq!(dir.listing(), before);
}

/// A workload may carry its grid. The command line replaces, adds or fixes axes of it.
#[test]
fn a_grid_of_the_workload() {
    let dir = Dir::small();
    let own = "sweep:\n  over: ['reader.read_threads=1,2', 'store=null,sim:optane']\n  repeat: 1\n";
    dir.write("w.yaml", format!("{}{own}", dir.read("w.yaml")));
    let settings = |args: &[&str]| -> Vec<String> {
        let done = sweep(&dir, args).args(&["--json", "--quiet", "--output", "s"]).run();
        // On a busy machine the verdict of such a short run may be invalid.
        assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
        let json = done.json();
        fs::rename(dir.path("s"), dir.path(&format!("s{}", dir.listing().len()))).unwrap();
        let cells = json["cells"].as_array().unwrap().clone();
        let cell = |cell: &Value| {
            assert_eq!(cell["samples_per_second"]["values"].as_array().unwrap().len(), 1, "sweep.repeat");
            let pairs = cell["settings"].as_object().unwrap();
            let pairs = pairs.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap()));
            pairs.collect::<Vec<_>>().join(" ")
        };
        cells.iter().map(cell).collect()
    };
    let grid = |threads: &[&str], stores: &[&str]| -> Vec<String> {
        let cell = |threads: &&str| {
            stores
                .iter()
                .map(move |store| format!("reader.read_threads={threads} store={store}"))
                .collect::<Vec<_>>()
        };
        threads.iter().flat_map(cell).collect()
    };
    let threads = |counts: &[&str]| -> Vec<String> {
        counts.iter().map(|count| format!("reader.read_threads={count}")).collect()
    };
    assert_eq!(settings(&[]), grid(&["1", "2"], &["null", "sim:optane"]));
    assert_eq!(settings(&["--over", "reader.read_threads=3"]), grid(&["3"], &["null", "sim:optane"]));
    assert_eq!(settings(&["--store", "null"]), threads(&["1", "2"]));
    assert_eq!(settings(&["--set", "reader.read_threads=4"]), ["store=null", "store=sim:optane"]);
    let all_fixed = ["--store", "null", "--set", "reader.read_threads=4"];
    sweep(&dir, &all_fixed).run().exits(2).one_error().says("nothing is varied");
    sweep(&dir, &["--over", "store=null", "--store", "null"])
        .run()
        .exits(2)
        .one_error()
        .says("remove one of them");
    sweep(&dir, &["--set", "sweep.over=[reader.read_threads]"])
        .run()
        .exits(2)
        .one_error()
        .says("sweep.over: reader.read_threads: there is no '='");
    sweep(&dir, &["--set", "sweep.plot=watts"]).run().exits(2).one_error().says("sweep.plot");
    // A run ignores the grid without a warning.
    dir.feedline(&["run", "w.yaml", "--store", "null", "--quiet", "--no-calibration"])
        .run()
        .exits(0)
        .silent();
}

#[test]
fn the_plot_shows_the_requested_figure() {
    let dir = Dir::small();
    for (plot, label) in
        [("mb_per_second", "MB/s"), ("samples_per_second", "samples/s"), ("au_percent", "AU in %")]
    {
        let args =
            ["--store", "sim:optane", "--over", THREADS, "--repeat", "1", "--plot", plot, "--output", plot];
        sweep(&dir, &args).set(&["train.computation_time=0.001"]).run().exits(0);
        let svg = dir.read(&format!("{plot}/sweep.svg"));
        assert!(svg.contains(&format!(">{label}</text>")) && svg.contains(": one run</text>"), "{svg}");
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
    }
}

#[test]
fn a_sweep_over_checkpoints_without_training() {
    let dir = Dir::new();
    dir.write(
        "c.yaml",
        "framework: pytorch\n\
         model: {name: c, model_size_bytes: 100000}\n\
         workflow: {train: false, checkpoint: true}\n\
         checkpoint: {num_checkpoints_write: 2, num_checkpoints_read: 0, fsync: true}\n",
    );
    let args = [
        "sweep",
        "c.yaml",
        "--store",
        "sim:optane",
        "--over",
        "checkpoint.serialize_time=0.001,0.1",
        "--repeat",
        "2",
        "--json",
    ];
    let json = dir.feedline(&args).run().exits(0).json();
    assert_eq!(json["speed_up_of"], "blocked_seconds");
    for cell in json["cells"].as_array().unwrap() {
        assert_eq!(cell["blocked_seconds"]["values"].as_array().unwrap().len(), 2, "{cell}");
    }
    assert!(json["cells"][1]["speed_up"].as_f64() < Some(1.0), "a longer serialization blocks for longer");
    // Without training and checkpoints there is nothing to measure.
    dir.write("none.yaml", "framework: pytorch\nworkflow: {train: false}\ndataset: {num_files_train: 2}\n");
    dir.feedline(&["sweep", "none.yaml", "--over", THREADS]).run().exits(2).one_error();
}

#[test]
fn a_sweep_generates_its_data_set_on_request() {
    let dir = Dir::small();
    let args = ["--over", THREADS, "--repeat", "1", "--generate"];
    sweep(&dir, &args).run().exits(0);
    assert!(dir.path("data/train").exists());
}

/// A setting for longer runs: 12 steps of 20 ms, twice.
const SLOW: &str = "train.computation_time=0.02";

/// Starts a sweep of six runs and returns when some of them are in the journal.
fn begun<'a>(dir: &'a Dir, args: &[&str]) -> crate::util::Running<'a> {
    let mut running = sweep(dir, args).set(&[SLOW]).start();
    let journal = dir.path("s/cells.jsonl");
    running.until("two runs", || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() > 2));
    running
}

fn finished(dir: &Dir, args: &[&str]) -> Done {
    // On a busy machine a run may be invalid, but it is still a completed run.
    let done = sweep(dir, args).set(&[SLOW]).run();
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    done
}

#[test]
fn an_interrupted_sweep_is_resumed() {
    let dir = Dir::small_with_data();
    let args = ["--over", "reader.read_threads=1,2,3", "--repeat", "2", "--output", "s"];
    let running = begun(&dir, &args);
    running.signal(Signal::INT);
    let done = running.wait().exits(4).one_error().says("resume with: feedline sweep w.yaml");
    assert!(done.stderr.contains(" of 6 runs"), "{}", done.stderr);
    assert!(done.stdout.is_empty() && !dir.path("s/sweep.csv").exists());
    let before = dir.read("s/cells.jsonl");
    finished(&dir, &args);
    let after = dir.read("s/cells.jsonl");
    assert!(after.starts_with(&before), "finished runs are kept");
    assert_eq!(runs(&dir, "s").len(), 6, "and are not repeated");
    // The sweep is finished: nothing runs.
    finished(&dir, &args);
    assert_eq!(dir.read("s/cells.jsonl"), after);
}

#[test]
fn a_killed_sweep_resumes_after_its_last_complete_line() {
    let dir = Dir::small_with_data();
    let args = ["--over", "reader.read_threads=1,2,3", "--repeat", "2", "--output", "s"];
    let running = begun(&dir, &args);
    running.signal(Signal::KILL);
    running.wait();
    let whole = dir.read("s/cells.jsonl");
    dir.write("s/cells.jsonl", format!("{whole}{{\"cell\":1,\"rou"));
    finished(&dir, &args);
    assert!(dir.read("s/cells.jsonl").starts_with(&whole));
    assert_eq!(runs(&dir, "s").len(), 6);
}

#[test]
fn the_command_in_the_message_of_an_interrupted_sweep_finishes_it() {
    let dir = Dir::small_with_data();
    let mut running =
        sweep(&dir, &["--over", "reader.read_threads=1,2,3", "--repeat", "2"]).set(&[SLOW]).start();
    running.until_thread("reader");
    running.signal(Signal::TERM);
    let stderr = running.wait().exits(4).stderr;
    let command = stderr.lines().find_map(|line| line.split_once("resume with: feedline ")).unwrap().1;
    let script = format!("{} {command}", env!("CARGO_BIN_EXE_feedline"));
    let done = dir.command(Path::new("bash"), &["-c", &script]).run();
    assert!([Some(0), Some(5)].contains(&done.code()), "{}", done.stderr);
    done.prints("result in feedline-results/sweep/w/");
}

#[test]
fn the_folder_of_another_sweep_is_refused() {
    let dir = Dir::small_with_data();
    let args = ["--over", THREADS, "--repeat", "1", "--output", "s"];
    sweep(&dir, &args).run().exits(0);
    let before = dir.listing();
    let other = ["--over", "reader.read_threads=1,4", "--repeat", "1", "--output", "s"];
    sweep(&dir, &other).run().exits(3).one_error().says("contains another sweep: over is ");
    sweep(&dir, &args).set(&["train.epochs=1"]).run().exits(3).one_error().says("set is []");
    dir.write("w.yaml", crate::util::SMALL.replace("batch_size: 2", "batch_size: 4"));
    sweep(&dir, &args).run().exits(3).one_error().says("spec_digest is ");
    dir.write("w.yaml", crate::util::SMALL);
    assert_eq!(dir.listing(), before);
    // The same sweep can have more repeats.
    sweep(&dir, &["--over", THREADS, "--repeat", "2", "--output", "s"]).run().exits(0);
    assert_eq!(runs(&dir, "s").len(), 4);
    dir.write("t/cells.jsonl", "hello\n");
    sweep(&dir, &["--over", THREADS, "--output", "t"])
        .run()
        .exits(3)
        .one_error()
        .says("not the journal of a sweep");
    assert_eq!(dir.read("t/cells.jsonl"), "hello\n");
}

#[test]
fn a_bad_cell_does_not_lose_the_rest() {
    let dir = Dir::small_with_data();
    // The second cell needs a different data set from the existing one.
    let args = ["--over", "dataset.record_length_bytes=4096,5000", "--repeat", "2", "--output", "s"];
    let done = sweep(&dir, &args).run().exits(4);
    assert!(!done.stderr.contains("error: "), "{}", done.stderr);
    let row = done.stdout.lines().find(|line| line.trim_start().starts_with("5000")).unwrap();
    assert!(row.contains("1 failed: the data set in ./data was generated with other settings"), "{row}");
    let json = dir.json("s/sweep.json");
    assert_eq!(json["cells"][0]["samples_per_second"]["values"].as_array().unwrap().len(), 2);
    assert_eq!(json["cells"][1]["samples_per_second"]["median"], Value::Null);
    assert_eq!(dir.read("s/sweep.svg").matches("class=\"bar\"").count(), 1);
}

#[test]
fn a_failed_run_is_recorded_and_repeated_later() {
    let dir = Dir::small();
    let many = "dataset.num_files_train=200";
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&[many]).run().exits(0);
    let bad = dir.path("data/train/img_001_of_200.npz");
    let whole = fs::read(&bad).unwrap();
    fs::write(&bad, &whole[..100]).unwrap();
    // The null backend reads no files, so its runs succeed.
    let args = ["--over", "store=null,posix", "--repeat", "2", "--output", "s"];
    let done = sweep(&dir, &args).set(&[many]).run().exits(4);
    let row = done.stdout.lines().find(|line| line.trim_start().starts_with("posix")).unwrap();
    assert!(row.contains("2 failed: the run stopped in epoch 1"), "{row}");
    let failed = runs(&dir, "s").into_iter().filter(|run| run["error"].is_string()).count();
    assert_eq!(failed, 2);
    fs::write(&bad, &whole).unwrap();
    sweep(&dir, &args).set(&[many]).run().exits(0);
    assert_eq!(runs(&dir, "s").len(), 6, "only the two failed runs were repeated");
}

#[test]
fn two_sweeps_do_not_share_a_folder() {
    let dir = Dir::small_with_data();
    let args = ["--over", "reader.read_threads=1,2,3", "--repeat", "2", "--output", "s"];
    let running = begun(&dir, &args);
    sweep(&dir, &args).set(&[SLOW]).run().exits(3).one_error().says("another sweep is running in s");
    running.signal(Signal::INT);
    running.wait().exits(4);
}
