//! DLIO's behaviour on request: which of the differences are in effect, and what follows from that for other keys.
//! Differences that depend on the host or the ranks are resolved by the plan.

use super::check::Setting;
use super::layers::GivenKey;
use super::names::{CacheState, Semantics, Shuffle, Verify};
use super::schema::canonical_path;
use super::settle::SettingMap;
use super::table::compat::{ALL, ROWS};
use super::typed::{Column, CompatSpec, Spec};

/// The differences that change DLIO's numbers or the names and sizes of its files. A front end under DLIO's name has
/// DLIO's behaviour for these; for order, shards, cache and verification it has feedline's.
pub const DLIO_NUMBERS: &[&str] = &[
    "compat.read_threads",
    "compat.prefetch",
    "compat.compression",
    "compat.columns",
    "compat.record_length",
    "compat.model_size",
    "compat.checkpoint_step",
    "compat.fsync",
];

/// Formats whose readers in DLIO read the whole file for each sample.
const READ_WHOLE: &[&str] = &["npz", "npy", "csv", "hdf5"];
/// Formats to which DLIO applies a compression. Compressed csv files of DLIO cannot be read.
const COMPRESSED: &[&str] = &["hdf5", "csv"];
/// Earlier names that DLIO no longer reads, and the difference that they belong to.
const UNREAD: &[(&str, &str)] = &[
    ("compat.record_length", "dataset.record_length"),
    ("compat.record_length", "dataset.record_length_stdev"),
    ("compat.record_length", "dataset.record_length_byte_stdev"),
    ("compat.record_length", "dataset.record_length_resize"),
    ("compat.model_size", "model.model_size"),
    ("compat.model_size", "checkpoint.model_size"),
];

/// Given keys that do not have the effect that they have otherwise, and why.
pub(super) type Overruled = Vec<(&'static str, &'static str)>;

/// Resolves the section in the settings that were given, before defaults are filled in. A key of the section wins over
/// the word for all of it, and that over `by_default`, the keys for which a front end has DLIO's behaviour.
pub(super) fn apply(checked: &mut SettingMap, given: &[GivenKey], by_default: &[&str]) -> Overruled {
    let word = checked.remove(ALL).filter(|setting| *setting != Setting::Nothing);
    for row in ROWS.iter().filter(|row| row.key != ALL) {
        if checked.get(row.key).is_none_or(|setting| *setting == Setting::Nothing) {
            let front_end = if by_default.contains(&row.key) { Semantics::Dlio } else { Semantics::Feedline };
            let setting = word.clone().unwrap_or_else(|| text(front_end.name()));
            checked.insert(row.key, setting);
        }
    }
    let mut overruled = without_earlier_names(checked, given);
    overruled.extend(with_other_values(checked));
    with_other_defaults(checked);
    overruled
}

fn text(word: &str) -> Setting {
    Setting::Text(word.to_owned())
}

fn is_dlio(checked: &SettingMap, key: &str) -> bool {
    checked.get(key) == Some(&text(Semantics::Dlio.name()))
}

/// Removes keys whose names DLIO no longer reads.
fn without_earlier_names(checked: &mut SettingMap, given: &[GivenKey]) -> Overruled {
    let mut overruled = Vec::new();
    for key in given {
        let spelled = canonical_path(&key.spelled);
        if UNREAD.iter().any(|(difference, name)| *name == spelled && is_dlio(checked, difference)) {
            checked.remove(key.row.key);
            overruled
                .push((key.row.key, "DLIO does not read this name, and 'compat' asks for its behaviour"));
        }
    }
    overruled
}

/// Replaces values that DLIO reads differently.
fn with_other_values(checked: &mut SettingMap) -> Overruled {
    let replacements = [
        // It compares the word with a value of another type.
        (
            "compat.order",
            "reader.file_shuffle",
            checked.contains_key("reader.file_shuffle").then(|| text(Shuffle::Seed.name())),
            "DLIO shuffles by a seed whenever the key is given, and compat.order asks for its behaviour",
        ),
        (
            "compat.compression",
            "dataset.compression",
            (!COMPRESSED.contains(&format(checked))).then(|| text("none")),
            "DLIO does not compress this format, and compat.compression asks for its behaviour",
        ),
        (
            "compat.columns",
            "dataset.parquet.columns",
            all_columns(checked),
            "DLIO reads all columns, also those with 'read: false', and compat.columns asks for its behaviour",
        ),
        (
            "compat.fsync",
            "checkpoint.fsync",
            Some(Setting::Flag(true)),
            "DLIO always flushes, and compat.fsync asks for its behaviour",
        ),
    ];
    let mut overruled = Vec::new();
    for (difference, key, value, why) in replacements {
        let Some(value) = value.filter(|_| is_dlio(checked, difference)) else { continue };
        if checked.insert(key, value.clone()).is_some_and(|before| before != value) {
            overruled.push((key, why));
        }
    }
    overruled
}

/// The given columns, all of which are read.
fn all_columns(checked: &SettingMap) -> Option<Setting> {
    let Some(Setting::Columns(columns)) = checked.get("dataset.parquet.columns") else { return None };
    Some(Setting::Columns(columns.iter().map(|column| Column { read: true, ..column.clone() }).collect()))
}

/// Adds the values that keys have in DLIO if they are not given.
fn with_other_defaults(checked: &mut SettingMap) {
    // A host whose cache is dropped starts cold.
    let drops = checked.get("reader.drop_caches") == Some(&Setting::Flag(true));
    let defaults = [
        ("compat.cache", "reader.cache", (!drops).then_some(CacheState::AsIs.name())),
        ("compat.verify", "reader.verify", Some(Verify::None.name())),
    ];
    for (difference, key, word) in defaults {
        if let Some(word) = word.filter(|_| is_dlio(checked, difference)) {
            checked.entry(key).or_insert(text(word));
        }
    }
}

fn format(checked: &SettingMap) -> &str {
    match checked.get("dataset.format") {
        Some(Setting::Text(format)) => format,
        _ => "",
    }
}

impl CompatSpec {
    /// The keys that have DLIO's behaviour.
    pub fn dlio_keys(&self) -> Vec<&'static str> {
        let mut settings = Vec::new();
        self.write(&mut settings);
        settings.retain(|(_, setting)| *setting != Setting::Nothing);
        settings.into_iter().map(|(key, _)| key).collect()
    }
}

impl Spec {
    /// Whether each sample reads the whole file that it is in.
    pub fn reads_whole_files(&self) -> bool {
        self.compat.whole_files == Semantics::Dlio
            && self.dataset.num_samples_per_file > 1
            && READ_WHOLE.contains(&self.dataset.format.as_str())
    }

    /// Whether a written workload has to leave this key out. By DLIO's rule any value of it shuffles.
    pub(super) fn leaves_out(&self, key: &str) -> bool {
        key == "reader.file_shuffle"
            && self.compat.order == Semantics::Dlio
            && self.reader.file_shuffle == Shuffle::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Override, ParsedWorkload, ReadRules, UnknownKeys, WorkloadSource, read_with};

    fn read_by(text: &str, sets: &[&str], dlio_keys: &'static [&'static str]) -> ParsedWorkload {
        let sets: Vec<Override> =
            sets.iter().map(|set| Override::hydra(set, format!("--set {set}"))).collect();
        let rules = ReadRules { unknown_keys: UnknownKeys::Report, dlio_keys, objects: false };
        read_with(WorkloadSource { name: "w.yaml", text }, &sets, rules).unwrap()
    }

    fn read(text: &str, sets: &[&str]) -> ParsedWorkload {
        read_by(text, sets, &[])
    }

    fn said(read: &ParsedWorkload) -> String {
        read.warnings.iter().map(|warning| format!("{warning}\n")).collect()
    }

    fn all() -> Vec<&'static str> {
        ROWS.iter().map(|row| row.key).filter(|key| *key != ALL).collect()
    }

    #[test]
    fn a_word_sets_the_whole_section_and_a_key_wins_over_it() {
        assert_eq!(read("{}", &[]).spec.compat.dlio_keys(), Vec::<&str>::new());
        for text in ["compat: dlio", "compat: {all: dlio}"] {
            assert_eq!(read(text, &[]).spec.compat.dlio_keys(), all(), "{text}");
        }
        for set in ["compat=dlio", "++workload.compat=dlio", "compat.all=dlio"] {
            assert_eq!(read("{}", &[set]).spec.compat.dlio_keys(), all(), "{set}");
            assert_eq!(read("compat: feedline", &[set]).spec.compat.dlio_keys(), all(), "{set}");
        }
        let mut rest = all();
        rest.retain(|key| *key != "compat.draws");
        for sets in
            [["compat=dlio", "compat.draws=feedline"], ["++workload.compat.draws=feedline", "compat=dlio"]]
        {
            assert_eq!(read("{}", &sets).spec.compat.dlio_keys(), rest, "{sets:?}");
        }
        assert_eq!(read("compat: dlio", &["compat.draws=feedline"]).spec.compat.dlio_keys(), rest);
        assert_eq!(read("{}", &["compat.draws=dlio"]).spec.compat.dlio_keys(), ["compat.draws"]);
    }

    #[test]
    fn a_front_end_has_defaults_that_any_word_or_key_replaces() {
        let front_end = |sets: &[&str]| read_by("{}", sets, DLIO_NUMBERS).spec.compat.dlio_keys();
        let in_order = |keys: &[&'static str]| -> Vec<&'static str> {
            all().into_iter().filter(|key| keys.contains(key)).collect()
        };
        assert_eq!(front_end(&[]), in_order(DLIO_NUMBERS));
        assert!(DLIO_NUMBERS.iter().all(|key| all().contains(key)), "each is a key of the section");
        assert_eq!(front_end(&["compat=feedline"]), Vec::<&str>::new());
        assert_eq!(front_end(&["compat=dlio"]), all());
        let without: Vec<&str> =
            DLIO_NUMBERS.iter().copied().filter(|key| *key != "compat.read_threads").collect();
        assert_eq!(front_end(&["compat.read_threads=feedline"]), in_order(&without));
    }

    #[test]
    fn the_docs_have_a_row_for_every_difference() {
        let page = include_str!("../../../../docs/guides/dlio.md");
        let (_, table) = page.split_once("| what | DLIO | feedline | DLIO's behaviour with |").unwrap();
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
        let by = |row: &&str| row.rsplit('|').nth(1).unwrap().trim().to_owned();
        for key in all() {
            let count = rows.iter().filter(|row| by(row).contains(&format!("`{key}`"))).count();
            assert_eq!(count, 1, "rows for {key}");
        }
        for row in &rows {
            assert!(row.matches(" | ").count() == 3 && !by(row).is_empty(), "{row}");
        }
        let (_, defaults) =
            page.split_once("Called as `dlio_benchmark`, feedline has DLIO's behaviour where").unwrap();
        let (defaults, _) = defaults.split_once("Order, shards").unwrap();
        for key in DLIO_NUMBERS {
            assert!(defaults.contains(key.trim_start_matches("compat.")), "{key} is a default");
        }
    }

    #[test]
    fn a_wrong_word_is_an_error_that_names_the_right_ones() {
        for text in ["compat: dlioo", "compat: {order: mlcommons}", "compat: {orders: dlio}"] {
            let error =
                crate::spec::read(WorkloadSource { name: "w.yaml", text }, &[]).unwrap_err().to_string();
            assert!(error.contains("compat"), "{error}");
        }
    }

    #[test]
    fn any_given_file_shuffle_shuffles_by_a_seed() {
        let shuffle = |text: &str, sets: &[&str]| {
            let read = read(text, sets);
            (read.spec.reader.file_shuffle, said(&read).contains("DLIO shuffles by a seed"))
        };
        assert_eq!(shuffle("compat: {order: dlio}", &[]), (Shuffle::Off, false));
        for value in ["off", "'off'", "random"] {
            let text = format!("compat: {{order: dlio}}\nreader: {{file_shuffle: {value}}}");
            assert_eq!(shuffle(&text, &[]), (Shuffle::Seed, true), "{value}");
        }
        assert_eq!(shuffle("compat: {order: dlio}", &["reader.file_shuffle=seed"]), (Shuffle::Seed, false));
        assert_eq!(shuffle("reader: {file_shuffle: off}", &[]), (Shuffle::Off, false));
    }

    #[test]
    fn earlier_names_have_no_effect_in_dlio_and_a_warning_says_so() {
        let text = "model: {model_size: 499153191}\ndataset: {record_length: 4096, num_files_train: 4}\n\
                    workflow: {checkpoint: true}\n";
        let ours = read(text, &[]).spec;
        assert_eq!((ours.model.model_size_bytes, ours.dataset.record_length_bytes), (499_153_191, 4096.0));
        let theirs = read(text, &["compat.model_size=dlio", "compat.record_length=dlio"]);
        let said = said(&theirs);
        assert_eq!(
            (theirs.spec.model.model_size_bytes, theirs.spec.dataset.record_length_bytes),
            (10240, 65536.0)
        );
        assert!(
            said.contains("'model.model_size' at w.yaml:1:9") && said.contains("does not read this name"),
            "{said}"
        );
        let present = "model: {model_size_bytes: 7}\nworkflow: {checkpoint: true}\ncompat: dlio\n";
        assert_eq!(read(present, &[]).spec.model.model_size_bytes, 7, "the present name counts");
    }

    #[test]
    fn cache_and_verification_are_only_other_defaults() {
        let spec = read("compat: dlio", &[]).spec;
        assert_eq!((spec.reader.cache, spec.reader.verify), (CacheState::AsIs, Verify::None));
        let spec = read("compat: dlio\nreader: {cache: cold, verify: full}", &[]).spec;
        assert_eq!((spec.reader.cache, spec.reader.verify), (CacheState::Cold, Verify::Full));
        let spec = read("compat: dlio\nreader: {drop_caches: true}", &[]).spec;
        assert_eq!(spec.reader.cache, CacheState::Cold);
    }

    #[test]
    fn compression_columns_and_flushes_are_dlios() {
        let of = |format: &str, rest: &str| {
            let text =
                format!("dataset: {{format: {format}, compression: gzip}}\nframework: pytorch\n{rest}");
            let read = read(&text, &[]);
            (
                read.spec.dataset.compression.clone(),
                said(&read).contains("DLIO does not compress this format"),
            )
        };
        assert_eq!(of("parquet", "compat: {compression: dlio}"), ("none".to_owned(), true));
        assert_eq!(of("hdf5", "compat: {compression: dlio}"), ("gzip".to_owned(), false));
        assert_eq!(of("parquet", ""), ("gzip".to_owned(), false));
        let columns = "dataset: {format: parquet, parquet: {columns: [{name: a, read: false}, {name: b}]}}\n";
        let read_of = |rest: &str| -> Vec<bool> {
            let spec = read(&format!("framework: pytorch\n{columns}{rest}"), &[]).spec;
            spec.dataset.parquet.columns.iter().map(|column| column.read).collect()
        };
        assert_eq!((read_of(""), read_of("compat: {columns: dlio}")), (vec![false, true], vec![true, true]));
        let text = "workflow: {checkpoint: true}\ncheckpoint: {fsync: false}\ncompat: {fsync: dlio}";
        let flushed = read(text, &[]);
        assert!(flushed.spec.checkpoint.fsync && said(&flushed).contains("DLIO always flushes"));
    }

    #[test]
    fn a_spec_with_dlios_behaviour_reads_back_the_same() {
        for text in [
            "compat: dlio",
            "compat: {order: dlio}",
            "compat: {order: dlio}\nreader: {file_shuffle: 'off'}",
            "compat: dlio\ndataset: {format: npz, num_samples_per_file: 4}\nmodel: {model_size: 5}",
        ] {
            let first = read(text, &[]).spec;
            let yaml = first.to_yaml();
            assert_eq!(read(&yaml, &[]).spec, first, "{yaml}");
        }
        assert!(!read("{}", &[]).spec.to_yaml().contains("compat"));
    }
}
