//! The command line: help, lists, JSON, quiet, completions, closed pipes and hints.

use std::path::Path;

use crate::util::{Dir, relative, walk};

/// The names of the built-in workloads, from their folder.
fn workload_names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    let mut names = Vec::new();
    walk(&folder, &mut |path| names.push(relative(&folder, path).trim_end_matches(".yaml").to_owned()));
    assert!(names.len() > 40, "{names:?}");
    names
}

#[test]
fn help_has_examples_and_exit_codes() {
    let dir = Dir::new();
    let help = dir.feedline(&["--help"]).run().exits(0).silent();
    for text in ["Examples:", "feedline run ", "Exit codes:", "  0 ", "  2 ", "  3 ", "  4 ", "  5 ", "  70 "]
    {
        assert!(help.stdout.contains(text), "{text} is missing in:\n{}", help.stdout);
    }
    for command in ["run", "plan"] {
        let help = dir.feedline(&[command, "--help"]).run().exits(0).silent();
        assert!(help.stdout.contains(&format!("Examples:\n  feedline {command}")), "{}", help.stdout);
    }
    for command in ["generate", "workloads", "completions"] {
        dir.feedline(&[command, "--help"]).run().exits(0).silent().prints("Usage: feedline");
    }
    dir.feedline(&["--version"]).run().exits(0).prints(concat!("feedline ", env!("CARGO_PKG_VERSION")));
    assert!(dir.listing().is_empty());
}

#[test]
fn help_lists_every_store() {
    for command in ["run", "plan", "sweep", "capacity", "stall"] {
        let help = Dir::new().feedline(&[command, "--help"]).run().exits(0).silent().stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let stores = store::BACKENDS.listed(|_| true);
        assert!(words.contains(&stores), "{stores} is missing in:\n{help}");
    }
}

#[test]
fn without_a_command_it_shows_the_help() {
    Dir::new().feedline(&[]).run().exits(2).says("Usage: feedline");
}

#[test]
fn the_list_has_every_workload() {
    let dir = Dir::new();
    let list = dir.feedline(&["workloads"]).run().exits(0).silent();
    let json = dir.feedline(&["workloads", "--json"]).run().exits(0).silent().json();
    let rows = json["workloads"].as_array().unwrap();
    let names = workload_names();
    assert_eq!(rows.len(), names.len());
    for name in &names {
        let listed = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(list.stdout.lines().any(listed), "{name} is not in the list");
        let row = rows.iter().find(|row| row["name"] == **name).unwrap_or_else(|| panic!("{name}"));
        assert!(row["standing"].is_string() && row["summary"].is_string(), "{row}");
        if row["trains"] == true {
            for key in ["sample_bytes", "batch_size", "computation_time_seconds", "au_target"] {
                assert!(row[key].as_f64().is_some(), "{name} has no {key}");
            }
        }
    }
}

#[test]
fn every_workload_can_be_saved_and_planned() {
    let dir = Dir::new();
    let list = dir.feedline(&["workloads", "--json"]).run().exits(0).json();
    for row in list["workloads"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let yaml = dir.feedline(&["workloads", name]).run().exits(0).silent().stdout;
        let file = format!("{name}.yaml");
        dir.write(&file, &yaml);
        let plan = |workload: &str| {
            // With a random shuffle, every plan would differ.
            let seeded = ["reader.file_shuffle=seed", "reader.sample_shuffle=seed"];
            // A model needs as many ranks as its layout; 1024 suffice for the largest.
            let ranks = if row["trains"] == true && !yaml.contains("parallelism") { "1" } else { "1024" };
            dir.feedline(&["plan", workload, "--json", "--ranks", ranks]).set(&seeded).run()
        };
        let by_name = plan(name).exits(0).json();
        assert_eq!(plan(&file).exits(0).json()["plan_digest"], by_name["plan_digest"], "{name}");
    }
}

#[test]
fn a_saved_workload_can_be_edited_and_run() {
    let dir = Dir::new();
    let yaml = dir.feedline(&["workloads", "demo"]).run().exits(0).stdout;
    let edited = yaml.replace("num_files_train: 2048", "num_files_train: 64");
    assert_ne!(edited, yaml);
    dir.write("mine.yaml", edited.replace("computation_time: 0.025", "computation_time: 0"));
    dir.feedline(&["run", "mine.yaml"])
        .run()
        .exits(0)
        .prints("verdict: unverified")
        .prints("64 files of jpeg");
}

#[test]
fn stdout_is_json_only() {
    let dir = Dir::small();
    let generated = dir.feedline(&["generate", "w.yaml", "--json"]).run().exits(0).json();
    assert_eq!(generated["files_written"], 24);
    assert_eq!(generated["files_kept"], 0);
    let plan = dir.feedline(&["plan", "w.yaml", "--json"]).run().exits(0).json();
    assert_eq!(plan["samples_per_epoch"], 24);
    // A setting without effect causes a warning, which must not appear in the JSON.
    let run = dir.feedline(&["run", "w.yaml", "--json"]).set(&["reader.reader_classname=x"]).run();
    let summary = run.json();
    assert_eq!(summary["num_accelerators"], 1);
    assert_eq!(summary, dir.json(&format!("{}/summary.json", dir.result())));
    assert!(run.stderr.contains("warning: 'reader.reader_classname'"), "{}", run.stderr);
    run.exits(5);
}

#[test]
fn quiet_leaves_stderr_empty() {
    let dir = Dir::small();
    let settings = &["reader.pin_memory=true"];
    dir.feedline(&["generate", "w.yaml"]).set(settings).run().exits(0).says("warning: ");
    for command in ["generate", "plan", "run"] {
        dir.feedline(&[command, "w.yaml", "--quiet"]).set(settings).run().exits(0).silent();
        dir.feedline(&[command, "w.yaml", "-q", "--json"]).set(settings).run().exits(0).silent().json();
    }
}

#[test]
fn quiet_still_reports_errors() {
    Dir::new().feedline(&["run", "nowhere.yaml", "--quiet"]).run().exits(2).says("nowhere.yaml").one_error();
}

#[test]
fn completions_for_every_shell() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        dir.feedline(&["completions", shell]).run().exits(0).silent().prints("FEEDLINE_COMPLETE");
    }
    dir.feedline(&["completions", "basch"]).run().exits(2).says("bash");
}

#[test]
fn an_unknown_workload_gets_the_nearest_names() {
    let dir = Dir::small();
    for (asked, says) in [
        ("unet3d", "there is no workload 'unet3d'; did you mean 'unet3d_"),
        ("retinanet_b20", "did you mean 'retinanet_b200'?"),
        ("unte3d_h100", "did you mean 'unet3d_h100'?"),
        ("./v.yaml", "there is no workload file ./v.yaml; did you mean './w.yaml'?"),
        ("v.yaml", "did you mean 'w.yaml'?"),
        ("nowhere/unet3d_h10.yaml", "did you mean 'unet3d_h100' or 'unet3d_h100_s3'?"),
        ("xyzzy_plugh", "'feedline workloads' lists them"),
    ] {
        dir.feedline(&["plan", asked]).run().exits(2).one_error().says(says);
    }
    dir.feedline(&["workloads", "unet3d_b20"]).run().exits(2).says("did you mean 'unet3d_b200'?");
}

/// A user cannot change a built-in workload, so warnings about its keys would be noise.
#[test]
fn built_in_workloads_cause_no_warnings_and_are_listed_as_planned() {
    let dir = Dir::new();
    let list = dir.feedline(&["workloads", "--json"]).run().exits(0).json();
    let rows = list["workloads"].as_array().unwrap();
    assert!(rows.len() > 40, "{rows:?}");
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let plan = dir.feedline(&["plan", name, "--json"]).run().exits(0).silent().json();
        assert_eq!(plan["warnings"], serde_json::json!([]), "{name}");
        // The list and the plan agree on the bandwidth that one accelerator needs.
        let demand = plan.pointer("/estimate/demand/mib_per_second").unwrap_or(&serde_json::Value::Null);
        assert_eq!(&row["demand_mib_per_second"], demand, "{name}");
    }
    let own = dir.feedline(&["plan", "resnet50_h100"]).set(&["reader.pin_memory=true"]).run().exits(0);
    assert!(
        own.stderr.contains("'reader.pin_memory' at --set") && !own.stderr.contains("built in"),
        "{}",
        own.stderr
    );
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let dir = Dir::small_with_data();
    let binary = env!("CARGO_BIN_EXE_feedline");
    for args in
        ["--help", "workloads", "workloads --json", "workloads dlrm_b200", "completions zsh", "plan demo"]
    {
        run_with_closed_pipe(&dir, &format!("{binary} {args}"));
    }
    run_with_closed_pipe(&dir, &format!("{binary} run w.yaml --quiet --json"));
    assert_eq!(dir.results().len(), 1, "the result is written although stdout is closed");
}

/// Runs a command whose stdout is closed from the start; it must exit with 0 and print nothing.
fn run_with_closed_pipe(dir: &Dir, command: &str) {
    // The inner shell waits until the reader has ended, so that every write fails.
    let script = format!("{{ sleep 0.05; {command}; echo $? > code; }} | true");
    dir.command(Path::new("bash"), &["-c", &script]).run().exits(0).silent();
    assert_eq!(dir.read("code").trim(), "0", "{command}");
}

#[test]
fn unknown_names_get_a_hint() {
    let dir = Dir::small();
    let table: &[(&[&str], &[&str])] = &[
        (
            &["run", "unet3d_h10"],
            &["no workload 'unet3d_h10'", "did you mean 'unet3d_h100' or 'unet3d_h100_s3'?"],
        ),
        (&["plan", "xyzzy"], &["no workload 'xyzzy'", "'feedline workloads' lists them"]),
        (&["workloads", "retinanet_b20"], &["no workload 'retinanet_b20'", "'retinanet_b200'"]),
        (&["run", "w.yml"], &["w.yml", "there is no workload file w.yml; did you mean 'w.yaml'?"]),
        (&["run", "."], &["no workload '.'"]),
        (&["run", "./"], &["./ is a folder"]),
        (
            &["run", "w.yaml", "--store", "posic"],
            &["no store 'posic'", "posix, direct, mmap, uring, s3, gs, az, sim, null", "did you mean posix?"],
        ),
        (
            &["plan", "w.yaml", "--store", "ram"],
            &["no store 'ram'", "posix, direct, mmap, uring, s3, gs, az, sim, null"],
        ),
        (&["run", "--rank", "2"], &["--rank", "--ranks"]),
        (&["run", "--ranks", "two"], &["'two'", "--ranks"]),
        (&["run", "--ranks", "-1"], &["-1"]),
        (&["run", "w.yaml", "--ranks", "0"], &["--ranks must be from 1 to 1048576, not 0"]),
        (&["plan", "w.yaml", "--ranks", "3", "--hosts", "4"], &["3 ranks", "4 hosts"]),
        (
            &["plan", "w.yaml", "--ranks", "3", "--hosts", "2", "--processes-per-host", "2"],
            &["3 ranks", "4 processes", "--processes-per-host"],
        ),
        (&["plan", "w.yaml", "--hosts", "0"], &["--hosts must be at least 1"]),
        (&["plan", "w.yaml", "--host-memory", "lots"], &["'lots'", "--host-memory"]),
        (&["generate", "w.yaml", "--writers", "0"], &["0", "--writers"]),
        (&["generat"], &["'generat'", "generate"]),
        (&["run", "w.yaml", "more.yaml"], &["more.yaml"]),
    ];
    let before = dir.listing();
    for (args, texts) in table {
        let done = dir.feedline(args).run().exits(2).one_error();
        assert!(done.stdout.is_empty(), "{args:?}: {}", done.stdout);
        for text in *texts {
            assert!(done.stderr.contains(text), "{args:?} does not say {text}:\n{}", done.stderr);
        }
    }
    assert_eq!(dir.listing(), before);
}

#[test]
fn a_file_named_like_a_built_in_workload_gets_a_hint() {
    let dir = Dir::new();
    dir.write("mine", "train: {epochs: 1}\n");
    dir.feedline(&["plan", "mine"]).run().exits(2).says("write './mine'");
}

#[test]
fn plan_touches_nothing() {
    let dir = Dir::small();
    let before = dir.listing();
    let args =
        ["plan", "w.yaml", "--ranks", "4", "--hosts", "2", "--host-memory", "256GiB", "--data-dir", "d"];
    let text = dir.feedline(&args).run().exits(0).silent();
    for word in
        ["train files", "steps per epoch", "dropped remainder", "shard of a rank", "disk needed", "total"]
    {
        assert!(text.stdout.contains(word), "{word} is missing in:\n{}", text.stdout);
    }
    assert_eq!(dir.listing(), before);
}
