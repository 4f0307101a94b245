//! Advice in the terms of this front end. Errors, warnings and rules name the flags of feedline's own commands;
//! `dlio_benchmark` has arguments in their place.

/// What stands for a flag of `feedline run`. A longer flag precedes one that it begins with.
const ARGUMENTS: [(&str, &str); 16] = [
    ("remove --no-calibration; without it, the calibration itself failed: ", "the calibration failed: "),
    ("--agreement ", "FEEDLINE_AGREEMENT="),
    ("--cache-proof ", "++workload.reader.cache_proof="),
    ("--cache ", "++workload.reader.cache="),
    ("--checkpoint-dir", "++workload.checkpoint.checkpoint_folder"),
    ("--data-dir", "++workload.dataset.data_folder"),
    ("--drop-caches", "++workload.reader.drop_caches=True"),
    ("leave out --generate", "set ++workload.workflow.generate_data=False"),
    ("--interface", "FEEDLINE_INTERFACE"),
    ("--ranks", "the number of processes"),
    ("--save ", "++workload.checkpoint.mode_of_save="),
    ("--set ", "++workload."),
    ("--stall-timeout", "++workload.reader.stall_timeout"),
    // Without quotes Hydra takes it for no value.
    ("--store null", "++workload.storage.store='null'"),
    ("--store ", "++workload.storage.store="),
    ("--verify ", "++workload.reader.verify="),
];

/// The text with arguments in the place of flags.
pub(super) fn with_arguments(text: &str) -> String {
    ARGUMENTS.iter().fold(text.to_owned(), |text, (flag, argument)| text.replace(flag, argument))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_arguments() {
        for (text, expected) in [
            (
                "use --cache cold or --store direct; to measure memory, use --cache warm",
                "use ++workload.reader.cache=cold or ++workload.storage.store=direct; to measure memory, use \
                 ++workload.reader.cache=warm",
            ),
            ("use --verify sample or full", "use ++workload.reader.verify=sample or full"),
            ("add --set workflow.generate_data=false", "add ++workload.workflow.generate_data=false"),
            (
                "choose another folder with --data-dir",
                "choose another folder with ++workload.dataset.data_folder",
            ),
            ("--store null reads nothing", "++workload.storage.store='null' reads nothing"),
            ("lower --ranks", "lower the number of processes"),
            ("a shorter round trip (--interface)", "a shorter round trip (FEEDLINE_INTERFACE)"),
            ("use a longer run", "use a longer run"),
        ] {
            assert_eq!(with_arguments(text), expected);
        }
    }
}
