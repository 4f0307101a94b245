//! `feedline compare`: whether two results differ, and by how much. First it checks whether they can be compared:
//! different work and incomplete or invalid results are refused, and the message names the differences.

mod audits;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::Args;
use model::document;
use model::ledger::LedgerPart;
use model::plan::{FieldDifference, Plan, differences};
use model::spec::{CacheState, canonical_key};
use model::verdict::{RuleOutcome, Status, Verdict};

use super::saved::{self, SavedResult};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;
use crate::report::compare::ComparisonReport;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline compare results/demo/20260101_120000 results/demo/20260102_120000
  feedline compare before/demo after/demo                  several results on each side
  feedline compare one/demo four/demo --across reader.read_threads --json

Results of different work, or with a different cache state, are refused, and the message names the keys that differ;
--across permits a difference. A different backend, data folder or host is noted. If both sides have several results,
a run is one observation, otherwise an epoch is. An interval needs 5 observations. The result of an audit can be set
next to a run, such as its replay, or to another audit.";

#[derive(Args, Debug)]
pub(crate) struct CompareFlags {
    /// The baseline result, or a folder that holds several of one workload
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The result to compare, or a folder that holds several of one workload
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Permit a difference in this setting: a key, ranks or hosts; may be repeated
    #[arg(long, value_name = "KEY")]
    pub across: Vec<String>,
    /// Also compare invalid results
    #[arg(long)]
    pub force: bool,
    /// Print the comparison as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn compare(flags: &CompareFlags) -> CommandResult {
    let across = AllowedDifferences::parse(&flags.across).map_err(Failure::usage)?;
    if audits::has_audit(flags) {
        return audits::compare(flags);
    }
    let sides = ComparedSide::open("A", &flags.a, flags.force).and_then(|a| {
        let b = ComparedSide::open("B", &flags.b, flags.force)?;
        let notes = comparable(&a, &b, &across)?;
        Ok((a, b, notes))
    });
    let (a, b, notes) = sides.map_err(Failure::refused)?;
    let comparison = ComparisonReport::new(&a, &b, notes);
    match flags.json {
        true => report::out_json(document::COMPARISON, &comparison.json())?,
        false => report::out(&comparison.text())?,
    }
    Ok(Exit::Ok)
}

/// Settings that may differ, because they are what the user compares.
#[derive(Debug)]
struct AllowedDifferences(Vec<String>);

/// Names for `--across` that are not keys of a workload but change the work.
const RANKS: &str = "ranks";
const HOSTS: &str = "hosts";

impl AllowedDifferences {
    fn parse(keys: &[String]) -> anyhow::Result<AllowedDifferences> {
        let keys: Vec<String> = keys.iter().map(|key| canonical_key(key)).collect();
        for key in &keys {
            let known =
                [RANKS, HOSTS].contains(&key.as_str()) || model::spec::rows().any(|row| row.key == key);
            if !known {
                bail!("--across {key}: unknown key; use a key of the workload file, ranks or hosts");
            }
        }
        Ok(AllowedDifferences(keys))
    }

    fn allows(&self, difference: &ResultDifference) -> bool {
        self.0.contains(&difference.what)
    }
}

/// One side of the comparison: a result, or several results of the same work.
#[derive(Debug)]
pub(crate) struct ComparedSide {
    pub name: &'static str,
    pub path: PathBuf,
    /// In order of time; at least one.
    pub results: Vec<SavedResult>,
    pub verdicts: Vec<Verdict>,
}

impl ComparedSide {
    fn open(name: &'static str, path: &Path, force: bool) -> anyhow::Result<ComparedSide> {
        let folders = saved::find(path)?;
        let opened = folders.iter().map(|folder| SavedResult::open(folder));
        let mut results: Vec<SavedResult> = opened.collect::<anyhow::Result<_>>()?;
        results.sort_by(|one, other| one.start.cmp(&other.start));
        let verdicts: Vec<Verdict> = results.iter().map(SavedResult::judge).collect();
        for (saved, verdict) in results.iter().zip(&verdicts) {
            check_verdict(saved, verdict, force)?;
        }
        results.iter().try_for_each(SavedResult::check_trained)?;
        let side = ComparedSide { name, path: path.to_owned(), results, verdicts };
        side.check_repeats()?;
        Ok(side)
    }

    pub(crate) fn first(&self) -> &SavedResult {
        &self.results[0]
    }

    /// Refuses several results on one side unless they did the same work in the same place.
    fn check_repeats(&self) -> anyhow::Result<()> {
        let first = self.first();
        for other in &self.results[1..] {
            let Some(difference) =
                found(first, other).into_iter().find(|one| one.kind != DifferenceKind::Version)
            else {
                continue;
            };
            let ResultDifference { what, a, b, .. } = difference;
            let folders = [first, other].map(|saved| saved.folder.display().to_string());
            bail!(
                "{} contains results of different work: {what} is {a} in {}, {b} in {}; give the path of one result",
                self.path.display(),
                folders[0],
                folders[1]
            );
        }
        Ok(())
    }
}

fn check_verdict(saved: &SavedResult, verdict: &Verdict, force: bool) -> anyhow::Result<()> {
    let folder = saved.folder.display();
    let broken = verdict.rules.iter().find(|finding| finding.outcome == RuleOutcome::Fail);
    let why = broken.map_or_else(String::new, |finding| format!("{}: {}", finding.rule, finding.evidence));
    match verdict.status {
        Status::Incomplete => bail!("{folder} is incomplete ({why}) and cannot be compared"),
        Status::Invalid if !force => {
            bail!("{folder} is invalid ({why}); to compare it anyway, with a note, use --force")
        }
        Status::Valid | Status::Unverified | Status::Invalid => Ok(()),
    }
}

/// How a difference affects the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DifferenceKind {
    /// Different work.
    Work,
    /// A different place, which is what the user compares.
    Place,
    /// A different version of feedline.
    Version,
}

/// A difference between two results.
#[derive(Clone, Debug)]
struct ResultDifference {
    kind: DifferenceKind,
    what: String,
    a: String,
    b: String,
}

impl fmt::Display for ResultDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} in A, {} in B", self.what, self.a, self.b)
    }
}

/// Settings for where the data is. They do not change the work.
const PLACES: [&str; 5] = [
    "storage.store",
    "storage.storage_type",
    "storage.storage_root",
    "dataset.data_folder",
    "dataset.catalog",
];
/// Settings that only have an effect before or after the measurement.
pub(crate) const APART: [&str; 2] = ["output.folder", "workflow.generate_data"];

/// All differences between two results that can affect the measurement.
fn found(a: &SavedResult, b: &SavedResult) -> Vec<ResultDifference> {
    let mut found = Vec::new();
    let mut look = |kind: DifferenceKind, what: &str, a: String, b: String| {
        if a != b {
            found.push(ResultDifference { kind, what: what.to_owned(), a, b });
        }
    };
    let (here, mut there) = (a.spec.settings(), b.spec.settings());
    for (key, value) in here.into_iter().filter(|(key, _)| !APART.contains(key)) {
        let kind = if PLACES.contains(&key) { DifferenceKind::Place } else { DifferenceKind::Work };
        look(kind, key, value, there.remove(key).unwrap_or_default());
    }
    look(DifferenceKind::Work, RANKS, a.plan.ranks.to_string(), b.plan.ranks.to_string());
    look(DifferenceKind::Work, HOSTS, a.plan.hosts.to_string(), b.plan.hosts.to_string());
    look(
        DifferenceKind::Place,
        "the I/O backend",
        a.plan.store_name().to_owned(),
        b.plan.store_name().to_owned(),
    );
    look(DifferenceKind::Place, "the data folder", data_folder(a), data_folder(b));
    look(DifferenceKind::Place, "the host", hosts(a), hosts(b));
    look(DifferenceKind::Version, "the version of feedline", a.version.clone(), b.version.clone());
    if found.iter().all(|one| one.kind != DifferenceKind::Work) {
        found.extend(in_the_plan(a, b));
    }
    found
}

/// The hosts, and the number of processes if there are several.
fn hosts(saved: &SavedResult) -> String {
    match saved.ledger.conditions.members.len() {
        0 => saved.hostname.clone(),
        processes => {
            let nodes = saved.ledger.nodes();
            let names: Vec<&str> = nodes.iter().filter_map(LedgerPart::name).collect();
            format!("{processes} processes on {}", names.join(", "))
        }
    }
}

fn data_folder(saved: &SavedResult) -> String {
    let mode = saved.ledger.conditions.modes.get("data_folder");
    let folders = mode.into_iter().flat_map(|mode| &mode.observed);
    folders.map(String::as_str).collect::<Vec<_>>().join(" and ")
}

/// Fields of a plan that depend on the host or the place, and seeds of random orders.
const NOT_THE_WORK: [&str; 6] =
    ["workload", "store", "estimate", "loader.threads", "train.order.seed", "eval.order.seed"];

/// Differences that remain if all settings agree: a memory limit, or different files under the same name. Different I/O
/// backends may split reads differently, so the loader's fields are ignored for them. One that bypasses the page cache
/// has no cache state; it reads from the storage, as one with an empty cache does.
fn in_the_plan(a: &SavedResult, b: &SavedResult) -> Vec<ResultDifference> {
    let other_store = a.plan.store_name() != b.plan.store_name();
    let both_cold = [a, b].into_iter().all(|saved| reads_from_storage(&saved.plan));
    let ignored = |field: &str| {
        NOT_THE_WORK
            .iter()
            .any(|name| field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
            || (other_store && (field.starts_with("loader.") || (both_cold && field == "cache")))
    };
    let fields = differences(&a.plan, &b.plan).into_iter().filter(|one| !ignored(&one.field));
    let work = |FieldDifference { field, here, there }: FieldDifference| ResultDifference {
        kind: DifferenceKind::Work,
        what: format!("{field} of the plan"),
        a: here,
        b: there,
    };
    fields.map(work).collect()
}

/// Whether every epoch begins with an empty page cache, or the page cache is bypassed.
fn reads_from_storage(plan: &Plan) -> bool {
    let cache = plan.training.as_ref().and_then(|training| training.cache);
    cache.is_none_or(|cache| cache.state == CacheState::Cold)
}

/// Refuses sides that cannot be compared; otherwise returns notes on the comparison.
fn comparable(
    a: &ComparedSide,
    b: &ComparedSide,
    across: &AllowedDifferences,
) -> anyhow::Result<Vec<String>> {
    for saved in &a.results {
        let same = |other: &&SavedResult| same_folder(&saved.folder, &other.folder);
        if let Some(both) = b.results.iter().find(same) {
            bail!("{} is on both sides", both.folder.display());
        }
    }
    let found = found(a.first(), b.first());
    let other: Vec<String> = found
        .iter()
        .filter(|one| one.kind == DifferenceKind::Work && !across.allows(one))
        .map(ToString::to_string)
        .collect();
    if !other.is_empty() {
        return Err(anyhow!(
            "A and B cannot be compared because their work differs:\n  {}\n--across KEY permits a difference in KEY",
            other.join("\n  ")
        ));
    }
    let mut notes: Vec<String> = found.iter().map(ToString::to_string).collect();
    let unused = across.0.iter().filter(|key| !found.iter().any(|one| one.what == **key));
    notes.extend(unused.map(|key| format!("{key} is the same in A and B")));
    notes.extend([a, b].into_iter().filter_map(label));
    Ok(notes)
}

fn same_folder(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.to_owned()));
    a == b
}

/// A note on the verdicts of a side that are not valid.
fn label(side: &ComparedSide) -> Option<String> {
    let of = |status: Status, outcome: RuleOutcome| {
        let verdicts: Vec<&Verdict> =
            side.verdicts.iter().filter(|verdict| verdict.status == status).collect();
        let mut rules: Vec<&str> = Vec::new();
        for finding in verdicts.iter().flat_map(|verdict| &verdict.rules) {
            if finding.outcome == outcome && !rules.contains(&finding.rule.as_str()) {
                rules.push(&finding.rule);
            }
        }
        let count = match (verdicts.len(), side.results.len()) {
            (0, _) => return None,
            (1, 1) => format!("is {status}"),
            (some, all) => format!("has {some} of {all} results that are {status}"),
        };
        Some(format!("{} {count}: {}", side.name, rules.join(", ")))
    };
    let labels = [of(Status::Invalid, RuleOutcome::Fail), of(Status::Unverified, RuleOutcome::NotCheckable)];
    let labels: Vec<String> = labels.into_iter().flatten().collect();
    (!labels.is_empty()).then(|| labels.join("; "))
}
