//! `feedline completions SHELL`: prints a script that lets the shell ask this binary for completions, so that they
//! always fit its version.

use anyhow::anyhow;
use clap::Args;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};

use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::complete::definition;
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline completions bash > /etc/bash_completion.d/feedline
  feedline completions zsh > ~/.zfunc/_feedline
  feedline completions fish > ~/.config/fish/completions/feedline.fish";

/// The variable with which the scripts ask for completions.
const VARIABLE: &str = "FEEDLINE_COMPLETE";

/// In bash '=' separates words: this joins KEY=VALUE again and offers only what follows the last '='.
const BASH_EQUALS: &str = r#"
_feedline() {
    local -a joined=()
    local at=0 i
    for i in "${!COMP_WORDS[@]}"; do
        if [[ $i -gt 1 && ( ${COMP_WORDS[i]} == "=" || ${COMP_WORDS[i - 1]} == "=" ) ]]; then
            joined[${#joined[@]} - 1]+=${COMP_WORDS[i]}
        else
            joined+=("${COMP_WORDS[i]}")
        fi
        if [[ $i -eq $COMP_CWORD ]]; then
            at=$((${#joined[@]} - 1))
        fi
    done
    local word=${joined[at]}
    local -a COMP_WORDS=("${joined[@]}")
    local COMP_CWORD=$at
    _clap_complete_feedline "$1" "$word" "$3"
    if [[ $word == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    fi
}
complete -o nospace -o bashdefault -F _feedline feedline
"#;

#[derive(Args, Debug)]
pub(crate) struct CompletionsFlags {
    /// The shell that loads the script
    pub shell: Shell,
}

pub(crate) fn completions(flags: &CompletionsFlags) -> CommandResult {
    let name = flags.shell.to_string();
    let mut script = Vec::new();
    let written = match Shells::builtins().completer(&name) {
        Some(shell) => shell.write_registration(VARIABLE, "feedline", "feedline", "feedline", &mut script),
        None => return Err(Failure::usage(anyhow!("there are no completions for {name}"))),
    };
    written.map_err(Failure::internal)?;
    if flags.shell == Shell::Bash {
        script.extend_from_slice(BASH_EQUALS.as_bytes());
    }
    report::out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}

/// Answers a shell that asks for completions and ends the process; returns if this is a normal start.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(definition).var(VARIABLE).complete();
}
