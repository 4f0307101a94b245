//! `feedline generate`: writes the missing files of a data set.

use std::path::PathBuf;

use clap::Args;
use engine::World;
use engine::generate::Generated;
use engine::host::Host;
use model::document;
use model::location::Location;
use model::units::{Bytes, Nanos, grouped};
use serde_json::json;
use session::{DataSetTask, default_writers};

use super::{ask, read, stop_on_signals};
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::cluster::NetworkFlags;
use crate::flags::metrics::MetricsFlags;
use crate::flags::{OutputFlags, WorkloadFlags};
use crate::metrics::{Metrics, serving};
use crate::progress::ProgressMode;
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline generate unet3d_h100 --data-dir /mnt/fast/unet3d
  feedline generate retinanet_b200 --set dataset.num_files_train=50000 --writers 16";

#[derive(Args, Debug)]
pub(crate) struct GenerateFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// Folder, or URL such as s3://bucket/prefix, that will hold train/ and valid/ [default: the workload's
    /// storage_root/data_folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Files written at once by each process [default: reader.write_threads, or the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub writers: Option<u64>,
    /// Write every file again, even if it exists with the right size
    #[arg(long)]
    pub overwrite: bool,
    /// Read every file back and compare each byte; exit code 5 if one differs
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub metrics: MetricsFlags,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub output: OutputFlags,
}

pub(crate) fn generate(flags: &GenerateFlags, world: &dyn World) -> CommandResult {
    let named = ("generate", flags.output.quiet);
    serving(&flags.metrics, named, world, |metrics| generate_with(flags, world, metrics))
}

fn generate_with(flags: &GenerateFlags, world: &dyn World, metrics: &Metrics) -> CommandResult {
    let mut asked = read(ask(&flags.workload, flags.overrides(), flags.data_dir.as_deref())?)?;
    asked.look_at_store(world);
    metrics.set_workload(asked.name());
    if !flags.output.quiet {
        report::warnings(&asked.warnings);
    }
    let task = DataSetTask {
        keep_seed: false,
        verify: flags.verify,
        writers: flags.writers.unwrap_or_else(|| default_writers(&asked, &Host::look(), world)),
        overwrite: flags.overwrite,
    };
    let (show, stop) = (ProgressMode::choose(flags.output.quiet), stop_on_signals()?);
    let (done, span) = task.run(&asked, world, &metrics.observer(&show), &stop)?;
    say(flags, asked.name(), &asked.data_location(), done, span)?;
    Ok(Exit::Ok)
}

fn say(
    flags: &GenerateFlags,
    name: &str,
    place: &Location,
    done: Generated,
    span: Nanos,
) -> Result<(), Failure> {
    let seconds = span.seconds();
    if flags.output.json {
        let written = json!({
            "workload": name,
            "data_folder": place.to_string(),
            "files_written": done.files_written,
            "files_kept": done.files_kept,
            "bytes_written": done.bytes_written,
            "bytes_verified": done.bytes_verified,
            "seconds": seconds,
        });
        return report::out_json(document::GENERATION, &written);
    }
    let rate = model::units::mib_per_second(done.bytes_written, span).unwrap_or(0.0);
    let kept =
        if done.files_kept > 0 { format!(", {} kept", grouped(done.files_kept)) } else { String::new() };
    let verified = match done.bytes_verified {
        0 => String::new(),
        bytes => format!("verified every byte: {}\n", Bytes(bytes)),
    };
    let written = format!(
        "{name}: {} files written{kept}, {} in {span}, {}, in",
        grouped(done.files_written),
        Bytes(done.bytes_written),
        report::rate(rate)
    );
    report::out(&format!("{}{verified}", report::path_line(&written, place)))
}
