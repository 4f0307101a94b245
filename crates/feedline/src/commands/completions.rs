//! `feedline completions SHELL`: prints a completion script, from the same definition as the help.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::exit::{CommandResult, Exit};
use crate::flags::Cli;
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline completions bash > /etc/bash_completion.d/feedline
  feedline completions zsh > ~/.zfunc/_feedline";

#[derive(Args, Debug)]
pub(crate) struct CompletionsFlags {
    pub shell: Shell,
}

pub(crate) fn completions(flags: &CompletionsFlags) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "feedline", &mut script);
    report::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
