//! `feedline audit`: runs a job of another program, observes how it reads its data, and reports what is wrong. The job
//! keeps its output, its signals and its exit code: whatever fails here after the job was started is printed and
//! changes nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ::audit::{AuditProgress, ObserveOptions, Paths, judge, observe, trace};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use engine::meter;
use model::document;
use model::ledger::Ledger;
use model::observed::JobExit;
use model::units::{Bytes, Nanos, grouped};
use session::check_folder;

use super::typed_command;
use crate::exit::{CommandResult, Exit, Failure};
use crate::report::audit::{AuditOutcome, AuditText, TextTarget};
use crate::report::{self, folder, status};
use crate::terminal;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline audit -- python train.py --epochs 3
  feedline audit --fail-on-finding --paths none -- torchrun --nproc-per-node 2 train.py
  feedline audit --json -- python train.py > out.txt     the job's output, then the findings
  feedline audit --from job.strace                       a trace instead of a job ('feedline docs audit')

The job runs unchanged: its output, its signals and its exit code are kept. The report follows on stderr. Exit codes
of its own: 3 if the job was not started, 126 or 127 if its program cannot be run, 5 with --fail-on-finding.";

#[derive(Args, Debug)]
pub(crate) struct AuditFlags {
    /// Folder below which the result is written, as NAME/TIME
    #[arg(long, visible_alias = "results", value_name = "DIR", default_value = "feedline-results")]
    pub results_dir: PathBuf,
    /// Name of the result [default: the script, or the program]
    #[arg(long = "name", id = "result_name", value_name = "NAME")]
    pub name: Option<String>,
    /// Paths of data files to write into the result
    #[arg(long, value_name = "WHICH", default_value = "examples")]
    pub paths: PathsWord,
    /// Show a line on stderr while the job runs
    #[arg(long)]
    pub progress: bool,
    /// Exit code 5 if the job succeeded and has faults; notes do not count
    #[arg(long)]
    pub fail_on_finding: bool,
    /// Print the findings as JSON on stdout, after the job's own output
    #[arg(long)]
    pub json: bool,
    /// Do not mark epochs and batches in Python programs
    #[arg(long)]
    pub no_marks: bool,
    /// Read a trace of strace or DFTracer instead of running a job
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "progress", "no_marks"])]
    pub from: Option<PathBuf>,
    /// The job, after --
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "from")]
    pub command: Vec<OsString>,
}

/// The values of `--paths`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PathsWord {
    /// No path
    None,
    /// A few of each finding
    Examples,
    /// Those of all files in the sample
    All,
}

impl From<PathsWord> for Paths {
    fn from(word: PathsWord) -> Paths {
        match word {
            PathsWord::None => Paths::None,
            PathsWord::Examples => Paths::Examples,
            PathsWord::All => Paths::All,
        }
    }
}

pub(crate) fn audit(flags: &AuditFlags) -> CommandResult {
    check_folder(&flags.results_dir, "results folder")?;
    let name = flags.name.clone().unwrap_or_else(|| name_of(&flags.command, flags.from.as_deref()));
    let _fresh = folder::check_writable(&flags.results_dir, &name).map_err(Failure::refused)?;
    let start = meter::timestamp();
    let mut ledger = match &flags.from {
        Some(file) => trace::read(file, flags.paths.into()).map_err(Failure::refused)?,
        None => run_job(flags)?,
    };
    if ledger.times.start.is_empty() {
        (ledger.times.start, ledger.times.end) = (start, meter::timestamp());
    }
    let Some(observed) = ledger.observed.as_deref() else {
        return Err(Failure::internal(anyhow!("internal error: nothing was observed")));
    };
    let findings = judge::judge(observed);
    // A trace is read whatever the exit code of its job was.
    let ended = if flags.from.is_some() { JobExit::default() } else { observed.exit };
    let exit = exit_of(ended, flags.fail_on_finding && findings.faults().next().is_some());
    let outcome = AuditOutcome {
        name: &name,
        command: typed_command(),
        ledger: &ledger,
        observed,
        findings: &findings,
    };
    if let Err(failure) = conclude(flags, &outcome) {
        report::error(&failure.text());
    }
    Ok(exit)
}

fn run_job(flags: &AuditFlags) -> Result<Ledger, Failure> {
    let options =
        ObserveOptions { command: flags.command.clone(), paths: flags.paths.into(), marks: !flags.no_marks };
    let mut line = ProgressLine::default();
    let observed = observe(&options, &mut |progress| {
        if flags.progress {
            line.show(progress);
        }
    });
    status::clear();
    observed.map_err(|error| match error.exit_code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Failure::new(Exit::Job(code), error),
        None => Failure::refused(error),
    })
}

/// Writes the result and reports it.
fn conclude(flags: &AuditFlags, outcome: &AuditOutcome<'_>) -> Result<(), Failure> {
    let saved = outcome.write(&flags.results_dir).map_err(Failure::incomplete);
    let text = AuditText { stream: TextTarget::Err, width: status::width() };
    let mut text = text.render(outcome.observed, outcome.findings);
    if let Ok(folder) = &saved {
        text.push_str(&report::layout::labelled_path("result in", folder.display(), status::width()));
    }
    report::note(&format!("\n{}", text.trim_end()));
    if flags.json {
        report::out_json(document::FINDINGS, outcome.findings)?;
    }
    saved.map(drop)
}

/// The exit code of the job, as a shell has it.
fn exit_of(JobExit { code, signal }: JobExit, is_faulty: bool) -> Exit {
    match (code, signal) {
        (_, Some(signal)) => Exit::Job(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        (Some(0) | None, None) if is_faulty => Exit::CheckFailed,
        (Some(0) | None, None) => Exit::Ok,
        (Some(code), None) => Exit::Job(code.to_le_bytes()[0]),
    }
}

/// The name of a result: the script or module of a Python program, else the program, else the trace.
fn name_of(command: &[OsString], from: Option<&Path>) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let script = words.iter().find(|word| word.ends_with(".py")).and_then(|word| stem(Path::new(word)));
    let module = || {
        let at = words.iter().position(|word| word == "-m")?;
        words.get(at + 1).cloned()
    };
    let program = || words.first().and_then(|word| stem(Path::new(word)));
    let name = script.or_else(module).or_else(program).or_else(|| from.and_then(stem));
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "audit".to_owned())
}

/// The line of `--progress`.
#[derive(Debug, Default)]
struct ProgressLine {
    /// When a line was last printed, on a stream that cannot be drawn on again.
    printed: Option<Nanos>,
}

/// How far lines are apart if they cannot be drawn again.
const BETWEEN_LINES: Nanos = Nanos(10_000_000_000);

impl ProgressLine {
    fn show(&mut self, progress: &AuditProgress) {
        let line = progress_text(progress);
        if terminal::can_redraw() {
            let most = status::width().saturating_sub(1);
            return status::draw(&[line.chars().take(most).collect()]);
        }
        let now = progress.elapsed_ns;
        if self.printed.is_none_or(|last| now.since(last) >= BETWEEN_LINES) {
            self.printed = Some(now);
            report::note(&line);
        }
    }
}

fn progress_text(progress: &AuditProgress) -> String {
    let AuditProgress { elapsed_ns, epoch, batches, bytes, processes } = *progress;
    let epoch = epoch.map_or(String::new(), |epoch| format!("epoch {epoch}, "));
    format!(
        "audit: {elapsed_ns}, {epoch}{}, {} read, {}",
        match batches {
            1 => "1 batch".to_owned(),
            batches => format!("{} batches", grouped(batches)),
        },
        Bytes(bytes),
        match processes {
            1 => "1 process".to_owned(),
            processes => format!("{} processes", grouped(processes)),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_job() {
        let exit = |code, signal, is_faulty| exit_of(JobExit { code, signal }, is_faulty).code();
        assert_eq!(exit(Some(0), None, false), 0);
        assert_eq!(exit(Some(0), None, true), 5);
        assert_eq!(exit(Some(17), None, true), 17);
        assert_eq!(exit(None, Some(9), true), 137);
        assert_eq!(exit(None, None, true), 5, "a trace has no exit code");
    }

    #[test]
    fn a_result_has_the_name_of_the_script() {
        let name = |words: &[&str]| name_of(&words.iter().map(OsString::from).collect::<Vec<_>>(), None);
        assert_eq!(name(&["python3", "-u", "a/train.py", "x.py"]), "train");
        assert_eq!(name(&["python3", "-m", "pkg.train"]), "pkg.train");
        assert_eq!(name(&["/usr/bin/cat", "file"]), "cat");
        assert_eq!(name_of(&[], Some(Path::new("traces/job.strace"))), "job");
        assert_eq!(name(&["/"]), "audit");
    }

    #[test]
    fn progress_is_one_line() {
        let progress = AuditProgress {
            elapsed_ns: Nanos(12_000_000_000),
            epoch: Some(2),
            batches: 1_234,
            bytes: 5 << 30,
            processes: 1,
        };
        let text = "audit: 12.0 s, epoch 2, 1,234 batches, 5.0 GiB read, 1 process";
        assert_eq!(progress_text(&progress), text);
    }
}
