//! The report of `feedline catalog`: which files were listed, by suffix, and which entries were skipped and why.

use std::path::Path;

use engine::catalog::{KeySummary, ListSummary, SkipReason};
use model::catalog::{CatalogContents, SuffixCount};
use model::units::{Bytes, Nanos, grouped};
use serde_json::{Map, Value, json};

/// Suffixes that are listed as text and in JSON; others are summed up.
const SHOWN: usize = 10;
const SHOWN_IN_JSON: usize = 100;
/// Characters of a path or suffix as text.
const WIDEST: usize = 48;

/// A listing that was completed.
pub(crate) struct ListReport<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) summary: &'a ListSummary,
    pub(crate) contents: CatalogContents,
    pub(crate) span: Nanos,
}

impl ListReport<'_> {
    fn bytes_per_file(&self) -> f64 {
        self.summary.catalog_bytes as f64 / self.summary.files as f64
    }

    fn files_per_second(&self) -> f64 {
        self.summary.files as f64 / self.span.seconds().max(1e-9)
    }

    fn keys_per_second(&self, keys: &KeySummary) -> f64 {
        keys.names as f64 / self.span.seconds().max(1e-9)
    }

    /// The first suffixes, and the sum of the others if there are any.
    fn suffixes(&self, shown: usize) -> (&[SuffixCount], Option<SuffixCount>) {
        let CatalogContents { suffixes, others, .. } = &self.contents;
        let (shown, rest) = suffixes.split_at(shown.min(suffixes.len()));
        let sum = |sum: SuffixCount, one: &SuffixCount| SuffixCount {
            files: sum.files + one.files,
            bytes: sum.bytes.saturating_add(one.bytes),
            ..sum
        };
        (shown, Some(rest.iter().fold(others.clone(), sum)).filter(|others| others.files > 0))
    }

    pub(crate) fn json(&self) -> Value {
        let ListReport { summary, contents, .. } = self;
        let counted =
            |one: &SuffixCount| json!({"suffix": text(&one.suffix), "files": one.files, "bytes": one.bytes});
        let (suffixes, others) = self.suffixes(SHOWN_IN_JSON);
        let (mut skipped, mut examples) = (Map::new(), Map::new());
        for reason in SkipReason::ALL {
            skipped.insert(key(reason).to_owned(), summary.skipped.count(reason).into());
            if let Some(path) = summary.skipped.example(reason) {
                examples.insert(key(reason).to_owned(), text(path).into());
            }
        }
        let mut report = json!({
            "data_folder": self.dir,
            "catalog": summary.path,
            "files": summary.files,
            "folders": summary.folders,
            "bytes": summary.bytes,
            "suffixes": suffixes.iter().map(counted).collect::<Vec<Value>>(),
            "other_suffixes": others.map(|others| json!({"files": others.files, "bytes": others.bytes})),
            "empty_files": contents.empty,
            "first_empty_file": contents.first_empty.as_deref().map(text),
            "catalog_bytes": summary.catalog_bytes,
            "bytes_per_file": self.bytes_per_file(),
            "digest": summary.digest,
            "folders_reused": summary.folders_reused,
            "skipped": skipped,
            "skipped_examples": examples,
            "seconds": self.span.seconds(),
            "files_per_second": self.files_per_second(),
        });
        if let Some(keys) = &summary.keys {
            report["requests"] = keys.requests.into();
            report["keys"] = keys.names.into();
            report["keys_per_second"] = self.keys_per_second(keys).into();
            report["files_resumed"] = keys.resumed.into();
            report["in_byte_order"] = keys.in_order.into();
        }
        report
    }

    pub(crate) fn text(&self) -> String {
        let ListReport { dir, summary, contents, span } = self;
        let reused = match summary.folders_reused {
            0 => String::new(),
            count => format!(" ({} unchanged)", grouped(count)),
        };
        let mut lines = vec![format!(
            "{}: {} in {}{reused}, {}",
            dir.display(),
            counted(summary.files, "file"),
            counted(summary.folders, "folder"),
            Bytes(summary.bytes)
        )];
        lines.extend(self.table().lines().map(str::to_owned));
        if let Some(path) = &contents.first_empty {
            lines.push(format!("{}, such as {}", counted(contents.empty, "empty file"), shown(path)));
        }
        lines.extend(self.skipped());
        let rate = match &summary.keys {
            None => format!("{} files/s", grouped(self.files_per_second() as u64)),
            Some(keys) => {
                let rate = grouped(self.keys_per_second(keys) as u64);
                format!("{}, {rate} keys/s", counted(keys.requests, "request"))
            }
        };
        if let Some(resumed) = summary.keys.map(|keys| keys.resumed).filter(|resumed| *resumed > 0) {
            lines.push(format!("{} from the interrupted listing", counted(resumed, "file")));
        }
        if summary.keys.is_some_and(|keys| !keys.in_order) {
            lines.push("listed folder by folder: the server does not list keys in byte order".to_owned());
        }
        lines.push(format!(
            "catalog of {} ({:.1} bytes per file) in {span}, {rate}",
            Bytes(summary.catalog_bytes),
            self.bytes_per_file(),
        ));
        super::fitted(&(lines.join("\n") + "\n")) + &super::path_line("written to", summary.path.display())
    }

    fn table(&self) -> String {
        let (suffixes, others) = self.suffixes(SHOWN);
        let row = |name: String, one: &SuffixCount| [name, grouped(one.files), Bytes(one.bytes).to_string()];
        let named = suffixes.iter().map(|one| match one.suffix.is_empty() {
            true => row("(none)".to_owned(), one),
            false => row(shown(&one.suffix), one),
        });
        let others = others.map(|others| row("(others)".to_owned(), &others));
        super::table(["suffix", "files", "size"], 1..3, named.chain(others))
    }

    /// A line for each reason for which entries were skipped.
    fn skipped(&self) -> Vec<String> {
        let skipped = &self.summary.skipped;
        let mut lines: Vec<String> = SkipReason::ALL
            .into_iter()
            .filter_map(|reason| {
                let path = skipped.example(reason)?;
                Some(format!("skipped: {}, such as {}", words(reason, skipped.count(reason)), shown(path)))
            })
            .collect();
        if self.summary.folders_reused > 0 {
            lines.push("skipped entries of unchanged folders are not counted".to_owned());
        }
        lines
    }
}

fn key(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Hidden => "hidden",
        SkipReason::Partial => "partial",
        SkipReason::Index => "index",
        SkipReason::Unmatched => "unmatched",
        SkipReason::LinkedFolder => "linked_folders",
        SkipReason::Special => "special",
        SkipReason::Marker => "folder_markers",
        SkipReason::Unusable => "unusable",
    }
}

fn words(reason: SkipReason, count: u64) -> String {
    match reason {
        SkipReason::Hidden => format!("{} hidden", grouped(count)),
        SkipReason::Partial => counted(count, "partial file"),
        SkipReason::Index => counted(count, "index file"),
        SkipReason::Unmatched => format!("{} with a different suffix", grouped(count)),
        SkipReason::LinkedFolder => counted(count, "linked folder"),
        SkipReason::Special => format!("{} not a regular file", grouped(count)),
        SkipReason::Marker => counted(count, "folder marker"),
        SkipReason::Unusable => format!("{} not a path (two slashes in a row)", grouped(count)),
    }
}

fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Names are bytes.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A path on one line, without its beginning if it is long.
fn shown(path: &[u8]) -> String {
    let path: String = text(path).escape_debug().collect();
    match path.chars().count() {
        len if len > WIDEST => "...".chars().chain(path.chars().skip(len + 3 - WIDEST)).collect(),
        _ => path,
    }
}
