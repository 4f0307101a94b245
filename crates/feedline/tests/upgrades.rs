//! The corpus of earlier versions in tests/data/VERSION, which scripts/corpus makes: this version reads its results,
//! studies, data sets, catalogs, checkpoints, audits and traces.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::schemas::Documents;
use crate::util::{Dir, outcome, walk};
use crate::validate::forge;

/// The largest corpus of a version.
const MOST_BYTES: u64 = 1 << 20;

const RESULTS: [&str; 4] = ["results/valid", "results/cached", "results/saves", "results/audit"];
const STUDIES: [&str; 3] = ["sweep", "capacity", "stall"];

/// The folders of all versions.
fn versions() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(folders.iter().any(|folder| folder.ends_with("0.1.0")), "{folders:?}");
    folders
}

/// Calls `test` with a copy of each corpus.
fn for_each_corpus(test: impl Fn(&Dir)) {
    for version in versions() {
        let dir = Dir::new();
        let from = format!("{}/.", version.display());
        dir.command(Path::new("cp"), &["-r", &from, "."]).run().exits(0);
        test(&dir);
    }
}

/// The rules that failed in the verdict of a validation.
fn failed(validation: &Value) -> Vec<String> {
    let rules = validation["verdict"]["rules"].as_array().unwrap().iter();
    let failed = rules.filter(|finding| finding["outcome"] == "fail");
    failed.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_corpus_is_small_and_has_no_paths_of_its_machine() {
    for version in versions() {
        let mut bytes = 0;
        walk(&version, &mut |path| {
            if !path.is_file() {
                return;
            }
            let content = fs::read(path).unwrap();
            bytes += content.len() as u64;
            let text = String::from_utf8_lossy(&content);
            for place in ["/root", "/home", "/work", "/var"] {
                assert!(!text.contains(place), "{} contains {place}", path.display());
            }
        });
        assert!((1..=MOST_BYTES).contains(&bytes), "{}: {bytes} bytes", version.display());
    }
}

#[test]
fn verdicts_are_recomputed_and_the_same() {
    for_each_corpus(|dir| {
        for (result, status, rules) in
            [("valid", "valid", vec![]), ("cached", "invalid", vec!["cache"]), ("saves", "valid", vec![])]
        {
            let folder = format!("results/{result}");
            let code = if status == "valid" { 0 } else { 5 };
            let done = dir.feedline(&["validate", &folder, "--json"]).run().exits(code).silent();
            let validation = &done.json()["results"][0];
            assert_eq!(validation["verdict"]["status"], status, "{result}");
            assert_eq!(
                (failed(validation), &validation["changes"]),
                (rules.into_iter().map(str::to_owned).collect(), &json!([]))
            );
            let recorded = &dir.json(&format!("{folder}/summary.json"))["feedline"]["verdict"]["status"];
            assert_eq!(recorded, status, "{result}");
        }
        let audit = dir.feedline(&["validate", "results/audit", "--json"]).run().exits(0).silent().json();
        assert_eq!(audit["results"][0]["findings"], audit["results"][0]["recorded_findings"]);
    });
}

#[test]
fn a_changed_result_is_detected() {
    for_each_corpus(|dir| {
        let ledger = dir.read("results/valid/ledger.json");
        dir.write("results/valid/ledger.json", ledger.replacen('1', "2", 1));
        dir.feedline(&["validate", "results/valid"]).run().exits(3).one_error().says("ledger.json");
    });
}

#[test]
fn pages_are_made_of_results_and_studies() {
    for_each_corpus(|dir| {
        for folder in RESULTS.into_iter().chain(STUDIES) {
            dir.feedline(&["report", folder, "--output", "page.html"]).run().exits(0);
            let page = dir.read("page.html");
            assert!(page.contains("</html>") && !page.contains("cannot be shown"), "{folder}");
            fs::remove_file(dir.path("page.html")).unwrap();
        }
    });
}

#[test]
fn results_are_compared() {
    for_each_corpus(|dir| {
        dir.command(Path::new("cp"), &["-r", "results/valid", "copy"]).run().exits(0);
        let args = ["compare", "results/valid", "copy", "--json"];
        let same = dir.feedline(&args).run().exits(0).json();
        assert_eq!(same["figures"]["samples_per_second"]["ratio"], 1.0);
        let args = ["compare", "results/audit", "results/valid", "--json"];
        let with_audit = dir.feedline(&args).run().exits(0).json();
        assert!(with_audit["figures"]["samples_per_second"]["ratio"].is_number(), "{with_audit:#}");
    });
}

#[test]
fn an_interrupted_study_is_resumed() {
    for_each_corpus(|dir| {
        // The journal names the absolute path of the data folder.
        let journal = dir.read("sweep/cells.jsonl");
        let here = fs::canonicalize(dir.path("data")).unwrap();
        let moved = journal.replace("/tmp/corpus/data", here.to_str().unwrap());
        assert_ne!(moved, journal);
        // Without the last run.
        let lines: Vec<&str> = moved.lines().collect();
        dir.write("sweep/cells.jsonl", lines[..lines.len() - 1].join("\n") + "\n");
        let args = ["sweep", "train.yaml", "--over", "reader.read_threads=1,2", "--repeat", "2"];
        let set = ["workflow.evaluation=false", "train.epochs=1"];
        let done = dir.feedline(&args).args(&["--output", "sweep", "--no-calibration"]).set(&set).run();
        assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
        let done = done.says("run 1 of 1 ");
        assert_eq!(dir.read("sweep/cells.jsonl").lines().count(), lines.len(), "{}", done.stderr);
    });
}

#[test]
fn a_data_set_is_complete_and_read() {
    for_each_corpus(|dir| {
        let kept = dir.feedline(&["generate", "train.yaml", "--json", "--quiet"]).run().exits(0).json();
        assert_eq!((&kept["files_written"], &kept["files_kept"]), (&json!(0), &json!(16)));
        let args = ["run", "train.yaml", "--json", "--no-calibration", "--verify", "full"];
        let summary = dir.feedline(&args).run().ran().json();
        assert_eq!(outcome(&summary, "data-verified"), "pass", "{summary:#}");
    });
}

#[test]
fn a_catalog_is_used_and_refreshed() {
    for_each_corpus(|dir| {
        // The times that the catalog has; scripts/corpus set them.
        let touch = ["-d", "2026-01-01T00:00:00Z", "files/train", "files"];
        dir.command(Path::new("touch"), &touch).run().exits(0);
        let set = ["workflow.evaluation=false", "dataset.num_files_eval=0", "train.epochs=1"];
        let args = ["run", "train.yaml", "--data-dir", "files", "--json", "--no-calibration"];
        let summary = dir.feedline(&args).set(&set).run().ran().json();
        assert_eq!(summary["num_files_train"], 12);
        let before = fs::read(dir.path("files/.feedline/catalog")).unwrap();
        dir.write("files/train/photo_12.npz", fs::read(dir.path("files/train/photo_0.npz")).unwrap());
        let listed = dir.feedline(&["catalog", "files", "--refresh", "--json"]).run().exits(0).json();
        assert_eq!(listed["files"], 13);
        assert_ne!(fs::read(dir.path("files/.feedline/catalog")).unwrap(), before);
        let file = ["inspect", "files/train/photo_0.npz", "--json"];
        assert_eq!(dir.feedline(&file).run().exits(0).json()["files"][0]["samples"], 1);
    });
}

#[test]
fn a_checkpoint_is_restored_and_its_folder_continued() {
    for_each_corpus(|dir| {
        let args = ["run", "saves.yaml", "--ranks", "2", "--json", "--quiet"];
        let restored = dir.feedline(&args).set(&["checkpoint.num_checkpoints_write=0"]).run().ran().json();
        let restores = restored["feedline"]["checkpoint"]["restores"].as_array().unwrap();
        assert!(restores.len() == 1 && restores[0]["failure"].is_null(), "{restored:#}");
        let saved = dir.feedline(&args).run().ran().json();
        assert_eq!(saved["feedline"]["checkpoint"]["saves"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn an_audit_gives_a_workload_that_runs() {
    for_each_corpus(|dir| {
        let job = dir.feedline(&["infer", "results/audit"]).run().exits(0).stdout;
        dir.write("job.yaml", job);
        let args = ["run", "job.yaml", "--json", "--quiet", "--no-calibration"];
        let done = dir.feedline(&args).run();
        // The files are in the cache, because the replay has just written them.
        assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
        assert_eq!(outcome(&done.json(), "exactly-once"), "pass");
    });
}

#[test]
fn a_trace_is_summarised_and_judged() {
    for_each_corpus(|dir| {
        let summary = dir.feedline(&["trace", "trace.pfw.gz", "--json"]).run().exits(0).json();
        assert_eq!((&summary["complete"], &summary["lost_events"]), (&json!(true), &json!(0)));
        let args = ["audit", "--from", "trace.pfw.gz", "--name", "job", "--results", "again", "--json"];
        let findings = dir.feedline(&args).run().exits(0).json();
        assert_eq!(findings["rules"], dir.json("results/audit/findings.json")["rules"]);
    });
}

/// Documents of later versions may differ; then this test needs the schemas of the version.
#[test]
fn documents_match_their_schemas() {
    for_each_corpus(|dir| {
        let mut documents = Documents::of(dir);
        for result in ["results/valid", "results/cached", "results/saves"] {
            documents.result(result);
        }
        documents.add("audit-summary", "results/audit/summary.json");
        documents.add("findings", "results/audit/findings.json");
        documents.add("ledger", "results/audit/ledger.json");
        for (study, journal) in [("sweep", "cells"), ("capacity", "trials"), ("stall", "runs")] {
            documents.add(study, &format!("{study}/{study}.json"));
            documents.add(&format!("{study}-journal"), &format!("{study}/{journal}.jsonl"));
        }
        documents.add("data-set", "data/.feedline/dataset.json");
        documents.add("checkpoint", "checkpoints/global_epoch1_step1/checkpoint.json");
        documents.match_their_schemas();
    });
}

#[test]
fn results_without_versions_are_read_as_version_1() {
    for_each_corpus(|dir| {
        for name in ["summary.json", "plan.json", "ledger.json"] {
            forge(dir, "results/valid", name, |document| {
                let holder = if name == "summary.json" { &mut document["feedline"] } else { document };
                assert_eq!(
                    holder.as_object_mut().unwrap().remove("schema_version"),
                    Some(json!(1)),
                    "{name}"
                );
            });
        }
        dir.feedline(&["validate", "results/valid"]).run().exits(0).silent();
    });
}
