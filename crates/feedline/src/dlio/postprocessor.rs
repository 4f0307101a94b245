//! `dlio_postprocessor`: a text report on a result folder of DLIO or feedline. It has DLIO's options, and reads the
//! files of all DLIO versions. What the folder states wins over options, as in DLIO; options complete a folder without
//! configuration.

mod iostat;
mod leaf;
mod series;
mod text;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Parser;
use clap::builder::BoolishValueParser;
use model::spec::{self, WorkloadSource};
use store::FolderHandle;

use crate::exit::{CommandResult, Exit, Failure};
use crate::report;
use iostat::HostLoad;
use leaf::LeafTimes;

/// DLIO's options. Those with two letters after one dash are translated before clap sees them.
#[derive(Debug, Parser)]
#[command(name = "dlio_postprocessor", bin_name = "dlio_postprocessor", no_binary_name = true, version)]
#[command(about = "Writes a text report on a result folder of DLIO or feedline")]
struct PostprocessorFlags {
    /// The result folder (also -of)
    #[arg(long, value_name = "FOLDER", default_value = "./output")]
    output_folder: PathBuf,
    /// The folder with config.yaml, in the result folder (also -hf) [default: .hydra or dlio_config]
    #[arg(long, value_name = "FOLDER")]
    hydra_folder: Option<PathBuf>,
    /// Number of ranks (also -np); the number of *_output.json files wins
    #[arg(long, value_name = "N")]
    num_proc: Option<u64>,
    /// Number of epochs; the epochs in the folder win
    #[arg(short, long, value_name = "N")]
    epochs: Option<u64>,
    /// Samples per step and rank (also -bs), if the folder has no config.yaml
    #[arg(long, value_name = "N")]
    batch_size: Option<u64>,
    /// Whether the run evaluated (also -de), if the folder has no config.yaml
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new())]
    do_eval: Option<bool>,
    /// Samples per evaluation step and rank (also -bse), if the folder has no config.yaml
    #[arg(long, value_name = "N")]
    batch_size_eval: Option<u64>,
    /// Whether the run saved checkpoints; the checkpoints in the folder win
    #[arg(short = 'c', long, value_name = "BOOL", value_parser = BoolishValueParser::new())]
    do_checkpoint: Option<bool>,
    /// Name each file that is read
    #[arg(short, long, value_name = "BOOL", value_parser = BoolishValueParser::new())]
    debug: Option<bool>,
    /// Name of the run, if the folder has no config.yaml
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
}

/// DLIO's short options of several letters, which clap does not have.
const LETTERS: [(&str, &str); 6] = [
    ("-of", "--output-folder"),
    ("-hf", "--hydra-folder"),
    ("-np", "--num-proc"),
    ("-bse", "--batch-size-eval"),
    ("-bs", "--batch-size"),
    ("-de", "--do-eval"),
];

/// Writes the report into the result folder and prints its path. `arguments` follow the name of the program.
pub(crate) fn postprocessor(arguments: &[OsString]) -> CommandResult {
    let flags =
        match PostprocessorFlags::try_parse_from(arguments.iter().map(|argument| spelled_out(argument))) {
            Ok(flags) => flags,
            Err(error) => {
                // A closed stream is not an error.
                let _ = error.print();
                return if error.use_stderr() {
                    Err(Failure::printed(Exit::Usage, error))
                } else {
                    Ok(Exit::Ok)
                };
            }
        };
    let written = report_on(&flags).map_err(Failure::refused)?;
    report::out(&format!("{}\n", written.display()))?;
    Ok(Exit::Ok)
}

fn spelled_out(argument: &OsStr) -> OsString {
    let (name, value) = match argument.to_str().map(|text| text.split_once('=').unwrap_or((text, ""))) {
        Some(parts) => parts,
        None => return argument.to_owned(),
    };
    match LETTERS.iter().find(|(letters, _)| *letters == name) {
        Some((_, long)) if value.is_empty() => (*long).into(),
        Some((_, long)) => format!("{long}={value}").into(),
        None => argument.to_owned(),
    }
}

fn report_on(flags: &PostprocessorFlags) -> anyhow::Result<PathBuf> {
    let folder = &flags.output_folder;
    let reader = LeafReader { folder, names_files: flags.debug == Some(true) };
    let times = LeafTimes::read(&reader)?;
    let described = Described::new(flags, &reader, &times)?;
    let load = HostLoad::read(&reader);
    let text = text::report(&described, &times, load.as_ref());
    let name = format!("DLIO_{}_report.txt", report::folder::safe_name(&described.name));
    FolderHandle::open(folder)?.put(&name, text.as_bytes())?;
    Ok(folder.join(name))
}

/// Reads the files of a result folder.
struct LeafReader<'a> {
    folder: &'a Path,
    names_files: bool,
}

impl LeafReader<'_> {
    /// The text of a file; `None`: there is no such file.
    fn text(&self, name: &Path) -> anyhow::Result<Option<String>> {
        let path = self.folder.join(name);
        if self.names_files {
            report::note(&format!("reading {}", path.display()));
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(anyhow!(error).context(format!("cannot read {}", path.display()))),
        }
    }

    /// A JSON file. DLIO writes `NaN`, which is no JSON; it becomes null.
    fn json(&self, name: &str) -> anyhow::Result<Option<serde_json::Value>> {
        let Some(text) = self.text(name.as_ref())? else { return Ok(None) };
        let parsed = serde_json::from_str(&without_nan(&text));
        parsed.with_context(|| format!("{} is no JSON file", self.folder.join(name).display())).map(Some)
    }
}

/// The text with `NaN` and infinities outside strings replaced by null.
fn without_nan(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    let mut quoted = false;
    while let Some(at) = rest.find(['"', '\\', 'N', 'I', '-']) {
        let (before, found) = rest.split_at(at);
        json.push_str(before);
        let number =
            ["NaN", "Infinity", "-Infinity"].into_iter().find(|name| !quoted && found.starts_with(name));
        let (replacement, length) = match number {
            Some(name) => ("null", name.len()),
            // An escape is two characters long, of which the second can be a quote.
            None if quoted && found.starts_with('\\') => {
                let length = found.chars().take(2).map(char::len_utf8).sum();
                (&found[..length], length)
            }
            None => {
                quoted ^= found.starts_with('"');
                (&found[..1], 1)
            }
        };
        json.push_str(replacement);
        rest = &found[length..];
    }
    json.push_str(rest);
    json
}

/// What the report says about the run as a whole.
struct Described {
    name: String,
    batch_size: u64,
    /// `None`: the run did not evaluate.
    batch_size_eval: Option<u64>,
    /// Bytes of a sample; `None`: unknown.
    record_bytes: Option<f64>,
}

impl Described {
    fn new(
        flags: &PostprocessorFlags,
        reader: &LeafReader<'_>,
        times: &LeafTimes,
    ) -> anyhow::Result<Described> {
        notice_difference("--num-proc", flags.num_proc, "*_output.json files", times.ranks);
        notice_difference("--epochs", flags.epochs, "epochs", times.epochs.len() as u64);
        let checkpoints =
            times.epochs.iter().flat_map(|epoch| &epoch.phases).any(|phase| phase.is_checkpoint());
        if flags.do_checkpoint.is_some_and(|given| given != checkpoints) {
            report::note("notice: --do-checkpoint differs from the folder, whose content counts");
        }
        let Some((path, text)) = configuration(flags, reader)? else {
            let evaluates = flags.do_eval.unwrap_or(flags.batch_size_eval.is_some());
            return Ok(Described {
                name: flags.name.clone().unwrap_or_else(|| "default".into()),
                batch_size: flags.batch_size.unwrap_or(1),
                batch_size_eval: evaluates.then_some(flags.batch_size_eval.unwrap_or(1)),
                record_bytes: times.record_bytes,
            });
        };
        let shown = reader.folder.join(path).display().to_string();
        let source = WorkloadSource { name: &shown, text: &text };
        let settings = spec::all_settings(source)?;
        let number = |key: &str| settings.get(key).and_then(|value| value.parse::<f64>().ok());
        let name = settings.get("model.name").map_or("default", |name| name.trim_matches('"'));
        let batch_size = number("reader.batch_size").unwrap_or(1.0) as u64;
        let batch_size_eval = number("reader.batch_size_eval").unwrap_or(1.0) as u64;
        let evaluates = settings.get("workflow.evaluation").is_some_and(|value| value == "true");
        notice_difference("--batch-size", flags.batch_size, "samples per step", batch_size);
        if flags.name.as_ref().is_some_and(|given| given != name) {
            report::note(&format!("notice: --name has no effect: {shown} names the model '{name}'"));
        }
        Ok(Described {
            name: name.to_owned(),
            batch_size,
            batch_size_eval: evaluates.then_some(batch_size_eval),
            record_bytes: times.record_bytes.or_else(|| number("dataset.record_length_bytes")),
        })
    }
}

fn notice_difference(flag: &str, given: Option<u64>, what: &str, found: u64) {
    if let Some(given) = given.filter(|given| *given != found) {
        report::note(&format!("notice: {flag} {given} has no effect: the folder states {found} {what}"));
    }
}

/// The path of config.yaml in the folder, and its text. Without `--hydra-folder`, Hydra's default folder is searched,
/// then that of mlpstorage.
fn configuration(
    flags: &PostprocessorFlags,
    reader: &LeafReader<'_>,
) -> anyhow::Result<Option<(PathBuf, String)>> {
    let folders = match &flags.hydra_folder {
        Some(folder) => vec![folder.as_path()],
        None => vec![Path::new(".hydra"), Path::new("dlio_config")],
    };
    for folder in folders {
        let path = folder.join("config.yaml");
        if let Some(text) = reader.text(&path)? {
            return Ok(Some((path, text)));
        }
    }
    match &flags.hydra_folder {
        Some(folder) => {
            Err(anyhow!("{} does not exist", reader.folder.join(folder).join("config.yaml").display()))
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
