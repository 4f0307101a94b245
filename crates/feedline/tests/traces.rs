//! Traces: they agree exactly with the ledger and with DFTracer's own tools, keep their limits, and survive kills, full
//! disks and places where they must not be written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use model::spans::SpanKind;
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::launch::Mpi;
use crate::objects::servers::Place;
use crate::util::{Dir, Done, file_stores};

/// Runs the workload of the folder with a trace.
fn run(dir: &Dir, trace: &str, more: &[&str], settings: &[&str]) -> Done {
    let args = ["run", "w.yaml", "--no-calibration", "--json", "--trace", trace];
    dir.feedline(&args).args(more).set(settings).run()
}

/// Counts and times of each operation in traces, by Python's JSON reader, which also checks their form.
fn counted(dir: &Dir, traces: &[&str]) -> Value {
    dir.python("traces.py", traces).run().exits(0).json()
}

/// Events of the traces in a folder, by DFTracer's program.
fn counted_by_dftracer(dir: &Dir, folder: &str) -> u64 {
    let environment = std::env::var("FEEDLINE_TEST_DFTRACER")
        .expect("FEEDLINE_TEST_DFTRACER is not set: run scripts/test, which installs DFTracer");
    let program = Path::new(&environment).join("bin/dftracer_event_count");
    let index = dir.path("index");
    fs::create_dir_all(&index).unwrap();
    let args = ["-d", folder, "--index-dir", index.to_str().unwrap()];
    let done = dir.command(&program, &args).run().exits(0);
    done.stdout.trim().parse().unwrap_or_else(|_| done.fail("expected a number"))
}

/// Count and time of each operation in the ledger of a result.
fn of_ledger(dir: &Dir, result: &str) -> BTreeMap<String, (u64, u64)> {
    let ledger = dir.json(&format!("{result}/ledger.json"));
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for node in ledger["nodes"].as_array().unwrap() {
        for (name, times) in node["seen"]["latencies"].as_object().unwrap() {
            let count: u64 =
                times["spans"].as_array().unwrap().iter().map(|bin| bin[1].as_u64().unwrap()).sum();
            let sum = sums.entry(name.clone()).or_default();
            *sum = (sum.0 + count, sum.1 + times["sum_ns"].as_u64().unwrap());
        }
    }
    sums.retain(|_, sum| sum.0 > 0);
    for (name, key) in [("compute", "compute_ns"), ("barrier", "barrier_ns"), ("copy", "copy_ns")] {
        for row in ledger["ranks"].as_array().unwrap() {
            let (steps, time) = (row["seen"]["steps"].as_u64().unwrap(), row["seen"][key].as_u64().unwrap());
            if name == "compute" || time > 0 {
                let sum = sums.entry(name.to_owned()).or_default();
                *sum = (sum.0 + steps, sum.1 + time);
            }
        }
    }
    sums
}

/// Checks that traces have exactly the operations and times of the ledger.
fn agrees_with_ledger(dir: &Dir, result: &str, seen: &Value, context: &str) {
    let expected = of_ledger(dir, result);
    assert!(expected["sample"].0 > 0, "{context}");
    for (name, (count, time)) in &expected {
        // Ranks that never waited at a barrier have events of no time, which the rows do not count.
        if !["barrier", "copy"].contains(&name.as_str()) {
            assert_eq!(seen["counts"][name].as_u64(), Some(*count), "{context}: {name}");
        }
        assert_eq!(seen["ns"][name].as_u64(), Some(*time), "{context}: {name}");
    }
    let known: Vec<&str> = SpanKind::all().map(SpanKind::name).collect();
    for name in seen["counts"].as_object().unwrap().keys() {
        assert!(known.contains(&name.as_str()), "{context}: {name}");
        let of_run = ["epoch", "train", "eval", "barrier", "pause"].contains(&name.as_str());
        assert!(of_run || expected.contains_key(name), "{context}: {name} is not in the ledger");
    }
}

fn all_events(seen: &Value) -> u64 {
    seen["counts"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn counts_and_times_equal_those_of_the_ledger_and_of_dftracer() {
    let settings = ["dataset.num_files_eval=6", "workflow.evaluation=true", "evaluation.eval_time=0.001"];
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    for store in file_stores() {
        fs::create_dir(dir.path(store)).unwrap();
        let trace = format!("{store}/t.pfw.gz");
        let done = run(&dir, &trace, &["--store", store, "--ranks", "2"], &settings);
        if done.code() == Some(3) {
            // A backend that this file system does not support.
            assert!(!dir.path(&trace).exists(), "a run that was refused leaves no trace");
            continue;
        }
        let done = done.ran();
        let seen = counted(&dir, &[&trace]);
        agrees_with_ledger(&dir, &dir.result(), &seen, store);
        assert_eq!(seen["counts"]["epoch"], 2, "{store}");
        assert_eq!((&seen["counts"]["train"], &seen["counts"]["eval"]), (&2.into(), &2.into()), "{store}");
        assert_eq!(counted_by_dftracer(&dir, store), all_events(&seen), "{store}");
        let summary = dir.feedline(&["trace", &trace, "--json"]).run().exits(0).json();
        assert_eq!(summary["events"], all_events(&seen), "{store}");
        for (name, operation) in summary["operations"].as_object().unwrap() {
            assert_eq!(operation["count"], seen["counts"][name], "{store}: {name}");
            assert_eq!(operation["total_ns"], seen["ns"][name], "{store}: {name}");
        }
        assert_eq!((&summary["lost_events"], &summary["complete"]), (&0.into(), &true.into()), "{store}");
        let file = summary["slowest"][0]["file"].as_str().unwrap();
        assert!(file.starts_with("train/") || file.starts_with("valid/"), "{file}");
        done.says(&format!("trace: {trace}, {} operations", model::units::grouped(all_events(&seen))));
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
    }
    assert!(dir.path("posix/t.pfw.gz").exists());
}

#[test]
fn requests_to_an_object_store_are_traced() {
    let (dir, place) = (Dir::small(), Place::s3());
    let url = place.url("data");
    let at = ["--data-dir", url.as_str()];
    place.with(dir.feedline(&["generate", "w.yaml", "--quiet"]).args(&at)).run().exits(0);
    let args = ["run", "w.yaml", "--no-calibration", "--json", "--trace", "t.pfw.gz", "--ranks", "2"];
    place.with(dir.feedline(&args).args(&at)).run().ran();
    let seen = counted(&dir, &["t.pfw.gz"]);
    agrees_with_ledger(&dir, &dir.result(), &seen, "s3");
    for name in ["connect", "first_byte", "body", "read"] {
        assert!(seen["counts"][name].as_u64().unwrap() > 0, "{name}");
    }
}

#[test]
fn every_rank_and_reader_has_a_named_track() {
    let dir = Dir::small_with_data();
    run(&dir, "t.json", &["--ranks", "3"], &["reader.preprocess_time=0.0001"]).ran();
    let seen = counted(&dir, &["t.json"]);
    let mut expected = vec!["run".to_owned()];
    for rank in 0..3 {
        expected.push(format!("rank {rank}"));
        expected.extend((0..2).map(|reader| format!("rank {rank} reader {reader}")));
    }
    expected.sort();
    assert_eq!(seen["tracks"], Value::from(expected));
    assert_eq!(seen["counts"]["prep"], seen["counts"]["sample"]);
}

/// Metadata reads, several samples per file, and files that stay open.
#[test]
fn reads_of_metadata_and_of_open_files_are_traced() {
    let settings = ["dataset.format=hdf5", "dataset.num_samples_per_file=8", "dataset.num_files_train=6"];
    let dir = Dir::small();
    dir.feedline(&["generate", "w.yaml", "--quiet"]).set(&settings).run().exits(0);
    run(&dir, "t.pfw.gz", &[], &settings).ran();
    agrees_with_ledger(&dir, &dir.result(), &counted(&dir, &["t.pfw.gz"]), "hdf5");
}

#[test]
fn checkpoints_are_traced_with_the_times_of_the_ledger() {
    let dir = Dir::small_with_data();
    let workload = format!(
        "{}checkpoint: {{checkpoint_folder: ck, steps_between_checkpoints: 6}}\n{}",
        dir.read("w.yaml"),
        "\
model: {name: tiny, type: transformer, num_layers: 2, parallelism: {zero_stage: 3}, transformer: {vocab_size: 1000, \
hidden_size: 128, ffn_hidden_size: 256, num_attention_heads: 8, num_kv_heads: 8}}\n"
    );
    dir.write("w.yaml", workload);
    for (mode, burst) in
        [("direct", None), ("async", None), ("burst-buffer", Some("checkpoint.burst_folder=fast"))]
    {
        let trace = format!("{mode}.pfw.gz");
        let settings: Vec<&str> = ["workflow.checkpoint=true"].into_iter().chain(burst).collect();
        let summary = run(&dir, &trace, &["--save", mode], &settings).ran().json();
        let seen = counted(&dir, &[&trace]);
        let saves = summary["feedline"]["checkpoint"]["saves"].as_array().unwrap();
        assert!(saves.len() >= 2, "{saves:?}");
        for (name, key) in
            [("save", "blocked_ns"), ("durable", "durable_ns"), ("fast", "fast_ns"), ("drain", "drain_ns")]
        {
            let times: Vec<u64> = saves.iter().filter_map(|save| save[key].as_u64()).collect();
            assert_eq!(seen["counts"][name].as_u64().unwrap_or(0), times.len() as u64, "{mode}: {name}");
            assert_eq!(seen["ns"][name].as_u64().unwrap_or(0), times.iter().sum::<u64>(), "{mode}: {name}");
        }
        let ledger = dir.json(&format!("{}/ledger.json", dir.result()));
        let pauses: u64 = ledger["ranks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["seen"]["checkpoint_ns"].as_u64().unwrap())
            .sum();
        assert_eq!(seen["ns"]["pause"].as_u64(), Some(pauses), "{mode}");
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
        fs::remove_dir_all(dir.path("ck")).unwrap();
    }
}

#[test]
fn restores_without_training_are_traced() {
    let dir = Dir::new();
    let more = "checkpoint: {checkpoint_folder: ck, num_checkpoints_write: 2, num_checkpoints_read: 1}\n";
    dir.write("w.yaml", format!("{}{more}", crate::util::TINY_MODEL));
    // The verdict may be invalid: what was saved a moment ago may be restored from the page cache.
    run(&dir, "t.json", &[], &[]);
    let counts = counted(&dir, &["t.json"])["counts"].clone();
    assert_eq!((&counts["save"], &counts["durable"], &counts["restore"]), (&2.into(), &2.into(), &1.into()));
}

#[test]
fn the_limit_by_size_holds() {
    let dir = Dir::small_with_data();
    for trace in ["t.pfw.gz", "t.json"] {
        let done = run(&dir, trace, &["--trace-limit", "64KiB"], &["train.epochs=60"]).ran();
        done.says(&format!("the trace {trace} ends before the run: it reached its limit, 64.0 KiB"));
        let size = fs::metadata(dir.path(trace)).unwrap().len();
        assert!((32 << 10..=64 << 10).contains(&size), "{trace}: {size}");
        let summary = dir.feedline(&["trace", trace, "--json"]).run().exits(0).json();
        assert_eq!((&summary["limit_reached"], &summary["complete"]), (&"64.0 KiB".into(), &true.into()));
        assert_eq!(summary["events"], all_events(&counted(&dir, &[trace])));
        dir.feedline(&["trace", trace]).run().exits(0).prints("it reached its limit, 64.0 KiB");
        fs::remove_dir_all(dir.path("feedline-results")).unwrap();
    }
}

#[test]
fn the_limit_by_time_holds() {
    let dir = Dir::small_with_data();
    // Steps of 20 ms, so that the run is longer than the window.
    let settings = ["train.computation_time=0.02"];
    let window = ["--trace-limit", "100ms..200ms"];
    run(&dir, "t.json", &window, &settings).ran().says("it reached its limit, from 100 ms to 200 ms");
    let events: Vec<Value> = serde_json::from_str(&dir.read("t.json")).unwrap();
    let starts: Vec<f64> = events.iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(starts.len() > 2, "{starts:?}");
    assert!(starts.iter().all(|start| (100_000.0..200_000.0).contains(start)), "{starts:?}");
}

#[test]
fn a_share_of_the_steps_is_traced_completely() {
    let dir = Dir::small_with_data();
    run(&dir, "t.json", &["--trace-limit", "1/4"], &[]).ran();
    let events: Vec<Value> = serde_json::from_str(&dir.read("t.json")).unwrap();
    let steps = events.iter().filter_map(|event| event["args"]["step"].as_u64());
    assert!(steps.clone().all(|step| step % 4 == 0));
    assert_eq!(steps.max(), Some(8));
    let counts = &counted(&dir, &["t.json"])["counts"];
    // 12 steps of 2 samples in each of 2 epochs, of which 3 are traced.
    assert_eq!(["sample", "open", "compute"].map(|name| counts[name].as_u64().unwrap()), [12, 12, 6]);
}

#[test]
fn lost_operations_are_counted_and_reported() {
    let dir = Dir::small_with_data();
    let done = run(&dir, "t.pfw.gz", &["--trace-ring", "1"], &["train.epochs=20"]).ran();
    let (seen, expected) = (counted(&dir, &["t.pfw.gz"]), of_ledger(&dir, &dir.result()));
    let summary = dir.feedline(&["trace", "t.pfw.gz", "--json"]).run().exits(0).json();
    let lost = summary["lost_events"].as_u64().unwrap();
    assert!(lost > 0);
    done.says(&format!("the trace t.pfw.gz lost {} operations", model::units::grouped(lost)));
    // Epochs, phases and barriers are not in these sums.
    let of_run: u64 =
        ["epoch", "train", "barrier"].iter().map(|name| seen["counts"][name].as_u64().unwrap_or(0)).sum();
    let in_ledger: u64 =
        expected.iter().filter(|(name, _)| *name != "barrier").map(|(_, (count, _))| count).sum();
    let steps = expected["compute"].0;
    let all = all_events(&seen) - of_run + lost;
    assert!((in_ledger..=in_ledger + steps + 40).contains(&all), "{all} of {in_ledger}");
    dir.feedline(&["trace", "t.pfw.gz"]).run().exits(0).prints("lost: ");
}

#[test]
fn a_killed_run_leaves_a_readable_trace() {
    let dir = Dir::small_with_data();
    for trace in ["t.json", "t.pfw.gz"] {
        let args = ["run", "w.yaml", "--no-calibration", "--quiet", "--trace", trace];
        let settings = ["train.epochs=1000", "train.computation_time=0.02"];
        let mut running = dir.feedline(&args).set(&settings).start();
        let (header, file) = (700, dir.path(trace));
        running.until("events in the trace", || fs::metadata(&file).is_ok_and(|facts| facts.len() > header));
        running.signal(Signal::KILL);
        assert!(running.wait().signal().is_some());
        let summary = dir.feedline(&["trace", trace, "--json"]).run().exits(0).json();
        assert!(summary["events"].as_u64().unwrap() > 0, "{summary}");
        assert_eq!((&summary["complete"], &summary["lost_events"]), (&false.into(), &Value::Null));
        dir.feedline(&["trace", trace]).run().exits(0).prints("the end of the trace is missing");
    }
}

#[test]
fn a_full_disk_ends_the_trace_but_not_the_run() {
    let dir = Dir::small_with_data();
    fs::create_dir(dir.path("small")).unwrap();
    let program = env!("CARGO_BIN_EXE_feedline");
    let script = format!(
        "mount -t tmpfs -o size=256k tmpfs small || exit 99
         {program} run w.yaml --no-calibration --json --trace small/t.json --set train.epochs=60 > run.json 2> said
         echo $? > code
         {program} trace small/t.json --json > trace.json || exit 97"
    );
    let namespace = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let done = dir.command(Path::new("unshare"), &[namespace, "bash", "-c", &script]).run();
    if done.code() == Some(99) {
        done.fail("this test mounts a small disk and needs root or user namespaces");
    }
    done.exits(0);
    assert!(["0", "5"].contains(&dir.read("code").trim()), "{}", dir.read("said"));
    assert!(dir.read("said").contains("cannot write the trace small/t.json: "), "{}", dir.read("said"));
    assert_eq!(dir.json("run.json")["feedline"]["epochs"].as_array().unwrap().len(), 60);
    let trace = dir.json("trace.json");
    assert!(trace["events"].as_u64().unwrap() > 100 && trace["complete"] == false, "{trace}");
}

#[test]
fn a_place_where_no_trace_can_be_is_refused_before_the_run() {
    let dir = Dir::small_with_data();
    run(&dir, "first.json", &[], &[]).ran();
    let result = dir.result();
    dir.write("there.json", "mine");
    symlink(dir.path("elsewhere"), dir.path("link.json")).unwrap();
    fs::create_dir(dir.path("folder")).unwrap();
    for (trace, reason) in [
        ("there.json", "there.json is a file, which feedline does not replace"),
        ("first.json", "first.json is a file"),
        ("link.json", "link.json is a symbolic link"),
        ("folder", "folder is a folder"),
        ("folder/", "needs the name of a file"),
        ("none/t.json", "none does not exist"),
        ("data/t.json", "would be in the data folder"),
        ("data/train/t.json", "would be in the data folder"),
        (&format!("{result}/t.json"), "would be in a result"),
        ("/proc/t.json", "cannot create the trace /proc/t.json"),
    ] {
        run(&dir, trace, &["--quiet"], &[]).exits(3).says(reason);
    }
    assert_eq!((dir.read("there.json").as_str(), dir.path("elsewhere").exists()), ("mine", false));
    assert_eq!(dir.results().len(), 1, "nothing was run");
    let unwritable = ["run", "w.yaml", "--no-calibration", "--quiet", "--trace", "folder/t.json"];
    dir.set_mode("folder", 0o555);
    dir.feedline_unprivileged(&unwritable).run().exits(3).one_error();
}

#[test]
fn nonsense_limits_are_refused() {
    let dir = Dir::small_with_data();
    for (limit, reason) in [
        ("all", "is not a limit; write a size (256MiB)"),
        ("90m", "could be a time or a size"),
        ("1KiB", "the smallest size is 64.0 KiB"),
        ("2s..1s", "is empty"),
        ("0%", "is empty"),
    ] {
        run(&dir, "t.json", &["--trace-limit", limit], &[]).exits(2).says(reason);
    }
    run(&dir, "t.json", &["--trace-limit", "1s", "--trace-limit", "2s"], &[])
        .exits(2)
        .says("same kind (time)");
    let without = ["run", "w.yaml", "--trace-limit", "1s"];
    dir.feedline(&without).run().exits(2).says("--trace <FILE>");
    assert!(!dir.path("t.json").exists());
}

#[test]
fn a_run_without_data_leaves_no_trace() {
    let dir = Dir::small();
    run(&dir, "t.json", &[], &[]).exits(3);
    assert!(!dir.path("t.json").exists());
}

/// Samples that cannot be read are left out of the ledger's times, and so of the trace.
#[test]
fn faults_do_not_change_the_agreement() {
    let dir = Dir::small_with_data();
    let store = ["--store", "fault:posix,kind=eio,every=5"];
    run(&dir, "t.pfw.gz", &store, &["reader.on_error=count"]);
    agrees_with_ledger(&dir, &dir.result(), &counted(&dir, &["t.pfw.gz"]), "faults");
}

#[test]
fn each_of_several_processes_writes_its_own_trace() {
    let dir = Dir::small_with_data();
    fs::create_dir(dir.path("traces")).unwrap();
    let args = ["run", "w.yaml", "--no-calibration", "--json", "--ranks", "2", "--trace", "traces/t.pfw.gz"];
    Mpi::OpenMpi4.feedline(&dir, 2, &args).run().ran();
    let traces = ["traces/t-0.pfw.gz", "traces/t-1.pfw.gz"];
    let seen = counted(&dir, &traces);
    agrees_with_ledger(&dir, &dir.result(), &seen, "two processes");
    assert_eq!(counted_by_dftracer(&dir, "traces"), all_events(&seen));
    for (process, trace) in traces.into_iter().enumerate() {
        let summary = dir.feedline(&["trace", trace, "--json"]).run().exits(0).json();
        assert_eq!(summary["ranks"].as_array().unwrap().len(), 1, "{summary}");
        assert_eq!(summary["ranks"][0]["track"], format!("rank {process}"));
        let named = summary["tracks"][0]["process"].as_str().unwrap();
        assert!(named.starts_with(&format!("process {process} on ")), "{named}");
    }
}

#[test]
fn garbage_is_not_summarised() {
    let dir = Dir::new();
    dir.write("text", "no trace");
    dir.write("empty", "");
    dir.write("list.json", "[]");
    fs::create_dir(dir.path("folder")).unwrap();
    for (file, reason) in [
        ("text", "it is not a trace: after 0 events, 'n' where an event should begin"),
        ("empty", "it is not a trace: it has no events"),
        ("list.json", "it has no events"),
        ("folder", "folder is not a file"),
        ("none", "cannot read the trace none"),
    ] {
        dir.feedline(&["trace", file]).run().exits(3).says(reason).one_error();
    }
}

/// The table of operations in the documentation is that of the code.
#[test]
fn the_documentation_has_every_operation() {
    let page = include_str!("../../../docs/guides/traces.md");
    let rows: Vec<String> = SpanKind::all()
        .map(|kind| format!("| `{}` | {} | {} |", kind.name(), kind.category(), kind.meaning()))
        .collect();
    assert!(page.contains(&rows.join("\n")), "docs/guides/traces.md should have:\n{}", rows.join("\n"));
}
