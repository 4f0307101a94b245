//! `feedline catalog`: lists an existing data set and saves the list, or checks whether a saved list is still correct.

mod objects;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use engine::catalog::{self, CatalogChanges, ListOptions, ListSummary, OpenCatalog, ScanError};
use engine::{Stop, World};
use model::document;
use model::location::Location;
use model::units::{Nanos, grouped};
use serde_json::json;
use session::{Activity, ActivityUnit, path_argument};
use store::StoreError;

use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::NetworkFlags;
use crate::flags::{OutputFlags, StorageFlags, WaitFlags};
use crate::progress::ProgressMode;
use crate::report;
use crate::report::listing::ListReport;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline catalog /data/imagenet                          write /data/imagenet/.feedline/catalog
  feedline catalog /data/imagenet --suffix .jpg --suffix .jpeg
  feedline catalog /data/imagenet --check                  exit code 0: unchanged; 5: folders changed
  feedline catalog /data/imagenet --refresh                list only folders that changed
  feedline catalog /read/only/data --output ~/data.catalog
  feedline catalog s3://bucket/imagenet --threads 32       list 32 ranges of keys at once
  feedline catalog s3://public/data --set storage.anonymous=true

Skipped: names that start with a dot, *.partial, *.idx (without --suffix), linked folders, sockets, pipes, devices.
The same command resumes an interrupted listing.";

#[derive(Args, Debug)]
pub(crate) struct CatalogFlags {
    /// The data folder, or a place in an object store such as s3://bucket/prefix
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// List only files whose name ends in this, such as .jpg; may be repeated
    #[arg(long, value_name = "SUFFIX", conflicts_with = "check")]
    pub suffix: Vec<OsString>,
    /// File of the catalog [default: DIR/.feedline/catalog]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// List only folders that changed since the catalog was written
    #[arg(long, conflicts_with = "check")]
    pub refresh: bool,
    /// Check whether folders changed since the catalog was written; writes nothing
    #[arg(long)]
    pub check: bool,
    /// Folders, or ranges of keys, listed at once [default: twice the number of cores; 16 for an object store]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub storage: StorageFlags,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub wait: WaitFlags,
    #[command(flatten)]
    pub output_flags: OutputFlags,
}

pub(crate) fn catalog(flags: &CatalogFlags, world: &dyn World) -> CommandResult {
    let place = Location::parse(&flags.dir);
    let objects = place.objects().map_err(session::Error::from)?;
    if objects.is_none() {
        session::check_folder(&flags.dir, "data folder")?;
    }
    if let Some(empty) = flags.suffix.iter().find(|suffix| suffix.is_empty()) {
        return Err(Failure::usage(anyhow!(
            "--suffix {empty:?} is empty and would match every name; give an ending such as .jpg"
        )));
    }
    let mut asked = session::ask_of_place(place.clone(), flags.storage.overrides()?)?;
    asked.look_at_store(world);
    if !flags.output_flags.quiet {
        report::warnings(&asked.warnings);
    }
    let stop = super::stop_on_signals()?.with_patience(super::unless_zero(flags.wait.stall_timeout));
    if let Some(place) = objects {
        return objects::list(flags, place, &asked, world, &stop);
    }
    if flags.check { check(flags, world, &stop) } else { list(flags, world, &stop) }
}

fn list(flags: &CatalogFlags, world: &dyn World, stop: &Stop) -> CommandResult {
    let options = ListOptions {
        threads: threads(flags),
        suffixes: flags.suffix.iter().map(|suffix| suffix.as_bytes().to_vec()).collect(),
        output: flags.output.clone(),
        refresh: flags.refresh,
        fresh: false,
        state_folder: None,
    };
    if options.refresh && world.member() == 0 && !place(flags).exists() {
        return Err(Failure::refused(anyhow!(
            "there is no catalog at {} to refresh; create it without --refresh",
            place(flags).display()
        )));
    }
    let goal = Activity { what: "listing", unit: ActivityUnit::Files, total: 0 };
    let show = ProgressMode::choose(flags.output_flags.quiet);
    let (outcome, span) = session::observed(&show, world, goal, |events| {
        catalog::scan(&flags.dir, &options, world, stop, events)
    });
    if let Some(summary) = outcome.map_err(failure)? {
        say(flags, &summary, span)?;
    }
    Ok(Exit::Ok)
}

fn threads(flags: &CatalogFlags) -> usize {
    flags.threads.map_or_else(session::listing_threads, usize::from)
}

/// The path of the catalog.
fn place(flags: &CatalogFlags) -> PathBuf {
    flags.output.clone().unwrap_or_else(|| catalog::default_place(&flags.dir))
}

/// The failure, with its exit code, for an error of a listing.
fn failure(error: ScanError) -> Failure {
    match error {
        ScanError::NotAFolder(_) | ScanError::OutputInside(_) | ScanError::InTheWay(_) => {
            Failure::usage(error)
        }
        ScanError::OtherSuffixes(_) => Failure::usage(error),
        ScanError::Missing(_) | ScanError::Empty { .. } | ScanError::Unwritable { .. } => {
            Failure::refused(error)
        }
        ScanError::Busy(_) | ScanError::Catalog { .. } | ScanError::Store(_) => Failure::refused(error),
        ScanError::NoStateFolder | ScanError::NotUploaded { .. } => Failure::refused(error),
        // Refused from the first request on: the bucket or the account is wrong.
        ScanError::Keys(StoreError::Rejected { ref refusal, .. }) if refusal.is_permanent() => {
            Failure::refused(error)
        }
        ScanError::Keys(_) | ScanError::WrongListing { .. } | ScanError::OutOfOrder { .. } => {
            Failure::incomplete(error)
        }
        ScanError::Sharing(_) | ScanError::OtherCatalog { .. } => Failure::refused(error),
        ScanError::Panicked | ScanError::Gap(_) | ScanError::Build { .. } => Failure::internal(error),
        ScanError::Io { .. } | ScanError::Changed(_) | ScanError::Thread(_) => Failure::incomplete(error),
        ScanError::Interrupted | ScanError::Stuck(_) | ScanError::Elsewhere(_) => Failure::incomplete(error),
    }
}

fn say(flags: &CatalogFlags, summary: &ListSummary, span: Nanos) -> Result<(), Failure> {
    let damaged = |error| failure(ScanError::Catalog { path: summary.path.clone(), error });
    let report = ListReport {
        dir: &flags.dir,
        summary,
        contents: summary.catalog.catalog().contents().map_err(damaged)?,
        span,
    };
    match flags.output_flags.json {
        true => report::out_json(document::LISTING, &report.json()),
        false => report::out(&report.text()),
    }
}

fn check(flags: &CatalogFlags, world: &dyn World, stop: &Stop) -> CommandResult {
    let place = place(flags);
    if !place.exists() {
        let output = flags
            .output
            .as_deref()
            .map_or(String::new(), |output| format!(" --output {}", path_argument(output)));
        let command = format!("feedline catalog {}{output}", path_argument(&flags.dir));
        return Err(Failure::refused(anyhow!(
            "there is no catalog at {}; create it with: {command}",
            place.display()
        )));
    }
    let opened = OpenCatalog::open(&place, &flags.dir).map_err(failure)?;
    let damaged = |error| failure(ScanError::Catalog { path: place.clone(), error });
    opened.catalog().verify().map_err(damaged)?;
    let changes = opened.changes_together(threads(flags), world, stop).map_err(failure)?;
    if flags.output_flags.json {
        let first: Vec<_> =
            changes.first.iter().map(|change| json!({"path": change.path, "gone": change.gone})).collect();
        let checked = json!({
            "data_folder": flags.dir,
            "catalog": place,
            "files": opened.files(),
            "folders": changes.folders,
            "folders_changed": changes.changed,
            "first_changed": first,
            "digest": opened.digest(),
        });
        report::out_json(document::LISTING_CHECK, &checked)?;
    } else {
        report::out(&verdict(flags, &opened, &changes))?;
    }
    Ok(if changes.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}

fn verdict(flags: &CatalogFlags, opened: &OpenCatalog, changes: &CatalogChanges) -> String {
    let files = grouped(opened.files());
    if changes.is_empty() {
        let folders = grouped(changes.folders);
        return format!("{}: {folders} folders with {files} files match the catalog\n", flags.dir.display());
    }
    let mut text = format!(
        "{}: {} of {} folders do not match the catalog\n",
        flags.dir.display(),
        grouped(changes.changed),
        grouped(changes.folders)
    );
    for change in &changes.first {
        text.push_str(&format!("  {change}\n"));
    }
    let more = changes.changed - changes.first.len() as u64;
    if more > 0 {
        text.push_str(&format!("  and {} more\n", grouped(more)));
    }
    text.push_str(if changes.all() {
        "all folders differ: is this the catalog of another folder? to list everything again, omit --check\n"
    } else {
        "to list the changed folders again, use --refresh instead of --check\n"
    });
    text
}
