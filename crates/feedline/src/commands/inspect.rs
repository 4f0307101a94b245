//! `feedline inspect`: what data files contain, according to their bytes, and where their samples are.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use engine::{AskError, Inspection, MetadataError};
use format::{Extent, FileFacts, Format, FormatError, FormatKind, FormatOptions, KINDS, Obstacle};
use model::names::Name;
use model::spec::Access;
use model::units::grouped;
use serde_json::{Value, json};
use store::StoreError;

use super::open_folder;
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline inspect train/img_0_of_8.hdf5
  feedline inspect part-0.parquet --sample 5 --access framework
  feedline inspect *.tfrecord --json

A damaged file ends the command with exit code 5 and the position of the damage.";

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
    pub wait: WaitFlags,
}

pub(crate) fn inspect(flags: &InspectFlags) -> CommandResult {
    let access = Access::named(&flags.access).ok_or_else(|| {
        Failure::usage(anyhow!("--access must be {}, not '{}'", Access::NAMES.join(" or "), flags.access))
    })?;
    let mut found = Vec::new();
    let mut failure = None;
    for path in &flags.files {
        match look(flags, access, path) {
            Ok(finding) => found.push(finding),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    // Files before the failed one are still reported.
    if flags.json && !found.is_empty() {
        report::out_json(&Value::Array(found.iter().map(InspectedFile::json).collect()))?;
    } else {
        report::out(&found.iter().map(InspectedFile::text).collect::<String>())?;
    }
    failure.map_or(Ok(Exit::Ok), Err)
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

fn look<'a>(flags: &InspectFlags, access: Access, path: &'a Path) -> Result<InspectedFile<'a>, Failure> {
    let format = format_of(flags, access, path)?;
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().and_then(|name| name.to_str()).and_then(Name::new);
    let name = name.ok_or_else(|| Failure::usage(anyhow!("{} is not a file name", path.display())))?;
    let store = open_folder(folder)?;
    let failure = |error: AskError| match error {
        AskError::Store(StoreError::Missing { .. } | StoreError::Folder { .. }) => Failure::usage(error),
        AskError::Metadata(MetadataError::Format {
            cause: Obstacle::Shape(FormatError::NoSuchSample { .. }),
            ..
        }) => Failure::usage(error),
        AskError::Store(_) => Failure::refused(error),
        AskError::Metadata(_) => Failure::check_failed(error),
    };
    let mut inspection = Inspection::new(&store, &*format, &name).map_err(failure)?;
    let facts = inspection.facts().map_err(failure)?;
    let mut reads = Vec::new();
    if !flags.sample.is_empty() {
        let held = flags.samples.or(facts.samples).ok_or_else(|| {
            Failure::usage(anyhow!(
                "{}: the file does not state its number of samples; add --samples",
                path.display()
            ))
        })?;
        for &sample in &flags.sample {
            let next = sample
                .checked_add(1)
                .ok_or_else(|| Failure::usage(anyhow!("there is no sample {sample}")))?;
            reads.push((sample, inspection.reads(&(sample..next), held).map_err(failure)?));
        }
    }
    Ok(InspectedFile { path, format: format.name(), bytes: inspection.bytes(), facts, reads })
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
        json!({
            "file": self.path,
            "format": self.format,
            "bytes": self.bytes,
            "samples": self.facts.samples,
            "sample_dims": self.facts.dims,
            "element": self.facts.element,
            "notes": self.facts.notes,
            "reads": samples,
        })
    }

    fn text(&self) -> String {
        let facts = &self.facts;
        let samples = facts.samples.map_or("an unknown number of".to_owned(), grouped);
        let dims: Vec<String> = facts.dims.iter().map(u64::to_string).collect();
        let shape = if dims.is_empty() { String::new() } else { format!(" of {}", dims.join(" x ")) };
        let element = facts.element.as_ref().map_or(String::new(), |element| format!(" {element}"));
        let mut text = format!(
            "{}: {}, {} bytes, {samples} samples{shape}{element}\n",
            self.path.display(),
            self.format,
            grouped(self.bytes)
        );
        for note in &facts.notes {
            text.push_str(&format!("  {note}\n"));
        }
        for (sample, reads) in &self.reads {
            text.push_str(&format!("  sample {sample}:"));
            for read in reads {
                text.push_str(&format!(" {}+{}", read.offset, read.len));
            }
            text.push('\n');
        }
        text
    }
}
