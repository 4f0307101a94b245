//! How much is logged: DLIO's variable `DLIO_LOG_LEVEL`.

/// The amount of lines. Results, verdicts and errors are always logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    /// DLIO's `error` and `critical`: nothing else.
    Results,
    /// DLIO's `warning`, its default: also warnings, epochs, blocks and checkpoints.
    #[default]
    Milestones,
    /// DLIO's `info` and `debug`: also every step of the ranks of process 0.
    Steps,
}

impl LogLevel {
    /// The level of a word in any case; `None` if DLIO does not know it.
    pub(super) fn parse(word: &str) -> Option<LogLevel> {
        match word.to_ascii_lowercase().as_str() {
            "critical" | "error" => Some(LogLevel::Results),
            "warn" | "warning" => Some(LogLevel::Milestones),
            "info" | "debug" => Some(LogLevel::Steps),
            _ => None,
        }
    }

    /// The level of this process, and what is wrong with the variable.
    pub(super) fn of_environment() -> (LogLevel, Option<String>) {
        let word = std::env::var_os("DLIO_LOG_LEVEL").filter(|word| !word.is_empty());
        LogLevel::chosen(word.as_ref().map(|word| word.to_string_lossy()).as_deref())
    }

    fn chosen(word: Option<&str>) -> (LogLevel, Option<String>) {
        match (word, word.and_then(LogLevel::parse)) {
            (_, Some(level)) => (level, None),
            (None, None) => (LogLevel::default(), None),
            (Some(word), None) => {
                let words = "critical, error, warning, info or debug";
                (
                    LogLevel::default(),
                    Some(format!("DLIO_LOG_LEVEL={word} is none of {words}; using warning")),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_a_warning() {
        for (word, level, warns) in [
            (None, LogLevel::Milestones, false),
            (Some("WARNING"), LogLevel::Milestones, false),
            (Some("warn"), LogLevel::Milestones, false),
            (Some("Info"), LogLevel::Steps, false),
            (Some("debug"), LogLevel::Steps, false),
            (Some("ERROR"), LogLevel::Results, false),
            (Some("critical"), LogLevel::Results, false),
            (Some("verbose"), LogLevel::Milestones, true),
        ] {
            let (chosen, warning) = LogLevel::chosen(word);
            assert_eq!((chosen, warning.is_some()), (level, warns), "{word:?}");
        }
    }
}
