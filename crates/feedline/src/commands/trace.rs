//! `feedline trace`: adds up a trace and prints how long each operation took. It reads the file twice: once for the
//! sums, and once for the names of the files that it shows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use ::report::trace::{TraceError, TraceSummary, file_names, summarise};
use anyhow::{Context, anyhow};
use clap::Args;
use model::document;

use crate::exit::{CommandResult, Exit, Failure, limited};
use crate::flags::WaitFlags;
use crate::report::{self, traced};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline trace demo.pfw.gz
  feedline trace demo-0.pfw.gz --json

Reads traces of feedline run --trace, of DFTracer, and of other programs that write complete events in Chrome's JSON
format, compressed with gzip or not. A trace without its end, of a run that was killed, is read up to there.";

#[derive(Args, Debug)]
pub(crate) struct TraceFlags {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print the summary as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn trace(flags: &TraceFlags) -> CommandResult {
    let summary = flags.read(summarise)?;
    let files: Vec<&str> = summary.slowest.iter().map(|slow| slow.file.as_str()).collect();
    let names = flags.read(|file| file_names(file, &files))?;
    flags.show(&summary, &names)?;
    Ok(Exit::Ok)
}

impl TraceFlags {
    fn read<T>(&self, work: impl FnOnce(File) -> Result<T, TraceError>) -> Result<T, Failure> {
        let shown = self.file.display();
        let refused = |cause| Failure::refused(anyhow!("cannot read the trace {shown}: {}", limited(&cause)));
        // Asked before it is opened: opening a pipe would wait for a writer.
        if !std::fs::metadata(&self.file).map_err(refused)?.is_file() {
            return Err(Failure::refused(anyhow!("{shown} is not a file; give the trace itself")));
        }
        let file = File::open(&self.file).map_err(refused)?;
        work(file).with_context(|| shown.to_string()).map_err(Failure::refused)
    }

    fn show(&self, summary: &TraceSummary, names: &BTreeMap<String, String>) -> Result<(), Failure> {
        match self.json {
            true => report::out_json(document::TRACE_SUMMARY, &summary.json(names)),
            false => report::out(&traced::render(summary, names)),
        }
    }
}
