//! `feedline completions SHELL`: prints a completion script, from the same definition as the help.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::{Ending, Exit};
use crate::flags::Cli;
use crate::report;

pub fn completions(shell: Shell) -> Ending {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "feedline", &mut script);
    report::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
