//! JSON documents and their schemas: every kind of document has a schema in docs/schemas, documents of many runs match
//! it, changed ones do not, and documents of later versions are refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use model::document::{DOCUMENTS, DocumentKind};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster::launch::Mpi;
use crate::mlperf::submission;
use crate::util::{Dir, Done, SMALL, TINY_MODEL};
use crate::validate::forge;

/// The kinds that each test checks. Together they are all kinds.
const OF_RUNS: [&str; 9] = [
    "summary",
    "plan",
    "ledger",
    "plan-report",
    "data-set",
    "generation",
    "validation",
    "comparison",
    "trace-summary",
];
const OF_PLANS: [&str; 4] = ["plan-report", "data-set-plan", "host-plans", "workloads"];
const OF_CHECKPOINTS: [&str; 4] = ["checkpoint", "summary", "plan", "ledger"];
const OF_STUDIES: [&str; 6] =
    ["sweep", "sweep-journal", "capacity", "capacity-journal", "stall", "stall-journal"];
const OF_AUDITS: [&str; 5] = ["audit-summary", "findings", "audit-comparison", "ledger", "validation"];
const OF_FILES: [&str; 3] = ["listing", "listing-check", "inspection"];
const OF_MLPERF: [&str; 3] = ["mlperf-size", "mlperf-check", "mlperf-table"];
const OF_FAILURES: [&str; 1] = ["error"];
const OF_THE_PROGRAM: [&str; 3] = ["health", "pages", "page-matches"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn folder() -> PathBuf {
    repository().join("docs/schemas")
}

/// Documents to validate, each with its kind and its file.
pub(crate) struct Documents<'a> {
    dir: &'a Dir,
    listed: Vec<(String, String)>,
}

impl<'a> Documents<'a> {
    pub(crate) fn of(dir: &'a Dir) -> Documents<'a> {
        Documents { dir, listed: Vec::new() }
    }

    pub(crate) fn add(&mut self, kind: &str, file: &str) {
        self.listed.push((kind.to_owned(), file.to_owned()));
    }

    /// The document on the standard output of a command.
    fn printed(&mut self, kind: &str, done: &Done) {
        let file = format!("printed-{}.json", self.listed.len());
        self.dir.write(&file, &done.stdout);
        self.add(kind, &file);
    }

    /// The documents of the result of a run.
    pub(crate) fn result(&mut self, result: &str) {
        for kind in ["summary", "plan", "ledger"] {
            self.add(kind, &format!("{result}/{kind}.json"));
        }
    }

    /// Validates them. Changes to each of them must be refused.
    #[track_caller]
    pub(crate) fn match_their_schemas(&self) {
        self.dir.write("documents.json", json!(self.listed).to_string());
        let schemas = folder();
        let done = self.dir.python("schemas.py", &[schemas.to_str().unwrap(), "documents.json"]).run();
        assert!(done.code() == Some(0) && done.stdout.is_empty(), "{}{}", done.stdout, done.stderr);
    }

    /// The same, for a test that has documents of exactly these kinds.
    #[track_caller]
    fn are(&self, kinds: &[&str]) {
        let seen: BTreeSet<&str> = self.listed.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(seen, kinds.iter().copied().collect());
        self.match_their_schemas();
    }
}

fn schema(name: &str) -> Value {
    let path = folder().join(format!("{name}.schema.json"));
    serde_json::from_str(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}")))
        .unwrap()
}

#[test]
fn every_kind_has_a_schema_of_its_version_and_every_schema_a_kind() {
    let files =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let expected = DOCUMENTS.iter().map(|kind| format!("{}.schema.json", kind.name));
    assert_eq!(files.collect::<BTreeSet<_>>(), expected.collect());
    for DocumentKind { name, version, .. } in DOCUMENTS {
        let schema = schema(name);
        let places = [
            &schema["properties"]["schema_version"],
            &schema["properties"]["feedline"]["properties"]["schema_version"],
            &schema["oneOf"][0]["properties"]["schema_version"],
        ];
        assert!(places.contains(&&json!({"const": version})), "{name}: {places:?}");
    }
    let dir = Dir::new();
    dir.python("schemas.py", &[folder().to_str().unwrap(), "LINT"]).run().exits(0).silent();
}

#[test]
fn every_kind_is_checked() {
    let checked = [
        OF_RUNS.as_slice(),
        &OF_PLANS,
        &OF_CHECKPOINTS,
        &OF_STUDIES,
        &OF_AUDITS,
        &OF_FILES,
        &OF_MLPERF,
        &OF_FAILURES,
        &OF_THE_PROGRAM,
    ];
    let checked: BTreeSet<&str> = checked.into_iter().flatten().copied().collect();
    assert_eq!(checked, DOCUMENTS.iter().map(|kind| kind.name).collect());
}

#[test]
fn the_page_lists_every_kind() {
    let page = fs::read_to_string(repository().join("docs/reference/documents.md")).unwrap();
    let row = |kind: &DocumentKind| {
        let DocumentKind { name, version, place } = kind;
        format!("| {place} | [{name}](../schemas/{name}.schema.json) | {version} |")
    };
    let expected: Vec<String> = DOCUMENTS.iter().map(row).collect();
    let rows: Vec<&str> = page.lines().filter(|line| line.contains(".schema.json) |")).collect();
    assert_eq!(
        rows,
        expected,
        "the table of docs/reference/documents.md, as it must be:\n{}",
        expected.join("\n")
    );
}

#[test]
fn a_document_that_does_not_match_is_found() {
    let dir = Dir::new();
    let good = json!({
        "schema_version": 1, "workload": "w", "data_folder": "d", "files_written": 1, "files_kept": 0,
        "bytes_written": 1, "bytes_verified": 0, "seconds": 0.5,
    });
    for (change, expected) in [
        (json!({}), None),
        (json!({"files_kept": null}), Some("$.files_kept: None is not of type 'integer'")),
        (json!({"files_kept": -1}), Some("$.files_kept: -1 is less than the minimum of 0")),
        (json!({"other": 1}), Some("$: Additional properties are not allowed ('other' was unexpected)")),
        (json!({"schema_version": 2}), Some("$.schema_version: 1 was expected")),
    ] {
        let mut document = good.clone();
        document.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        dir.write("document.json", document.to_string());
        dir.write("documents.json", "[[\"generation\", \"document.json\"]]");
        let done = dir.python("schemas.py", &[folder().to_str().unwrap(), "documents.json"]).run();
        match expected {
            None => assert_eq!(done.exits(0).stdout, ""),
            Some(text) => drop(done.exits(1).prints(&format!("generation document.json: {text}"))),
        }
    }
}

#[test]
fn documents_of_runs_match() {
    let dir = Dir::small();
    let mut documents = Documents::of(&dir);
    let run = |flags: &[&str], settings: &[&str]| {
        let args = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"];
        dir.feedline(&args).args(flags).set(settings).run().ran()
    };
    documents.printed("generation", &dir.feedline(&["generate", "w.yaml", "--json"]).run().exits(0));
    documents.add("data-set", "data/.feedline/dataset.json");
    let evaluated = ["dataset.num_files_eval=4", "workflow.evaluation=true", "dataset.data_folder=e"];
    let flags = ["--generate", "--ranks", "2", "--trace", "t.json"];
    documents.printed("summary", &run(&flags, &evaluated));
    for store in ["direct", "mmap", "uring", "null", "sim:ssd"] {
        documents.printed("summary", &run(&["--store", store], &[]));
    }
    for format in ["jpeg", "hdf5", "parquet", "csv", "raw", "indexed_binary"] {
        let data = format!("dataset.data_folder={format}");
        documents.printed("summary", &run(&["--generate"], &[&format!("dataset.format={format}"), &data]));
    }
    let args = ["run", "w.yaml", "--quiet", "--json", "--cache", "warm"];
    documents.printed("summary", &dir.feedline(&args).run().ran());
    let results = dir.results();
    results.iter().for_each(|result| documents.result(result));
    documents.printed("plan-report", &dir.feedline(&["plan", "w.yaml", "--json"]).run().exits(0));
    let [one, .., other] = results.as_slice() else { panic!("{results:?}") };
    documents.printed("validation", &dir.feedline(&["validate", one, other, "--json"]).run());
    dir.command(Path::new("cp"), &["-r", other, "copy"]).run().exits(0);
    let compared = dir.feedline(&["compare", other, "copy", "--json"]).run().exits(0);
    documents.printed("comparison", &compared);
    documents.printed("trace-summary", &dir.feedline(&["trace", "t.json", "--json"]).run().exits(0));
    documents.are(&OF_RUNS);
}

#[test]
fn documents_of_several_processes_match() {
    let dir = crate::cluster::with_saving();
    let args = ["run", "w.yaml", "--ranks", "4", "--quiet", "--no-calibration"];
    Mpi::OpenMpi4.feedline(&dir, 2, &args).run();
    let mut documents = Documents::of(&dir);
    documents.result(&dir.result());
    let processes = &dir.json(&format!("{}/summary.json", dir.result()))["feedline"]["processes"];
    assert_eq!(processes.as_array().map(Vec::len), Some(2));
    documents.match_their_schemas();
}

#[test]
fn plans_match() {
    let dir = Dir::small();
    let mut documents = Documents::of(&dir);
    let plan = |args: &[&str]| dir.feedline(&["plan", "--json"]).args(args).run().exits(0);
    let workloads = dir.feedline(&["workloads", "--json"]).run().exits(0);
    documents.printed("workloads", &workloads);
    for row in workloads.json()["workloads"].as_array().unwrap() {
        documents.printed("plan-report", &plan(&[row["name"].as_str().unwrap()]));
    }
    documents.printed("plan-report", &plan(&["retinanet_b200", "--ranks", "16", "--hosts", "2"]));
    documents.printed("plan-report", &plan(&["w.yaml", "--set", "storage.storage_root=s3://bucket"]));
    documents.printed("host-plans", &plan(&["w.yaml", "--hosts", "1,2"]));
    let only_data = ["w.yaml", "--set", "workflow.train=false", "--set", "workflow.generate_data=true"];
    documents.printed("data-set-plan", &plan(&only_data));
    documents.are(&OF_PLANS);
}

#[test]
fn documents_of_the_program_match() {
    let dir = Dir::new();
    let mut documents = Documents::of(&dir);
    let health = dir.feedline(&["doctor", "--json", ".", "missing"]).run();
    assert_eq!(health.json()["state"], "missing");
    documents.printed("health", &health);
    documents.printed("pages", &dir.feedline(&["docs", "--json"]).run().exits(0));
    let search = dir.feedline(&["docs", "--json", "--search", "cachestat"]).run().exits(0);
    assert!(!search.json()["matches"].as_array().unwrap().is_empty());
    documents.printed("page-matches", &search);
    documents.are(&OF_THE_PROGRAM);
}

#[test]
fn documents_of_checkpoints_match() {
    let dir = Dir::new();
    let checkpoint = "checkpoint: {checkpoint_folder: ck, fsync: true, time_between_checkpoints: 0, \
                      num_checkpoints_write: 2, num_checkpoints_read: 1}\n";
    dir.write("w.yaml", format!("{TINY_MODEL}{checkpoint}"));
    for flags in [&["--save", "direct"], &["--save", "async"], &["--advise", "24h"]] {
        dir.feedline(&["run", "w.yaml", "--ranks", "2", "--quiet"]).args(flags).run().ran();
    }
    let mut documents = Documents::of(&dir);
    dir.results().iter().for_each(|result| documents.result(result));
    documents.add("checkpoint", "ck/global_epoch1_step1/checkpoint.json");
    documents.are(&OF_CHECKPOINTS);
}

#[test]
fn documents_of_studies_match() {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("num_files_train: 24", "num_files_train: 128"));
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    let study = |args: &[&str]| {
        let slow = ["train.computation_time=0.005", "train.epochs=1"];
        let done = dir.feedline(args).args(&["--quiet", "--json"]).set(&slow).run();
        assert!(matches!(done.code(), Some(0 | 5)), "{}", done.stderr);
        done
    };
    let mut documents = Documents::of(&dir);
    let over = ["sweep", "w.yaml", "--over", "reader.read_threads=1,2", "--repeat", "2", "--output", "sweep"];
    documents.printed("sweep", &study(&over));
    documents.printed("stall", &study(&["stall", "w.yaml", "--output", "stall"]));
    let up_to = ["capacity", "w.yaml", "--up-to", "2", "--confirm", "none", "--output", "capacity"];
    documents.printed("capacity", &study(&up_to));
    for (kind, journal) in [("sweep", "cells"), ("stall", "runs"), ("capacity", "trials")] {
        documents.add(kind, &format!("{kind}/{kind}.json"));
        documents.add(&format!("{kind}-journal"), &format!("{kind}/{journal}.jsonl"));
    }
    documents.are(&OF_STUDIES);
}

/// Trains on the files of `SMALL` with the data loader of PyTorch.
const JOB: &str = "
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, number):
        with open(f'data/train/img_{number:02}_of_24.npz', 'rb') as file:
            return len(file.read())

if __name__ == '__main__':
    for _ in range(2):
        for _ in DataLoader(Files(), batch_size=4, num_workers=2, shuffle=True):
            pass
";

#[test]
fn documents_of_audits_match() {
    let dir = Dir::small_with_data();
    dir.write("job.py", JOB);
    let job = ["run", "w.yaml", "--quiet", "--trace", "t.json", "--no-calibration"];
    dir.feedline(&job).run().ran();
    let run = dir.result();
    let mut documents = Documents::of(&dir);
    let traced = ["audit", "--from", "t.json", "--results", "traced", "--json"];
    documents.printed("findings", &dir.feedline(&traced).run().exits(0));
    // A job without an interpreter that can be marked, and one that Debian's PyTorch runs.
    let jobs: [(&str, &[&str]); 2] = [
        ("live", &["sh", "-c", "cat data/train/* > none"]),
        ("marked", &["/usr/bin/python3", "-B", "job.py"]),
    ];
    for (results, job) in jobs {
        let args = ["audit", "--results", results, "--paths", "all", "--json", "--"];
        documents.printed("findings", &dir.feedline(&args).args(job).run().exits(0));
    }
    let results = ["traced", "live", "marked"].map(|folder| dir.results_below(folder)).concat();
    assert_eq!(results.len(), 3);
    for result in &results {
        documents.add("audit-summary", &format!("{result}/summary.json"));
        documents.add("ledger", &format!("{result}/ledger.json"));
        documents.add("findings", &format!("{result}/findings.json"));
        documents.printed("validation", &dir.feedline(&["validate", result, "--json"]).run().exits(0));
    }
    let compared = dir.feedline(&["compare", &results[2], &run, "--json"]).run().exits(0);
    documents.printed("audit-comparison", &compared);
    documents.are(&OF_AUDITS);
}

#[test]
fn documents_about_files_match() {
    let dir = Dir::small_with_data();
    let mut documents = Documents::of(&dir);
    dir.write("data/train/.hidden", "");
    dir.write("data/train/empty.txt", "");
    let print = |args: &[&str], code| dir.feedline(args).args(&["--json"]).run().exits(code);
    documents.printed("listing", &print(&["catalog", "data"], 0));
    documents.printed("listing-check", &print(&["catalog", "data", "--check"], 0));
    dir.write("data/train/more.txt", "");
    documents.printed("listing-check", &print(&["catalog", "data", "--check"], 5));
    let file = "data/train/img_00_of_24.npz";
    documents.printed("inspection", &print(&["inspect", file, "--sample", "0"], 0));
    documents.are(&OF_FILES);
}

#[test]
fn documents_of_mlperf_match() {
    let dir = submission();
    let mut documents = Documents::of(&dir);
    let print = |args: &[&str]| dir.feedline(&["mlperf"]).args(args).args(&["--json"]).run();
    documents.printed("mlperf-size", &print(&["size", "unet3d_b200", "--ranks", "8"]).exits(0));
    documents.printed("mlperf-size", &print(&["size", "llama3_8b", "--ranks", "8"]).exits(0));
    documents.printed("mlperf-check", &print(&["check", "."]).exits(0));
    documents.printed("mlperf-table", &print(&["table", "."]).exits(0));
    documents.are(&OF_MLPERF);
}

#[test]
fn errors_match() {
    let dir = Dir::small_with_data();
    let mut documents = Documents::of(&dir);
    let mut fails = |args: &[&str], code| {
        let done = dir.feedline(args).args(&["--json"]).run().exits(code);
        assert_eq!(done.json()["schema_version"], 1, "{args:?}");
        documents.printed("error", &done);
    };
    fails(&["run", "--no-such-flag"], 2);
    fails(&["run", "missing.yaml"], 2);
    fails(&["run", "w.yaml", "--data-dir", "nowhere"], 3);
    fails(&["validate", "nowhere"], 3);
    fails(&["inspect", "w.yaml", "--format", "npz"], 5);
    let slow = ["run", "w.yaml", "--json", "--no-calibration", "--set", "train.computation_time=30"];
    let mut running = dir.feedline(&slow).start();
    running.until_thread("reader");
    running.signal(Signal::INT);
    let done = running.wait().exits(4);
    assert_eq!(done.json()["feedline"]["schema_version"], 1, "the result so far");
    documents.printed("error", &done);
    documents.are(&OF_FAILURES);
}

/// Raises the version of a document of a result.
fn raise(dir: &Dir, result: &str, name: &str) {
    forge(dir, result, name, |document| match name {
        "summary.json" => document["feedline"]["schema_version"] = json!(2),
        _ => document["schema_version"] = json!(2),
    });
}

fn refused(kind: &str) -> String {
    format!(
        "schema_version is 2, but this version of feedline reads version 1 of a {kind} document; use a newer feedline"
    )
}

#[test]
fn results_of_later_versions_are_refused() {
    let dir = Dir::small_with_data();
    let run = ["run", "w.yaml", "--quiet", "--no-calibration", "--trace", "t.json"];
    dir.feedline(&run).run().ran();
    let result = dir.result();
    let kept = dir.tree(&result);
    for kind in ["summary", "plan", "ledger"] {
        let name = format!("{kind}.json");
        raise(&dir, &result, &name);
        let text = format!("{name}: {}", refused(kind));
        dir.feedline(&["validate", &result]).run().exits(3).one_error().says(&text);
        dir.feedline(&["report", &result, "--output", "page.html"]).run().exits(0);
        assert!(dir.read("page.html").contains(&text), "{kind}: the page names the document");
        kept.iter().for_each(|(name, bytes)| dir.write(&format!("{result}/{name}"), bytes));
    }
    dir.feedline(&["validate", &result]).run();

    dir.feedline(&["audit", "--from", "t.json", "--results", "audit"]).run().exits(0);
    let audit = dir.results_below("audit").remove(0);
    let kept = dir.tree(&audit);
    for (name, kind) in
        [("summary.json", "audit-summary"), ("findings.json", "findings"), ("ledger.json", "ledger")]
    {
        raise(&dir, &audit, name);
        let text = format!("{name}: {}", refused(kind));
        dir.feedline(&["validate", &audit]).run().exits(3).one_error().says(&text);
        dir.feedline(&["infer", &audit]).run().exits(3).one_error().says(&text);
        kept.iter().for_each(|(name, bytes)| dir.write(&format!("{audit}/{name}"), bytes));
    }
}

#[test]
fn manifests_and_journals_of_later_versions_are_refused() {
    let dir = Dir::small_with_data();
    let later = |file: &str| {
        let text = dir.read(file);
        let (one, two) = if text.contains("\": 1") { ("\": 1", "\": 2") } else { ("\":1", "\":2") };
        let changed = text.replacen(&format!("\"schema_version{one}"), &format!("\"schema_version{two}"), 1);
        assert_ne!(changed, text, "{file}");
        dir.write(file, changed);
    };
    let sweep =
        ["sweep", "w.yaml", "--over", "reader.read_threads=1", "--repeat", "1", "--output", "s", "--quiet"];
    dir.feedline(&sweep).run();
    later("s/cells.jsonl");
    let text = format!("s/cells.jsonl: {}", refused("sweep-journal"));
    dir.feedline(&sweep).run().exits(3).one_error().says(&text);
    later("s/sweep.json");
    let text = format!("sweep.json: {}", refused("sweep"));
    dir.feedline(&["report", "s", "--output", "page.html"]).run().exits(3).one_error().says(&text);

    let manifest = "data/.feedline/dataset.json";
    later(manifest);
    for args in [["run", "w.yaml"], ["generate", "w.yaml"]] {
        dir.feedline(&args).run().exits(3).one_error().says("dataset.json").says(&refused("data-set"));
    }

    let checkpoint = "checkpoint: {checkpoint_folder: ck, fsync: true, time_between_checkpoints: 0, \
                      num_checkpoints_write: 1, num_checkpoints_read: 1}\n";
    dir.write("c.yaml", format!("{TINY_MODEL}{checkpoint}"));
    dir.feedline(&["run", "c.yaml", "--ranks", "2", "--quiet"]).run().ran();
    let manifest = "ck/global_epoch1_step1/checkpoint.json";
    later(manifest);
    let kept = dir.tree("ck");
    let text = format!("{manifest}: {}", refused("checkpoint"));
    dir.feedline(&["run", "c.yaml", "--ranks", "2", "--quiet"]).run().one_error().says(&text);
    assert_eq!(dir.tree("ck"), kept);
}
