//! `feedline inspect`: what data files contain, according to their bytes, and where their samples are.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use engine::{AskError, Inspection, MetadataError, Solo};
use format::{
    ArrayFacts, Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions, KINDS, Obstacle,
};
use model::document;
use model::location::Location;
use model::names::Name;
use model::spec::{Access, Override};
use model::units::grouped;
use model::warning::Warning;
use serde_json::{Value, json};
use store::{Store, StoreError};

use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{StorageFlags, WaitFlags};
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline inspect train/img_0_of_8.hdf5
  feedline inspect part-0.parquet --sample 5 --access framework
  feedline inspect *.tfrecord --json
  feedline inspect s3://public/data/part-0.parquet --set storage.anonymous=true

A file that is missing (exit code 3) or damaged (5) does not keep the others from
being inspected. The exit code is the highest of all files.";

/// Arrays that are listed as text; JSON has more.
const SHOWN: usize = 20;
/// Characters of an array's name and of its shape as text.
const WIDEST: usize = 32;
/// The width of a line of text, if it can be broken.
const WIDTH: usize = 80;

#[derive(Args, Debug)]
pub(crate) struct InspectFlags {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[arg(long, value_name = "FORMAT", help = format!(
        "Format of the files: {} [default: from the file name]",
        format::names(),
    ))]
    pub format: Option<String>,
    /// Show the reads for this sample, counted from 0; may be repeated
    #[arg(long, value_name = "N")]
    pub sample: Vec<u64>,
    /// Samples in each file, for formats that do not store the number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// How samples are read: framework (like the framework's own reader) or extent (only their bytes)
    #[arg(long, value_name = "ACCESS", default_value = "extent")]
    pub access: String,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub storage: StorageFlags,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn inspect(flags: &InspectFlags) -> CommandResult {
    let access = Access::named(&flags.access).ok_or_else(|| {
        Failure::usage(anyhow!("--access must be {}, not '{}'", Access::NAMES.join(" or "), flags.access))
    })?;
    let inspector =
        Inspector { flags, access, settings: flags.storage.overrides()?, shown: RefCell::default() };
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for path in &flags.files {
        match inspector.look(path) {
            Ok(finding) => found.push(finding),
            Err(failure) => failures.push(failure),
        }
    }
    let json = || json!({ "files": found.iter().map(InspectedFile::json).collect::<Vec<_>>() });
    if !flags.json {
        report::out(&report::fitted(&found.iter().map(InspectedFile::text).collect::<String>()))?;
    }
    match failure_of(failures, flags.files.len()) {
        None if flags.json => report::out_json(document::INSPECTION, &json())?,
        None => {}
        Some(failure) if found.is_empty() => return Err(failure),
        Some(failure) => return Err(failure.with_result(&json())),
    }
    Ok(Exit::Ok)
}

/// The failure of the command: a single one as it is, several as a list with the highest of their exit codes.
fn failure_of(mut failures: Vec<Failure>, files: usize) -> Option<Failure> {
    let exit = failures.iter().map(|failure| failure.exit).max_by_key(|exit| exit.code())?;
    if failures.len() == 1 {
        return failures.pop();
    }
    let lines: String = failures.iter().map(|failure| format!("\n  {:#}", failure.error)).collect();
    let error = anyhow!("{} of {files} files could not be inspected:{lines}", failures.len());
    Some(Failure::new(exit, error))
}

/// The findings on one file.
struct InspectedFile<'a> {
    path: &'a Path,
    format: &'static str,
    bytes: u64,
    facts: FileFacts,
    /// The requested samples and their reads.
    reads: Vec<(u64, Vec<Extent>)>,
}

/// What all files of a command have in common.
struct Inspector<'f> {
    flags: &'f InspectFlags,
    access: Access,
    settings: Vec<Override>,
    /// Warnings that were shown for an earlier file.
    shown: RefCell<Vec<Warning>>,
}

impl Inspector<'_> {
    fn look<'a>(&self, path: &'a Path) -> Result<InspectedFile<'a>, Failure> {
        let (folder, name) = parts(path)?;
        let format = format_of(self.flags, self.access, path)?;
        let shown = path.display().to_string();
        let failure = |error: AskError| failure(error.renamed(&shown));
        let store = self.open(folder).map_err(|error| match error {
            session::Error::DataFolder(cause) => failure(cause.into()),
            error => error.into(),
        })?;
        let mut inspection = Inspection::new(&*store, &*format, &name).map_err(failure)?;
        let facts = inspection.facts().map_err(failure)?;
        let mut reads = Vec::new();
        if !self.flags.sample.is_empty() {
            let held = self.flags.samples.or(facts.samples).ok_or_else(|| {
                Failure::usage(anyhow!(
                    "{}: the file does not state its number of samples; add --samples",
                    path.display()
                ))
            })?;
            for &sample in &self.flags.sample {
                let next = sample
                    .checked_add(1)
                    .ok_or_else(|| Failure::usage(anyhow!("{shown}: there is no sample {sample}")))?;
                reads.push((sample, inspection.reads(&(sample..next), held).map_err(failure)?));
            }
        }
        Ok(InspectedFile { path, format: format.name(), bytes: inspection.bytes(), facts, reads })
    }

    /// The store of a folder. Each warning is shown once.
    fn open(&self, folder: Location) -> Result<Box<dyn Store>, session::Error> {
        let mut asked = session::ask_of_place(folder, self.settings.clone())?;
        asked.look_at_store(&Solo::new());
        let mut shown = self.shown.borrow_mut();
        let new: Vec<Warning> =
            asked.warnings.iter().filter(|warning| !shown.contains(warning)).cloned().collect();
        report::warnings(&new);
        shown.extend(new);
        asked.open_data()
    }
}

/// The folder of a file, or the place of an object, and the name in it.
fn parts(path: &Path) -> Result<(Location, Name), Failure> {
    let unnamed = || Failure::usage(anyhow!("{} is not a file name", path.display()));
    if let Some(place) = Location::parse(path).objects().map_err(session::Error::from)? {
        let mut place = place.clone();
        let (folder, name) = place.prefix.rsplit_once('/').unwrap_or(("", &place.prefix));
        let name = Name::new(name).filter(|name| !name.as_bytes().is_empty()).ok_or_else(unnamed)?;
        place.prefix = folder.to_owned();
        return Ok((Location::Objects(place), name));
    }
    if matches!(path.try_exists(), Ok(false)) {
        return Err(Failure::refused(anyhow!("{} does not exist", path.display())));
    }
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str()).and_then(Name::new);
    Ok((folder.into(), name.ok_or_else(unnamed)?))
}

/// The failure, with its exit code, for an error that names the file.
fn failure(error: AskError) -> Failure {
    match error {
        AskError::Store(StoreError::Folder { .. })
        | AskError::Metadata(MetadataError::Format {
            cause: Obstacle::Shape(FormatError::NoSuchSample { .. }),
            ..
        }) => Failure::usage(error),
        AskError::Store(_) => Failure::refused(error),
        AskError::Metadata(_) => Failure::check_failed(error),
    }
}

fn format_of(flags: &InspectFlags, access: Access, path: &Path) -> Result<Box<dyn Format>, Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let options = FormatOptions { access, ..FormatOptions::default() };
    let kind = match &flags.format {
        Some(format) => FormatKind::named(format).ok_or_else(|| {
            Failure::usage(anyhow!("there is no format '{format}'; the formats are {}", format::names()))
        }),
        None => {
            KINDS.iter().find(|kind| kind.suffixes().any(|suffix| name.ends_with(&suffix))).ok_or_else(|| {
                Failure::usage(anyhow!(
                    "{}: unknown suffix; give the format with --format: {}",
                    path.display(),
                    format::names()
                ))
            })
        }
    }?;
    let compression = if name.ends_with(".gz") { "gzip" } else { "none" }.to_owned();
    kind.build(&FormatOptions { compression, ..options }).map_err(Failure::usage)
}

impl InspectedFile<'_> {
    fn json(&self) -> Value {
        let reads = |reads: &[Extent]| -> Vec<Value> {
            reads.iter().map(|read| json!({"offset": read.offset, "len": read.len})).collect()
        };
        let samples: Vec<Value> =
            self.reads.iter().map(|(sample, list)| json!({"sample": sample, "reads": reads(list)})).collect();
        let array =
            |array: &ArrayFacts| json!({"name": array.name, "shape": array.shape, "dtype": array.dtype});
        let arrays: Vec<Value> = self.facts.arrays.listed.iter().map(array).collect();
        json!({
            "file": self.path,
            "format": self.format,
            "bytes": self.bytes,
            "samples": self.facts.samples,
            "sample_dims": self.facts.dims,
            "element": self.facts.element,
            "arrays": arrays,
            "more_arrays": self.facts.arrays.more,
            "notes": self.facts.notes,
            "reads": samples,
        })
    }

    fn text(&self) -> String {
        let facts = &self.facts;
        let samples = match facts.samples {
            None => "an unknown number of samples".to_owned(),
            Some(1) => "1 sample".to_owned(),
            Some(samples) => format!("{} samples", grouped(samples)),
        };
        let shape = if facts.dims.is_empty() { String::new() } else { format!(" of {}", dims(&facts.dims)) };
        let element = facts.element.as_ref().map_or(String::new(), |element| format!(" {element}"));
        let mut text = format!(
            "{}: {}, {} bytes\n  {samples}{shape}{element}\n",
            self.path.display(),
            self.format,
            grouped(self.bytes)
        );
        text.push_str(&self.arrays());
        facts.notes.iter().for_each(|note| push_wrapped(&mut text, note));
        for (sample, reads) in &self.reads {
            let reads: Vec<String> =
                reads.iter().map(|read| format!("{}+{}", read.offset, read.len)).collect();
            push_wrapped(&mut text, &format!("sample {sample}: {}", reads.join(" ")));
        }
        text
    }

    /// A table of the arrays.
    fn arrays(&self) -> String {
        let arrays = &self.facts.arrays;
        if arrays.listed.is_empty() {
            return String::new();
        }
        let row = |array: &ArrayFacts| {
            let name = if array.name.is_empty() { "(unnamed)" } else { &array.name };
            let shape = match array.shape.as_deref() {
                None => "unknown".to_owned(),
                Some([]) => "scalar".to_owned(),
                Some(shape) => dims(shape),
            };
            [shortened(name), array.dtype.clone(), shortened(&shape)]
        };
        let rows = arrays.listed.iter().take(SHOWN).map(row);
        let table = report::table(["array", "type", "shape"], [], rows);
        let mut text: String = table.lines().map(|line| format!(" {line}\n")).collect();
        let more = arrays.more + arrays.listed.len().saturating_sub(SHOWN) as u64;
        if more > 0 {
            text.push_str(&format!("  and {} more (--json lists up to 1,024)\n", grouped(more)));
        }
        text
    }
}

fn dims(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

/// The beginning and the end of a long text.
fn shortened(text: &str) -> String {
    let (len, kept) = (text.chars().count(), WIDEST - 3);
    if len <= WIDEST {
        return text.to_owned();
    }
    let end = text.chars().skip(len - kept.div_ceil(2));
    text.chars().take(kept / 2).chain("...".chars()).chain(end).collect()
}

/// Adds a line in words, indented and broken between words.
fn push_wrapped(text: &mut String, line: &str) {
    let (mut width, mut indent) = (0, "  ");
    for word in line.split(' ') {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > WIDTH {
            text.push('\n');
            (width, indent) = (0, "    ");
        }
        let space = if width == 0 { indent } else { " " };
        text.push_str(space);
        text.push_str(word);
        width += space.len() + len;
    }
    text.push('\n');
}
