//! Environment variables that change a run through `dlio_benchmark`: those of DLIO that set a key of the workload, and
//! feedline's own. docs/guides/dlio.md lists all variables.

use model::spec::{CHECKPOINT_SCHEME, CheckpointScheme, Override};
use serde::{Deserialize, Serialize};

/// DLIO's limit of the readers that it chooses itself.
const MAX_AUTO_THREADS: &str = "DLIO_MAX_AUTO_THREADS";
/// Makes an invalid verdict a failure; `output.strict` is the key.
const STRICT: &str = "FEEDLINE_STRICT";

/// The variables of a process. Launchers do not hand them to other hosts, so those of process 0 count for all
/// processes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Variables {
    max_auto_threads: Option<String>,
    checkpoint_scheme: Option<String>,
    pub is_strict: bool,
}

impl Variables {
    /// The variables of this process.
    pub(super) fn look() -> Variables {
        Variables::from(|name| std::env::var(name).ok())
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Variables {
        let is_strict = variable(STRICT).is_some_and(|value| !value.is_empty() && value != "0");
        let [max_auto_threads, checkpoint_scheme] = [MAX_AUTO_THREADS, CHECKPOINT_SCHEME].map(variable);
        Variables { max_auto_threads, checkpoint_scheme, is_strict }
    }

    /// Where checkpoint folders are that do not say it themselves; an error if the value is not known.
    pub(super) fn checkpoint_scheme(&self) -> Result<Option<CheckpointScheme>, String> {
        CheckpointScheme::parse(self.checkpoint_scheme.as_deref())
    }

    /// The keys that they set, and notices about values that cannot be used.
    pub(super) fn overrides(&self) -> (Vec<Override>, Vec<String>) {
        let Some(text) = &self.max_auto_threads else { return (Vec::new(), Vec::new()) };
        match text.trim().parse::<i64>() {
            // DLIO takes every number below 1 for 1.
            Ok(threads) => {
                let origin = format!("{MAX_AUTO_THREADS}={text}");
                let threads = threads.clamp(1, MOST) as f64;
                (vec![Override::new("reader.max_auto_threads", threads, &origin)], Vec::new())
            }
            Err(_) => {
                let notice = format!("{MAX_AUTO_THREADS}='{text}' has no effect: it is not a number");
                (Vec::new(), vec![notice])
            }
        }
    }
}

/// The maximum of the key. More threads than this are no limit.
const MOST: i64 = 65_536;

#[cfg(test)]
mod tests {
    use model::objects::Service;
    use model::spec::{self, WorkloadSource};

    use super::*;

    #[test]
    fn the_limit_of_automatic_readers_is_a_key() {
        for (text, expected, notices) in [
            ("4", 4, 0),
            (" 2 ", 2, 0),
            ("0", 1, 0),
            ("-3", 1, 0),
            ("1000000", 65_536, 0),
            ("many", 8, 1),
            ("", 8, 1),
        ] {
            let variables = Variables::from(|name| (name == MAX_AUTO_THREADS).then(|| text.to_owned()));
            let (sets, told) = variables.overrides();
            let read = spec::read(WorkloadSource { name: "w.yaml", text: "{}" }, &sets).unwrap();
            assert_eq!((read.spec.reader.max_auto_threads, told.len()), (expected, notices), "{text}");
        }
        assert!(Variables::default().overrides().0.is_empty());
    }

    #[test]
    fn the_scheme_of_checkpoints_is_known_or_refused() {
        let scheme = |value: &str| {
            let found = Variables::from(|name| (name == CHECKPOINT_SCHEME).then(|| value.to_owned()));
            found.checkpoint_scheme()
        };
        assert_eq!(scheme("gs"), Ok(Some(CheckpointScheme::Objects(Service::Gcs))));
        assert_eq!(scheme("file"), Ok(Some(CheckpointScheme::Files { odirect: false })));
        assert_eq!(scheme(""), Ok(None));
        assert!(scheme("nfs").unwrap_err().contains(CHECKPOINT_SCHEME));
    }

    #[test]
    fn strict_is_any_value_but_0() {
        let is_strict =
            |value: &str| Variables::from(|name| (name == STRICT).then(|| value.to_owned())).is_strict;
        assert!(is_strict("1") && is_strict("yes") && !is_strict("0") && !is_strict(""));
        assert!(!Variables::from(|_| None).is_strict);
    }
}
