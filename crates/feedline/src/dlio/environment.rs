//! Environment variables of DLIO that set a key of the workload. docs/dlio.md lists all variables.

use model::spec::Override;

/// DLIO's limit of the readers that it chooses itself.
const MAX_AUTO_THREADS: &str = "DLIO_MAX_AUTO_THREADS";

/// The keys that the environment sets, by the values of variables, and notices about values that cannot be used.
/// Launchers do not hand these variables to other hosts, so process 0 evaluates them for all processes.
pub(crate) fn overrides(variable: impl Fn(&str) -> Option<String>) -> (Vec<Override>, Vec<String>) {
    let Some(text) = variable(MAX_AUTO_THREADS) else { return (Vec::new(), Vec::new()) };
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

/// The maximum of the key. More threads than this are no limit.
const MOST: i64 = 65_536;

#[cfg(test)]
mod tests {
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
            let (sets, told) = overrides(|name| (name == MAX_AUTO_THREADS).then(|| text.to_owned()));
            let read = spec::read(WorkloadSource { name: "w.yaml", text: "{}" }, &sets).unwrap();
            assert_eq!((read.spec.reader.max_auto_threads, told.len()), (expected, notices), "{text}");
        }
        assert!(overrides(|_| None).0.is_empty());
    }
}
