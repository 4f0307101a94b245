//! Commands that feedline suggests in errors and plans: a shell runs them as they are printed, whatever the names of
//! files and folders, and then the command that failed succeeds.

use std::path::Path;

use rustix::process::Signal;
use session::quoted;

use crate::util::{Dir, Done};

/// A name with everything that a shell treats specially.
const NAME: &str = "it's a \"$HOME\" `x`; \\ & <b> *\n#2";

/// Runs a suggested command in a shell.
fn in_shell(dir: &Dir, command: &str) -> Done {
    let folder = Path::new(env!("CARGO_BIN_EXE_feedline")).parent().unwrap();
    let script = format!("PATH={}:$PATH\n{command}", quoted(folder.to_str().unwrap()));
    dir.command(Path::new("sh"), &["-c", &script]).run()
}

/// The text between two others.
#[track_caller]
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in:\n{text}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("no '{after}' in:\n{rest}")).0
}

#[test]
fn a_quoted_word_reaches_the_program_unchanged() {
    let dir = Dir::new();
    for word in [
        "plain",
        "",
        NAME,
        "a b",
        "--flag=x y",
        "'",
        "\\",
        "$(id)",
        "é",
        "a=b,c:d/e@f%g+h",
        "~",
        "!x",
        "{a,b}",
    ] {
        let done =
            dir.command(Path::new("sh"), &["-c", &format!("printf %s {}", quoted(word))]).run().exits(0);
        assert_eq!(done.stdout, word);
    }
}

#[test]
fn the_suggested_command_generates_the_missing_data_set() {
    let dir = Dir::small();
    let workload = format!("{}.yaml", NAME.replace('\n', " "));
    dir.write(&workload, dir.read("w.yaml"));
    let workload = format!("./{workload}");
    let settings = ["--set", "dataset.num_files_train=12"];
    let run =
        [&["run", &workload, "--quiet", "--no-calibration", "--data-dir", NAME], &settings[..]].concat();
    let done = dir.feedline(&run).run().exits(3).one_error();
    in_shell(&dir, between(&done.stderr, "create it with: ", "\nor add --generate")).exits(0);
    dir.feedline(&run).run().ran();
}

/// A path that starts with a dash is not taken for a flag.
#[test]
fn the_suggested_command_works_for_a_folder_that_looks_like_a_flag() {
    let dir = Dir::small();
    let run = ["run", "w.yaml", "--quiet", "--no-calibration", "--data-dir=-d"];
    let done = dir.feedline(&run).run().exits(3).one_error();
    in_shell(&dir, between(&done.stderr, "create it with: ", "\nor add --generate")).exits(0);
    dir.feedline(&run).run().ran();
}

#[test]
fn the_suggested_command_updates_a_catalog() {
    for output in [None, Some("the catalog's.cat")] {
        let dir = Dir::small_with_data();
        dir.command(Path::new("rm"), &["-r", "data/.feedline", "data/.mlps-datagen-manifest.json"])
            .run()
            .exits(0);
        dir.command(Path::new("mv"), &["data", NAME]).run().exits(0);
        let place = output.map_or(Vec::new(), |output| vec!["--output", output]);
        dir.feedline(&[&["catalog", NAME, "--quiet"], &place[..]].concat()).run().exits(0);
        dir.write(&format!("{NAME}/train/img_99_of_24.npz"), dir.tree(NAME).values().next().unwrap());
        let key = output.map(|output| format!("dataset.catalog=\"{output}\""));
        let settings: Vec<&str> = key.iter().flat_map(|key| ["--set", key]).collect();
        let args = ["run", "w.yaml", "--quiet", "--no-calibration", "--data-dir", NAME];
        let run = [&args, settings.as_slice()].concat();
        let done = dir.feedline(&run).run().exits(3).one_error();
        in_shell(&dir, done.stderr.split_once("to update the catalog, run: ").unwrap().1).exits(0);
        dir.feedline(&run).run().ran();
    }
}

#[test]
fn the_suggested_command_resumes_a_sweep() {
    let dir = Dir::small_with_data();
    dir.command(Path::new("mv"), &["data", NAME]).run().exits(0);
    let over = ["--over", "reader.read_threads=1,2", "--repeat", "2"];
    let args = ["sweep", "w.yaml", "--quiet", "--no-calibration", "--data-dir", NAME];
    let mut running =
        dir.feedline(&[&args, &over[..]].concat()).set(&["train.computation_time=0.02"]).start();
    running.until_thread("reader");
    running.signal(Signal::INT);
    let done = running.wait().exits(4).one_error();
    let resumed = in_shell(&dir, done.stderr.split_once("resume with: ").unwrap().1);
    assert!([Some(0), Some(5)].contains(&resumed.code()), "{}", resumed.stderr);
}

#[test]
fn a_suggestion_with_a_secret_says_how_to_complete_it() {
    let dir = Dir::small();
    let secret = ["storage.storage_options.secret_access_key=hunter2"];
    let done = dir.feedline(&["run", "w.yaml"]).set(&secret).run();
    let done = done.says("secret_access_key=*").says("the asterisks hide a secret: put its value there");
    assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
}

#[test]
fn a_plan_for_several_hosts_has_the_sizes_and_the_commands() {
    let dir = Dir::small();
    let args = ["plan", "w.yaml", "--hosts", "1,2,40", "--ranks-per-host", "2", "--host-memory", "1MiB"];
    let settings = ["train.computation_time=0.001"];
    let json = dir.feedline(&args).args(&["--json"]).set(&settings).run().exits(0).silent().json();
    let plans = json["plans"].as_array().unwrap();
    // 500 steps of 2 samples on each rank, or 5 MiB for each host in files of 4 KiB.
    let rows = plans.iter().map(|plan| {
        ["hosts", "ranks_per_host", "ranks"].map(|key| plan[key].as_u64().unwrap()).into_iter().chain(
            ["steps_floor_files", "memory_floor_files", "required_files"]
                .map(|key| plan["mlperf"][key].as_u64().unwrap()),
        )
    });
    let rows: Vec<Vec<u64>> = rows.map(Iterator::collect).collect();
    assert_eq!(
        rows,
        [
            vec![1, 2, 2, 2000, 1280, 2000],
            vec![2, 2, 4, 4000, 2560, 4000],
            vec![40, 2, 80, 80_000, 51_200, 80_000]
        ]
    );
    let rates: Vec<f64> = plans.iter().map(|plan| plan["mib_per_second"].as_f64().unwrap()).collect();
    assert!((rates[1] - 2.0 * rates[0]).abs() < 1e-9 * rates[1], "{rates:?}");
    let text = dir.feedline(&args).set(&settings).run().exits(0).silent().stdout;
    assert!(text.contains("500 steps\n"), "{text}");
    let commands: Vec<&str> = text.lines().filter(|line| line.starts_with("  feedline generate ")).collect();
    assert_eq!(commands.len(), 3, "{text}");
    in_shell(&dir, commands[0]).exits(0);
    let generated = ["plan", "w.yaml", "--ranks", "2", "--host-memory", "1MiB", "--json", "--set"];
    let plan =
        dir.feedline(&[&generated[..], &["dataset.num_files_train=2000"]].concat()).run().exits(0).json();
    assert_eq!(plan["estimate"]["mlperf"]["satisfied"], true, "{plan}");
}

#[test]
fn hosts_without_ranks_use_the_workloads_number_on_each() {
    let dir = Dir::small();
    let plan = |args: &[&str]| dir.feedline(&["plan", "w.yaml", "--json"]).args(args).run();
    assert_eq!(plan(&["--hosts", "2"]).exits(0).json()["ranks"], 2);
    assert_eq!(plan(&["--hosts", "2", "--ranks-per-host", "3"]).exits(0).json()["ranks"], 6);
    plan(&["--hosts", "1,4", "--ranks", "3"])
        .exits(2)
        .says("3 ranks cannot be spread over 4 hosts; lower --hosts");
    plan(&["--hosts", "0,1"]).exits(2).one_error();
    plan(&["--hosts", "1,2", "--ranks", "2", "--ranks-per-host", "2"]).exits(2).says("cannot be used with");
    let checkpoints = dir.feedline(&["plan", "llama3_8b", "--hosts", "1,2"]).run();
    checkpoints.exits(2).one_error();
}

/// If the data set is too small for MLPerf Storage's rules, the plan ends with the command for a larger one.
#[test]
fn a_plan_ends_with_the_command_for_the_required_size() {
    let dir = Dir::small();
    let memory = ["--host-memory", "1MiB"];
    let text = dir.feedline(&["plan", "w.yaml"]).args(&memory).run().exits(0).stdout;
    let line = text.lines().last().unwrap();
    assert_eq!(line, "  feedline generate w.yaml --set dataset.num_files_train=1280");
    let enough = dir.feedline(&["plan", "w.yaml"]).args(&memory).set(&["dataset.num_files_train=1280"]).run();
    assert!(!enough.exits(0).stdout.contains("feedline generate"));
}
