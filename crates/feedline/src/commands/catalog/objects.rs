//! `feedline catalog s3://bucket/prefix`: lists the objects below a place of an object store.

use std::os::unix::ffi::OsStrExt;

use anyhow::anyhow;
use engine::catalog::{self, ListOptions};
use engine::{Stop, World};
use model::objects::ObjectPlace;
use session::{Activity, ActivityUnit, Asked};

use super::CatalogFlags;
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::ProgressMode;

pub(super) fn list(
    flags: &CatalogFlags,
    place: &ObjectPlace,
    asked: &Asked,
    world: &dyn World,
    stop: &Stop,
) -> CommandResult {
    if flags.check {
        return Err(Failure::usage(anyhow!(
            "{place} cannot be checked without listing it again, because an object store has no times of folders; \
             leave out --check to list it again. A run checks the size and the entity tag of each object that it reads"
        )));
    }
    let options = ListOptions {
        threads: flags.threads.map_or(session::LISTED_AT_ONCE, usize::from),
        suffixes: flags.suffix.iter().map(|suffix| suffix.as_bytes().to_vec()).collect(),
        output: flags.output.clone(),
        refresh: flags.refresh,
        fresh: false,
        state_folder: session::state_folder(),
    };
    let store = asked.open_data()?;
    let goal = Activity { what: "listing", unit: ActivityUnit::Keys, total: 0 };
    let show = ProgressMode::choose(flags.output_flags.quiet);
    let (outcome, span) = session::observed(&show, world, goal, |events| {
        catalog::scan_objects(&*store, &options, world, stop, events)
    });
    if let Some(summary) = outcome.map_err(super::failure)? {
        super::say(flags, &summary, span)?;
    }
    Ok(Exit::Ok)
}
