//! The front end that replaces DLIO: called as `dlio_benchmark`, feedline takes DLIO's command lines and writes DLIO's
//! result folders. It translates only: `hydra` turns arguments and configuration files into jobs, `run` turns a job
//! into a `session::Ask` and runs it, and `leaf` writes the files that DLIO's users and MLPerf's checkers read.

mod environment;
pub(crate) mod hydra;
pub(crate) mod job;
pub(crate) mod leaf;
mod postprocessor;
mod query;
mod run;
mod wording;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Context, anyhow};
use clap::Args;
use engine::{Stop, World};
use session::{agree, of_member_0};

use self::environment::Variables;
use self::job::{Composed, Job};
use crate::commands::{Command, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::flags::cluster::NetworkFlags;
use crate::report;

/// The programs of DLIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DlioProgram {
    Benchmark,
    Query,
    Postprocessor,
}

/// The names under which they are called.
const PROGRAMS: [(&str, DlioProgram); 3] = [
    ("dlio_benchmark", DlioProgram::Benchmark),
    ("dlio_benchmark_query", DlioProgram::Query),
    ("dlio_postprocessor", DlioProgram::Postprocessor),
];

/// The command line of one of DLIO's programs.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct DlioFlags {
    /// What dlio_benchmark takes, such as workload=unet3d_h100 ++workload.reader.read_threads=8
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
    #[arg(skip = DlioProgram::Benchmark)]
    pub program: DlioProgram,
    #[arg(skip)]
    pub wait: WaitFlags,
    #[arg(skip)]
    pub network: NetworkFlags,
}

/// The command, if feedline was called by the name of one of DLIO's programs, or as `feedline dlio`. The arguments are
/// DLIO's, so the parser of feedline's flags must not see them.
pub(crate) fn called(arguments: &[OsString]) -> Option<Command> {
    let (name, arguments) = arguments.split_first()?;
    let name = Path::new(name).file_name().and_then(OsStr::to_str);
    let program = PROGRAMS.iter().find(|(known, _)| Some(*known) == name).map(|(_, program)| *program);
    let (program, arguments) = match (program, arguments.split_first()) {
        (Some(program), _) => (program, arguments),
        (None, Some((first, rest))) if first == "dlio" => (DlioProgram::Benchmark, rest),
        _ => return None,
    };
    let (arguments, wait) = (arguments.to_vec(), WaitFlags::default());
    Some(Command::Dlio(DlioFlags { arguments, program, wait, network: network() }))
}

/// What the flags of feedline's own commands say about the network between processes. Hydra's command line has no place
/// for them.
fn network() -> NetworkFlags {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    NetworkFlags {
        interface: variable("FEEDLINE_INTERFACE"),
        agreement: variable("FEEDLINE_AGREEMENT"),
        mpi_library: variable("FEEDLINE_MPI_LIBRARY"),
    }
}

/// Runs one of DLIO's programs.
pub(crate) fn dlio(flags: &DlioFlags, world: &dyn World) -> CommandResult {
    if flags.program == DlioProgram::Postprocessor {
        return postprocessor::postprocessor(&flags.arguments);
    }
    let stop = stop_on_signals()?;
    let composed = agree(compose(flags, world), world, &stop)?;
    let (composed, variables) = of_member_0((composed, Variables::look()), world, &stop)?;
    match composed {
        None => Ok(Exit::Ok),
        Some(Composed::Print(text)) => report::out(&text).map(|()| Exit::Ok),
        Some(Composed::Jobs(jobs)) if flags.program == DlioProgram::Query => {
            jobs.iter().try_fold(Exit::Ok, |_, job| query::query(&job.resolved))
        }
        Some(Composed::Jobs(jobs)) => run_all(&jobs, &variables, world, &stop),
    }
}

/// Process 0 reads the configuration files; the others get what it has composed.
fn compose(flags: &DlioFlags, world: &dyn World) -> Result<Option<Composed>, Failure> {
    if world.member() > 0 {
        return Ok(None);
    }
    let text = |argument: &OsString| {
        let shown = argument.to_string_lossy();
        argument.to_str().map(str::to_owned).ok_or_else(|| anyhow!("the argument {shown} is not valid UTF-8"))
    };
    let arguments: anyhow::Result<Vec<String>> = flags.arguments.iter().map(text).collect();
    let composed = arguments.and_then(|arguments| hydra::compose_here(&arguments)).map_err(Failure::usage)?;
    match composed {
        Composed::Print(text) => Ok(Some(Composed::Print(text))),
        Composed::Jobs(jobs) => {
            let jobs: Result<Vec<Job>, Failure> = jobs.into_iter().map(with_full_path).collect();
            Ok(Some(Composed::Jobs(jobs?)))
        }
    }
}

/// The job with the full path of its folder: the job may change the working folder.
fn with_full_path(job: Job) -> Result<Job, Failure> {
    let given = if job.folder.as_os_str().is_empty() { Path::new(".") } else { &job.folder };
    let folder = std::path::absolute(given);
    let folder = folder.with_context(|| format!("cannot find the folder {}", given.display()));
    Ok(Job { folder: folder.map_err(Failure::refused)?, ..job })
}

/// The jobs of a multirun follow one another, also after one that could not run, as in Hydra. The first failure is that
/// of the command. One that was interrupted ends the command.
fn run_all(jobs: &[Job], variables: &Variables, world: &dyn World, stop: &Stop) -> CommandResult {
    let mut first = Ok(Exit::Ok);
    for job in jobs {
        let ending = run::run(job, variables, world, stop);
        let ends =
            matches!(&ending, Err(failure) if matches!(failure.exit, Exit::Incomplete | Exit::Internal));
        if matches!(first, Ok(Exit::Ok)) {
            first = ending;
        }
        if ends {
            break;
        }
    }
    first
}
