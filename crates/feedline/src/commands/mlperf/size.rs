//! `feedline mlperf size`: the counts that mlpstorage's `datasize` computes for the same inputs, and the commands that
//! write that much.

use std::path::PathBuf;

use clap::Args;
use engine::host::Host;
use model::checkpoint::{Geometry, Scale};
use model::document;
use model::mlperf::{Edition, Rounding, SizeInput, TrainingSize, llama_model};
use model::plan::check_ranks;
use model::secret::redact;
use model::units::Bytes;
use session::{Asked, path_argument, quoted};

use crate::commands::{ask, generate_command, read};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::{OutputFlags, WorkloadFlags};
use crate::report;
use crate::report::mlperf::size::{CheckpointSizeReport, SizeScale, TrainingSizeReport};

pub(super) const EXAMPLES: &str = "\
Examples:
  feedline mlperf size unet3d_b200 --ranks 8 --hosts 2 --host-memory 256GiB
  feedline mlperf size resnet50_h100 --ranks 16 --edition 2.0
  feedline mlperf size ./mine.yaml --set reader.batch_size=32 --json
  feedline mlperf size llama3_70b --hosts 8 --host-memory 512GiB    a checkpoint, per rank and per host

The number of files is the larger of two minimums: 500 steps on every accelerator, and 5 times the memory of all
hosts. mlpstorage rounded down until version 3.0.42 (--edition 2.0) and rounds up since (--edition 3.0).";

#[derive(Args, Debug)]
pub(crate) struct MlperfSizeFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// Number of emulated accelerators over all hosts; for checkpoints, the number of processes [default: the
    /// workload's]
    #[arg(long, short = 'n', value_name = "N", visible_alias = "accelerators")]
    pub ranks: Option<u64>,
    /// Number of client hosts
    #[arg(long, value_name = "N", default_value_t = 1, visible_alias = "num-client-hosts")]
    pub hosts: u64,
    /// Memory of one host, such as 256GiB [default: this host's]
    #[arg(long, value_name = "SIZE", value_parser = host_memory)]
    pub host_memory: Option<Bytes>,
    /// Edition of the rules: 2.0 or 3.0
    #[arg(long, value_name = "EDITION", default_value = "3.0")]
    pub edition: Edition,
    /// Folder of the data set or of the checkpoints, for the commands that are printed
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputFlags,
}

/// A number without a unit is bytes; here it is a mistake, because mlpstorage's flag for it is in GiB.
fn host_memory(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(size) if size.0 < 1 << 30 => {
            Err("this is less than 1 GiB; give the unit, such as 256GiB for mlpstorage's 256 GB".to_owned())
        }
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn size(flags: &MlperfSizeFlags) -> CommandResult {
    let asked = read(ask(&flags.workload, flags.overrides(), flags.data_dir.as_deref())?)?;
    let ranks = flags.ranks.unwrap_or(asked.ask.workload.ranks);
    check_ranks(ranks, flags.hosts).map_err(Failure::usage)?;
    let host_memory_bytes = flags.host_memory.map_or_else(|| Host::look().memory_bytes, |memory| memory.0);
    let scale = SizeScale {
        workload: asked.name().to_owned(),
        edition: flags.edition,
        ranks,
        hosts: flags.hosts,
        host_memory_bytes,
    };
    if !flags.output.json && !flags.output.quiet {
        report::warnings(&asked.warnings);
    }
    let workflow = &asked.spec.workflow;
    if workflow.checkpoint && !workflow.train && !workflow.generate_data {
        let sized = checkpoint(flags, &asked, scale)?;
        show(flags, || sized.json(), || sized.text())
    } else {
        let sized = training(flags, &asked, scale);
        show(flags, || sized.json(), || sized.text())
    }
}

fn show(
    flags: &MlperfSizeFlags,
    json: impl FnOnce() -> serde_json::Value,
    text: impl FnOnce() -> String,
) -> CommandResult {
    match flags.output.json {
        true => report::out_json(document::MLPERF_SIZE, &json())?,
        false => report::out(&text())?,
    }
    Ok(Exit::Ok)
}

fn training(flags: &MlperfSizeFlags, asked: &Asked, scale: SizeScale) -> TrainingSizeReport {
    let memory = u128::from(scale.host_memory_bytes) * u128::from(scale.hosts);
    let states_record = asked.states("dataset.record_length_bytes");
    let input = SizeInput::of(&asked.spec, states_record, scale.ranks, memory);
    let size = TrainingSize::new(&input, scale.edition.rounding());
    let mut settings = vec![("dataset.num_files_train", size.files)];
    if size.subfolders > 0 {
        settings.push(("dataset.num_subfolders_train", size.subfolders));
    }
    let mut generate = generate_command(&flags.workload, flags.data_dir.as_deref());
    for (key, value) in &settings {
        generate.push_str(&format!(" --set {key}={value}"));
    }
    let rounded_down = TrainingSize::new(&input, Rounding::Down).files;
    TrainingSizeReport {
        mlpstorage: mlpstorage_datagen(flags, &scale, &settings),
        scale,
        size,
        rounded_down: (rounded_down < size.files).then_some(rounded_down),
        generate,
    }
}

/// The command for a workload that mlpstorage has; its name is `<model>_<accelerator>`.
fn mlpstorage_datagen(
    flags: &MlperfSizeFlags,
    scale: &SizeScale,
    settings: &[(&str, u64)],
) -> Option<String> {
    let (model, accelerator) = scale.workload.rsplit_once('_')?;
    if !scale.edition.has(model, accelerator) {
        return None;
    }
    let mut command = match scale.edition {
        Edition::V2 => format!("mlpstorage training datagen --model {model}"),
        Edition::V3 => {
            let mode = if scale.edition.scores(model, accelerator) { "closed" } else { "whatif" };
            format!("mlpstorage {mode} training {model} datagen file")
        }
    };
    command.push_str(&format!(" --num-processes {}", scale.ranks));
    command.push_str(&places(flags, scale, "--data-dir", "DATA-DIR"));
    command.push_str(" --params");
    for setting in flags.workload.set.iter().filter(|setting| !setting.starts_with('~')) {
        let setting = setting.trim_start_matches('+');
        let setting = setting.strip_prefix("workload.").unwrap_or(setting);
        command.push_str(&format!(" {}", quoted(&redact(setting))));
    }
    for (key, value) in settings {
        command.push_str(&format!(" {key}={value}"));
    }
    Some(command)
}

/// Flags of mlpstorage for hosts and folders; words in capitals are for the user to replace.
fn places(flags: &MlperfSizeFlags, scale: &SizeScale, flag: &str, placeholder: &str) -> String {
    let folder = flags.data_dir.as_deref().map_or_else(|| placeholder.to_owned(), path_argument);
    let hosts = if scale.hosts > 1 { " --hosts HOST..." } else { "" };
    let system = if scale.edition == Edition::V3 { " --systemname SYSTEM" } else { "" };
    format!("{hosts} {flag} {folder} --results-dir RESULTS-DIR{system}")
}

fn checkpoint(
    flags: &MlperfSizeFlags,
    asked: &Asked,
    scale: SizeScale,
) -> Result<CheckpointSizeReport, Failure> {
    let geometry = Geometry::resolve(&asked.spec, scale.ranks, Scale::WHOLE).map_err(Failure::usage)?;
    let model = llama_model(&scale.workload);
    let set: String =
        flags.workload.set.iter().map(|one| format!(" --set {}", quoted(&redact(one)))).collect();
    let folder =
        flags.data_dir.as_deref().map(|folder| format!(" --checkpoint-dir {}", path_argument(folder)));
    let name = path_argument(std::path::Path::new(&flags.workload.workload));
    let run = format!("feedline run {name} --ranks {}{}{set}", scale.ranks, folder.unwrap_or_default());
    let mlpstorage = model.map(|model| {
        let start = match scale.edition {
            Edition::V2 => "mlpstorage checkpointing run".to_owned(),
            Edition::V3 => {
                let division = if model.processes == scale.ranks { "closed" } else { "open" };
                format!("mlpstorage {division} checkpointing run file")
            }
        };
        let memory = scale.host_memory_bytes.div_ceil(1 << 30);
        let counts = format!("--num-processes {} --client-host-memory-in-gb {memory}", scale.ranks);
        let places = places(flags, &scale, "--checkpoint-folder", "CHECKPOINT-DIR");
        format!("{start} --model {} {counts}{places}", model.name)
    });
    Ok(CheckpointSizeReport::new(scale, &geometry, model, run, mlpstorage))
}

#[cfg(test)]
mod tests {
    use model::spec::{WorkloadSource, read};

    use super::*;
    use crate::workloads::WORKLOADS;

    /// Each row has a workload, accelerators, hosts, GiB of memory per host, and the files and bytes that the function
    /// of mlpstorage 2.0 and 3.0.26 computes, then those of the same function with both quotients rounded up.
    const SIZES: &str = include_str!("sizes.csv");

    #[test]
    fn counts_are_those_of_mlpstorage() {
        let mut names = Vec::new();
        for row in SIZES.lines() {
            let fields: [&str; 8] = row.split(',').collect::<Vec<_>>().try_into().unwrap();
            let [name, ranks, hosts, gib, rest @ ..] = fields;
            let rest = rest.map(|field| field.parse::<u64>().unwrap());
            let (ranks, hosts): (u64, u64) = (ranks.parse().unwrap(), hosts.parse().unwrap());
            let memory = (gib.parse::<f64>().unwrap() * (1u64 << 30) as f64) as u128 * u128::from(hosts);
            let workload = WORKLOADS.iter().find(|workload| workload.name == name).unwrap();
            let source = WorkloadSource { name, text: workload.text };
            let spec = read(source, &[]).unwrap().spec;
            let input = SizeInput::of(&spec, true, ranks, memory);
            for (edition, expected) in [(Edition::V2, &rest[..2]), (Edition::V3, &rest[2..])] {
                let size = TrainingSize::new(&input, edition.rounding());
                assert_eq!([size.files, size.bytes], expected, "{row}, edition {edition}");
            }
            names.push(name);
        }
        assert!(names.len() >= 100);
        names.dedup();
        assert!(names.len() >= 40, "only {} workloads", names.len());
    }
}
