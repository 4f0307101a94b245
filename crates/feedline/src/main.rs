//! The command line of feedline: flags in, reports and an exit code out.
//!
//! A command translates its flags into a `session::Ask`, lets `session` settle and run it, and renders the plan, ledger
//! and verdict that it gets back. It decides nothing about the run itself, so that another front end gets the same
//! results from the same request.
//!
//! **In:** arguments, environment, signals. **Out:** the report on stdout, progress and warnings on stderr, result
//! folders, the exit code. **Side effects:** those, and the two processes of `supervisor`.
//!
//! # Modules
//!
//! - `cluster`: the processes of a command that a launcher such as mpirun started, and which of them print.
//! - `commands`: the table of commands, and one file per command with its flags and examples.
//! - `dlio`: the front end under the name `dlio_benchmark`, with DLIO's command line and result folders.
//! - `flags`: the flags that several commands share, and the overrides that flags stand for.
//! - `doctor`: what this host and its folders offer, as a table of checks; `version`: where this build comes from.
//! - `workloads`: the built-in workloads.
//! - `report`: plans, results and comparisons as text, tables, JSON and SVG. It computes nothing that is not in a plan
//!   or a ledger.
//! - `progress`: a progress bar, lines or a live view, from the engine's events.
//! - `manual`: the documentation in the program: pages, manual pages, generated pages of the reference.
//! - `metrics`: live figures for Prometheus, over HTTP and as a file.
//! - `recording`: writes the trace of a run, from the engine's operations.
//! - `terminal`: the width of the terminal, and whether text is coloured.
//! - `exit`: the exit codes, and errors with their exit code.
//! - `supervisor`: the process that the user starts waits for its child, which does the work. A child that cannot be
//!   terminated cannot keep it from ending.
//!
//! # Invariants
//!
//! - stdout carries the report and nothing else.
//! - A result folder is complete, or it does not exist.

mod cluster;
mod commands;
mod dlio;
mod doctor;
mod exit;
mod flags;
mod manual;
mod metrics;
mod progress;
mod recording;
mod report;
mod supervisor;
mod terminal;
mod version;
mod workloads;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches};
use engine::waits;

use commands::Command;
use exit::{Exit, abandon};
use flags::Cli;
use supervisor::ProcessRole;

fn main() -> ExitCode {
    if std::env::var_os("FEEDLINE_AUDIT_CALIBRATE").is_some() {
        audit::calibrate_child();
    }
    commands::completions::answer_shell();
    engine::host::return_large_memory();
    cluster::look();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let colour = terminal::colour_choice(&arguments);
    terminal::look(colour);
    if exit::wants_json(&arguments) {
        exit::answer_in_json();
    }
    let command = match dlio::called(&arguments) {
        Some(command) => command,
        None => match parse(arguments, colour) {
            Ok(cli) => cli.command,
            Err(error) if is_long_version(&error) => return supervised(version::show),
            Err(error) => return exit::usage(&error),
        },
    };
    if cluster::is_idle(&command) {
        return Exit::Ok.into();
    }
    if command.runs_a_job() {
        supervisor::stay_alone();
        return work(&command);
    }
    supervised(|| work(&command))
}

/// Does the work in a process of its own, which this process only waits for.
fn supervised(work: impl FnOnce() -> ExitCode) -> ExitCode {
    match supervisor::split() {
        Ok(ProcessRole::Supervisor(supervisor)) => supervisor.wait(),
        Ok(ProcessRole::Worker) => {
            let exit = work();
            supervisor::resume();
            exit
        }
        Err(cause) => {
            let cause = format!("cannot start a process: {}", exit::limited(&cause));
            exit::fail(Exit::Refused, &cause).into()
        }
    }
}

/// Whether the arguments ask for the version with all facts: `--version`, but not `-V`.
fn is_long_version(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayVersion && std::env::args_os().any(|argument| argument == "--version")
}

fn parse(arguments: Vec<OsString>, colour: ColorChoice) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&Cli::command().color(colour).try_get_matches_from(arguments)?)
}

/// Runs the command while the watchdog checks every wait for storage.
fn work(command: &Command) -> ExitCode {
    match waits::watch(command.stall_timeout(), abandon) {
        Ok(()) => cluster::run(command).into(),
        Err(cause) => {
            exit::fail(Exit::Refused, &format!("cannot start a thread: {}", exit::limited(&cause))).into()
        }
    }
}
