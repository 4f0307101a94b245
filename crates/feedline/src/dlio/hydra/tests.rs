//! Tests of the flags, the search order, the jobs and the printed texts.

use std::path::PathBuf;

use super::{HydraInputs, compose};
use crate::dlio::job::{Composed, Job};

/// Composes without a clock and without an environment.
pub(super) fn compose_in(folder: &str, arguments: &[&str]) -> anyhow::Result<Composed> {
    let now = |pattern: &str| Ok(pattern.replace('%', ""));
    let variable = |name: &str| (name == "FEEDLINE_GIVEN").then(|| "given".to_owned());
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let inputs = HydraInputs { now: &now, variable: &variable, folder: PathBuf::from(folder), seed: 7 };
    compose(&arguments, &inputs)
}

fn jobs(arguments: &[&str]) -> Vec<Job> {
    match compose_in("/here", arguments) {
        Ok(Composed::Jobs(jobs)) => jobs,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn print(arguments: &[&str]) -> String {
    match compose_in("/here", arguments) {
        Ok(Composed::Print(text)) => text,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn refusal(arguments: &[&str]) -> String {
    match compose_in("/here", arguments) {
        Err(error) => format!("{error:#}"),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// The form of mlpstorage: overrides, then the folder of its workloads.
#[test]
fn a_command_line_of_mlpstorage_is_one_job() {
    let folder = tempfile::tempdir().unwrap();
    let workloads = folder.path().join("workload");
    std::fs::create_dir(&workloads).unwrap();
    std::fs::write(workloads.join("unet3d_h100.yaml"), "model: {name: other}").unwrap();
    std::fs::write(workloads.join("mine.yaml"), "model: {name: mine}").unwrap();
    let config_dir = format!("--config-dir={}", folder.path().display());
    let arguments = [
        "workload=unet3d_h100",
        "++hydra.run.dir=/results/leaf",
        "++hydra.output_subdir=dlio_config",
        "++workload.dataset.data_folder=",
        "++workload.dataset.skip_listing=True",
        config_dir.as_str(),
    ];
    let [job] = &jobs(&arguments)[..] else { panic!() };
    assert_eq!(job.workload, "unet3d_h100");
    assert_eq!(job.folder, PathBuf::from("/results/leaf"));
    assert_eq!(job.subfolder.as_deref(), Some("dlio_config"));
    assert!(!job.changes_folder);
    assert!(job.config.contains("    data_folder: ''\n"), "{}", job.config);
    assert!(job.config.contains("    skip_listing: true\n"), "{}", job.config);
    assert_eq!(job.config, job.resolved);
    let expected =
        "- workload=unet3d_h100\n- ++workload.dataset.data_folder=\n- ++workload.dataset.skip_listing=True\n";
    assert_eq!(job.overrides, expected);
    assert_eq!(job.notices.len(), 1, "{:?}", job.notices);
    assert!(job.notices[0].contains("workload/unet3d_h100.yaml is not used"), "{}", job.notices[0]);

    let [job] = &jobs(&["workload=mine", config_dir.as_str()])[..] else { panic!() };
    assert_eq!(job.folder, PathBuf::from("./hydra_log/mine/Y-m-d-H-M-S"));
    assert_eq!(job.config, "workload:\n  model:\n    name: mine\n");
    assert_eq!(job.notices, Vec::<String>::new());
}

#[test]
fn a_sweep_makes_one_job_for_each_combination() {
    let jobs =
        jobs(&["-m", "workload=default,dlrm", "+a=1,2", "++workload.b=range(1,3)", "hydra.sweep.dir=s"]);
    let lines: Vec<String> =
        jobs.iter().map(|job| job.overrides.replace("- ", "").replace('\n', " ")).collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[0], "workload=default +a=1 ++workload.b=1 ");
    assert_eq!(lines[1], "workload=default +a=1 ++workload.b=2 ");
    assert_eq!(lines[7], "workload=dlrm +a=2 ++workload.b=2 ");
    assert_eq!(jobs[5].folder, PathBuf::from("s/5"));
    assert_eq!(jobs[5].workload, "dlrm");
    assert!(jobs[5].hydra.contains("    id: '5'\n    num: 5\n"), "{}", jobs[5].hydra);
    assert!(jobs[5].hydra.contains("output_dir: /here/s/5\n"), "{}", jobs[5].hydra);
}

#[test]
fn refusals_say_what_to_do() {
    let table: &[(&[&str], &str)] = &[
        (&["--nope"], "there is no flag '--nope'"),
        (&["--cfg", "foo"], "--cfg is job, hydra or all"),
        (&["-m", "--cfg", "job"], "only one of"),
        (&["--resolve"], "--resolve needs --cfg or --help"),
        (&["--config-dir"], "--config-dir needs a value"),
        (&["--config-dir=/nonexistent"], "there is no folder /nonexistent"),
        (&["--config-path=relative"], "give an absolute path"),
        (&["--config-name=nope"], "there is no primary config 'nope'"),
        (&["--experimental-rerun", "x"], "not supported"),
        (&["-sc"], "not supported"),
        (&["--info=foo"], "--info is one of all, config"),
        (&["--con=foo"], "can mean --config-dir or --config-path or --config-name"),
        (&["workload=nope"], "\tunet3d_h100"),
        (&["+workload=default"], "'workload' is chosen more than once"),
        (&["++workload=default"], "'++' cannot choose"),
        (&["workload=1"], "is a text or a list"),
        (&["~workload"], "there is no value for the interpolation '${workload.model.name}'"),
        (&["~workload", "hydra.run.dir=d"], "the configuration has no 'workload'"),
        (&["workload.nope=1"], "to add a key, write +workload.nope=1"),
        (&["+workload.model.name=x"], "write workload.model.name=x or ++workload.model.name=x"),
        (&["~workload.nope"], "there is no 'workload.nope' to delete"),
        (&["~workload.model.name=x"], "the value is the text 'default', not the text 'x'"),
        (&["workload.framework=a,b"], "add --multirun"),
        (&["workload.framework=choice(a,b)"], "needs --multirun"),
        (&["workload.framework=a=b"], "the value should end here"),
        (&["workload.framework=~/x"], "needs quotes"),
        (&["x"], "'=' is missing"),
        (&["hydra.run.dir=null"], "'hydra.run.dir' must be a text"),
        (&["hydra.mode=FOO"], "RUN or MULTIRUN"),
        (&["hydra.job.chdir=maybe"], "true or false"),
        (&["~hydra.run.dir"], "cannot be deleted"),
        (&["hydra/job_logging=nope"], "\tcustom"),
        (&["hydra.run.dir=${nope:x}"], "the resolver 'nope'"),
        (&["hydra.run.dir=${hydra.run.dir}"], "refers to itself"),
        (&["-m", "workload.train.epochs=interval(1,2)"], "cannot enumerate an interval"),
        (&["-m", "hydra.run.dir=a,b"], "cannot be swept"),
    ];
    for (arguments, expected) in table {
        let refusal = refusal(arguments);
        assert!(refusal.contains(expected), "{arguments:?}: {refusal}");
    }
}

#[test]
fn refusals_show_no_secrets() {
    for value in ["hunter2~", "hunter2"] {
        let refusal = refusal(&[&format!("workload.storage.storage_options.secret_access_key={value}")]);
        assert!(refusal.contains("secret_access_key=") && !refusal.contains("hunter2"), "{refusal}");
    }
}

#[test]
fn interpolations_are_resolved_for_the_run_and_kept_in_the_file() {
    let arguments = [
        "++workload.dataset.data_folder=/data/${workload.model.name}",
        "++workload.a=${oc.env:FEEDLINE_GIVEN}",
        "++workload.b=${oc.env:FEEDLINE_NOT_GIVEN,7}",
        "++workload.c=${oc.decode:'[1, true]'}",
        "++workload.reader.d=${.batch_size}",
        "++workload.reader.e=${..framework}",
        "++workload.f=${oc.select:nope,5}",
        r"++workload.g='\${x}'",
        "++workload.h='${workload.${workload.i}}'",
        "++workload.i=framework",
    ];
    let [job] = &jobs(&arguments)[..] else { panic!() };
    for line in [
        "data_folder: /data/default\n",
        "  a: given\n",
        "  b: '7'\n",
        "  c:\n  - 1\n  - true\n",
        "    d: 4\n",
        "    e: pytorch\n",
        "  f: 5\n",
        "  g: ${x}\n",
        "  h: pytorch\n",
    ] {
        assert!(job.resolved.contains(line), "{line}: {}", job.resolved);
    }
    assert!(job.config.contains("data_folder: /data/${workload.model.name}\n"), "{}", job.config);

    let arguments = [
        "+a=1",
        "+b=2",
        "hydra.run.dir=out/${hydra:job.name}/${hydra.job.override_dirname}",
        "hydra.job.config.override_dirname.exclude_keys=[a]",
    ];
    let [job] = &jobs(&arguments)[..] else { panic!() };
    assert_eq!(job.folder, PathBuf::from("out/main/+b=2"));
}

#[test]
fn flags_print_what_they_say() {
    assert!(print(&["--version"]).starts_with("Hydra 1.3.2 (feedline "));
    assert_eq!(
        print(&["--cfg", "job", "-p", "workload.model"]),
        "# @package workload.model\nname: default\n"
    );
    assert_eq!(print(&["-c=job", "--package=workload.framework", "workload=dlrm"]), "pytorch\n");
    let hydra = print(&["--cfg=hydra"]);
    assert!(
        hydra.starts_with("hydra:\n  run:\n    dir: ./hydra_log/${workload.model.name}/${now:"),
        "{hydra}"
    );
    assert!(!hydra.contains("\n  help:\n"), "{hydra}");
    let resolved = print(&["--cfg=hydra", "-p=hydra.run", "--resolve", "workload=dlrm"]);
    assert!(resolved.contains("dir: ./hydra_log/dlrm/Y-m-d-H-M-S\n"), "{resolved}");

    let help = print(&["--help", "workload=dlrm"]);
    assert!(help.contains("Available options for workload: bert_v100, cosmoflow_a100, "), "{help}");
    assert!(help.contains("=== dlio_benchmark ==="), "{help}");
    assert!(help.contains("\nworkload:\n  model:\n    name: dlrm\n"), "{help}");
    let hydra_help = print(&["--hydra-help"]);
    assert!(
        hydra_help.contains("hydra/job_logging: custom, default, disabled, none, stdout\n"),
        "{hydra_help}"
    );
    assert!(hydra_help.contains("--config-dir,-cd : "), "{hydra_help}");

    let tree = print(&["--info", "defaults-tree", "workload=dlrm"]);
    assert!(tree.contains("<root>:\n  hydra/config:\n    hydra/output: default\n"), "{tree}");
    assert!(tree.ends_with("  config:\n    _self_\n    workload: dlrm\n"), "{tree}");
    let defaults = print(&["--info=defaults"]);
    assert!(
        defaults.contains(
            "| workload/default                    | workload            | False  | config       |"
        ),
        "{defaults}"
    );
    let search_path = print(&["-i", "searchpath"]);
    assert!(search_path.contains("| main     | pkg://dlio_benchmark.configs |\n"), "{search_path}");
    let all = print(&["workload=dlrm", "--info"]);
    assert!(
        ["Plugins", "Config search path", "Defaults List", "name: dlrm"]
            .iter()
            .all(|text| all.contains(text))
    );
}

#[test]
fn null_writes_no_files_and_chdir_changes_the_folder() {
    let [job] = &jobs(&["hydra.output_subdir=null", "hydra.job.chdir=yes", "hydra.job.name=x"])[..] else {
        panic!()
    };
    assert_eq!(job.subfolder, None);
    assert!(job.changes_folder);
    assert!(job.hydra.contains("    name: x\n"), "{}", job.hydra);
}
