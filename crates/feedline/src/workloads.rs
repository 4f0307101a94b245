//! The built-in workloads, one line each, and how the text of a workload is found: in this table or in a file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use model::spec::nearest;
use session::WorkloadText;

/// Where a workload comes from, which decides how its results may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadStatus {
    /// Made for feedline.
    Demo,
    /// MLPerf Storage v3.0, closed and open division.
    Sanctioned,
    /// Not scored in the current round.
    WhatIf,
    /// From an earlier round, an abandoned draft, or DLIO's own examples.
    Historical,
    /// From a published experiment. The file states which values were published and which were added.
    Study,
}

impl WorkloadStatus {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WorkloadStatus::Demo => "demo",
            WorkloadStatus::Sanctioned => "sanctioned",
            WorkloadStatus::WhatIf => "what-if",
            WorkloadStatus::Historical => "historical",
            WorkloadStatus::Study => "study",
        }
    }
}

/// A built-in workload.
#[derive(Debug)]
pub(crate) struct Workload {
    pub name: &'static str,
    pub standing: WorkloadStatus,
    pub summary: &'static str,
    pub text: &'static str,
    /// Default number of ranks.
    pub ranks: u64,
    /// The core-config hash that MLPerf Storage publishes for it.
    pub published_hash: Option<&'static str>,
}

macro_rules! workloads {
    ($($name:ident $standing:ident $summary:literal $($hash:literal)? $(ranks $ranks:literal)?;)+) => {
        /// Every built-in workload, by family.
        pub(crate) const WORKLOADS: &[Workload] = &[$(Workload {
            name: stringify!($name),
            standing: WorkloadStatus::$standing,
            summary: $summary,
            text: include_str!(concat!("../../../workloads/", stringify!($name), ".yaml")),
            ranks: workloads!(@or 1 $($ranks)?),
            published_hash: workloads!(@some $($hash)?),
        },)+];
    };
    (@or $default:literal) => { $default };
    (@or $default:literal $value:literal) => { $value };
    (@some) => { None };
    (@some $value:literal) => { Some($value) };
}

workloads! {
    demo Demo "small jpeg files, done in under a minute" ranks 2;

    unet3d_b200 Sanctioned "UNet3D, 147 MB npz files, batch 7, B200" "0d3ad0dec188becd";
    unet3d_h100 WhatIf "UNet3D, 147 MB npz files, H100 (v1.0/v2.0)" "0f3dd7a4bf6433a3";
    unet3d_a100 WhatIf "UNet3D, 147 MB npz files, A100 (v1.0/v2.0)" "691cea309c4f2f52";
    unet3d_v100 Historical "UNet3D, 147 MB npz files, batch 4, V100";
    unet3d_h100_s3 Historical "UNet3D, npz objects on S3, 7 epochs, H100 (DLIO)";
    unet3d_a100_s3 Historical "UNet3D, npz objects on S3, A100 (DLIO)";
    unet3d_v100_s3 Historical "UNet3D, npy objects on S3, V100 (DLIO)";

    retinanet_b200 Sanctioned "RetinaNet, 323 kB jpeg files, batch 24, B200" "20c73f53486caba0";
    retinanet_mi355 Sanctioned "RetinaNet, 323 kB jpeg files, batch 36, MI355" "66c43604eb650987";
    retinanet_h100 Historical "RetinaNet, 150 KiB jpeg files, H100 (abandoned draft)";
    retinanet_a100 Historical "RetinaNet, 150 KiB jpeg files, A100 (abandoned draft)";

    resnet50_h100 WhatIf "ResNet-50, TFRecord, batch 400, H100 (v1.0/v2.0)" "03a7be3df904e1e7";
    resnet50_a100 WhatIf "ResNet-50, TFRecord, batch 400, A100 (v1.0/v2.0)" "4a03838105aa5808";
    resnet50_v100 Historical "ResNet-50, TFRecord, batch 64, V100";
    resnet50_tf Historical "ResNet-50, TFRecord, batch 64, accelerator not stated";

    cosmoflow_h100 WhatIf "CosmoFlow, 2.8 MB TFRecord files, H100 (v1.0/v2.0)" "4b7b36339a2a5b0d";
    cosmoflow_a100 WhatIf "CosmoFlow, 2.8 MB TFRecord files, A100 (v1.0/v2.0)" "b49b896e947a408b";
    cosmoflow_v100 Historical "CosmoFlow, 2.8 MB TFRecord files, V100";

    dlrm_b200 WhatIf "DLRM, 200-column parquet, B200 (May 2026)";
    dlrm_mi355 WhatIf "DLRM, 200-column parquet, MI355";
    dlrm_b200_wide Historical "DLRM, 200-column parquet, large files, B200 (earlier)";
    dlrm_b200_early Historical "DLRM, 3-column parquet, B200 (first values)";
    dlrm_parquet_h100 Historical "DLRM, 512-byte parquet files, H100 (abandoned draft)";
    dlrm_parquet_a100 Historical "DLRM, 512-byte parquet files, A100 (abandoned draft)";
    dlrm_h100 Historical "DLRM, 512-byte npz files, H100 (abandoned draft)";
    dlrm_a100 Historical "DLRM, 512-byte npz files, A100 (abandoned draft)";
    dlrm_s3dlio_file Historical "DLRM, 1 KiB parquet rows on local files (DLIO fork)";
    dlrm_s3dlio_s3 Historical "DLRM, 1 KiB parquet rows on S3 (DLIO fork)";
    dlrm Historical "DLRM, one 640 GiB indexed binary file (DLIO)";

    flux_b200 WhatIf "FLUX, encoded parquet rows of 2 MB, B200";
    flux_mi355 WhatIf "FLUX, encoded parquet rows of 2 MB, MI355";
    flux_h100 Historical "FLUX, jpeg files, H100 (abandoned draft)";
    flux_a100 Historical "FLUX, jpeg files, A100 (abandoned draft)";

    bert_v100 Historical "BERT pre-training, TFRecord, V100 (v0.5)";
    megatron_deepspeed_LLNL Historical "Megatron-DeepSpeed, 40 layers, with checkpoints" ranks 32;
    default Historical "DLIO's default: small npz files with evaluation";

    llama3_8b Sanctioned "checkpoint of Llama 3 8B, 105 GiB, 8 ranks, ZeRO 3" "68df04b7240e3fb0" ranks 8;
    llama3_70b Sanctioned "checkpoint of Llama 3 70B, 911 GiB, 64 ranks, ZeRO 3" "3c53fe70d64f91d4" ranks 64;
    llama3_405b Sanctioned "checkpoint of Llama 3 405B, 5292 GiB, 512 ranks, ZeRO 1" "7adcfa87a5c4c8e6" ranks 512;
    llama3_1t Sanctioned "checkpoint of Llama 3 1T, 15427 GiB, 1024 ranks, ZeRO 1" "45fd627ad9dc5f4c" ranks 1024;
    llama_7b Historical "checkpoint of Llama 7B, 88 GiB, ZeRO 1 (DLIO)";
    llama_7b_zero3 Historical "checkpoint of Llama 7B, 88 GiB, ZeRO 3 (DLIO)" ranks 8;
    llama_8b_zero3 Historical "checkpoint of Llama 3 8B, 105 GiB, ZeRO 3 (DLIO)" ranks 8;
    llama_70b Historical "checkpoint of Llama 3 70B, 8 x 4 layout, ZeRO 1 (DLIO)" ranks 32;
    llama_70b_zero3 Historical "checkpoint of Llama 3 70B, 911 GiB, ZeRO 3 (DLIO)" "3c53fe70d64f91d4" ranks 64;
    llama_405b Historical "checkpoint of Llama 3 405B, 5292 GiB, ZeRO 1 (DLIO)" "7adcfa87a5c4c8e6" ranks 512;
    llama_1t Historical "checkpoint of Llama 3 1T, 15427 GiB, ZeRO 1 (DLIO)" ranks 1024;

    chien2018_devices Study "sweep: peak read rate of four devices (Chien 2018)";
    chien2018_threads Study "sweep: reader threads by device, with preprocessing (Chien 2018)";
    chien2018_prefetch Study "sweep: prefetching by device (Chien 2018)";
    chien2018_burst_buffer Study "sweep: checkpoints with and without a burst buffer (Chien 2018)";
    chien2018_micro Study "input pipeline alone, jpeg files of 112 kB, batch 64 (Chien 2018)";
    chien2018_alexnet Study "AlexNet, jpeg files of 12 kB, 704 MB checkpoint (Chien 2018)";
}

/// Workload files have a few kilobytes; a much larger file is something else.
const LARGEST_FILE_BYTES: u64 = 4 << 20;

/// Loads the workload `asked`: a file if it looks like a path, else a built-in workload.
pub(crate) fn load(asked: &str) -> anyhow::Result<WorkloadText> {
    let path = Path::new(asked);
    if is_yaml(path) || asked.contains('/') {
        return load_file(path);
    }
    let workload = named(asked)?;
    Ok(WorkloadText {
        name: workload.name.to_owned(),
        source: format!("{}.yaml (built in)", workload.name),
        text: workload.text.to_owned(),
        ranks: workload.ranks,
        built_in: true,
    })
}

/// The built-in workload with this name.
pub(crate) fn named(name: &str) -> anyhow::Result<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> anyhow::Error {
    if Path::new(name).is_file() {
        return anyhow!(
            "there is no built-in workload '{name}'; to use the file with that name, write './{name}'"
        );
    }
    match did_you_mean(&near(name)) {
        Some(question) => anyhow!("there is no workload '{name}'; {question}"),
        None => {
            anyhow!(
                "there is no workload '{name}'; 'feedline workloads' lists them; a file name must end in .yaml"
            )
        }
    }
}

/// The built-in workloads that `name` probably means: those that start with it, shortest first, else the nearest.
fn near(name: &str) -> Vec<String> {
    const MOST: usize = 4;
    let names = || WORKLOADS.iter().map(|workload| workload.name);
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    let mut near: Vec<&str> = names().filter(|known| !name.is_empty() && known.starts_with(name)).collect();
    near.sort_by_key(|known| known.len());
    if near.is_empty() {
        let nearest = names().map(distance).min().unwrap_or(usize::MAX);
        if nearest <= name.len().div_ceil(3).max(2) {
            near.extend(names().filter(|known| distance(known) == nearest));
        }
    }
    near.into_iter().take(MOST).map(str::to_owned).collect()
}

/// "did you mean 'a', 'b' or 'c'?"
fn did_you_mean(names: &[String]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let (last, others) = quoted.split_last()?;
    let list = if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
    Some(format!("did you mean {list}?"))
}

/// What a file that does not exist probably means: a file next to it, or a built-in workload.
fn instead_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files: Vec<String> = files
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|file| is_yaml(Path::new(file)))
        .collect();
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let beside = nearest(name, &names).map(|file| path.with_file_name(file).display().to_string());
    let built_in = near(path.file_stem()?.to_str()?);
    did_you_mean(&beside.map_or(built_in, |file| vec![file]))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn load_file(path: &Path) -> anyhow::Result<WorkloadText> {
    let shown = path.display();
    let facts = match std::fs::metadata(path) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            let question = instead_of(path).map_or(String::new(), |question| format!("; {question}"));
            bail!("there is no workload file {shown}{question}");
        }
        facts => facts.with_context(|| format!("cannot read the workload file {shown}"))?,
    };
    if facts.is_dir() {
        bail!("{shown} is a folder; a workload is a YAML file");
    }
    let text = read_text(path)?;
    let name = path.file_stem().map_or("workload".into(), |stem| stem.to_string_lossy().into_owned());
    Ok(WorkloadText { name, source: shown.to_string(), text, ranks: 1, built_in: false })
}

/// The text of a workload file.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    // Bounded, because a device file does not report a length.
    let read = File::open(path).and_then(|file| file.take(LARGEST_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read the workload file {shown}"))?;
    if bytes.len() as u64 > LARGEST_FILE_BYTES {
        bail!("{shown} is larger than {} MiB; it is not a workload file", LARGEST_FILE_BYTES >> 20);
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("{shown} is not a text file (invalid UTF-8)"))
}

#[cfg(test)]
mod tests {
    use format::Arithmetic;
    use model::plan::Data;
    use model::spec::{WorkloadSource, core_config_hash, read};

    use super::*;

    fn source(workload: &'static Workload) -> WorkloadSource<'static> {
        WorkloadSource { name: workload.name, text: workload.text }
    }

    #[test]
    fn every_workload_reads() {
        for workload in WORKLOADS {
            if let Err(error) = read(source(workload), &[]) {
                panic!("{}: {error}", workload.name);
            }
        }
    }

    #[test]
    fn every_published_hash_is_reproduced() {
        let mut checked = 0;
        for workload in WORKLOADS {
            if let Some(published) = workload.published_hash {
                assert_eq!(core_config_hash(source(workload)).unwrap(), published, "{}", workload.name);
                checked += 1;
            }
        }
        assert_eq!(checked, 15);
    }

    /// MLPerf Storage also publishes hashes of variants: with checkpoints, and of the subset form of 2025.
    #[test]
    fn the_hashes_of_variants_are_reproduced() {
        let subset = |data: u64| {
            vec![
                ("  parallelism:\n", format!("  parallelism:\n    data: {data}\n")),
                ("\ncheckpoint:\n", "\ncheckpoint:\n  mode: subset\n".to_owned()),
            ]
        };
        let with_checkpoints = vec![("  checkpoint: false\n", "  checkpoint: true\n".to_owned())];
        for (name, changes, published) in [
            ("unet3d_b200", with_checkpoints, "f636f5a57473fca2"),
            ("llama3_70b", subset(8), "c48a92d225d70ce8"),
            ("llama3_405b", subset(2), "7e9f853cebd52aa6"),
            ("llama3_1t", subset(2), "0918b2db633242db"),
        ] {
            let mut text = named(name).unwrap().text.to_owned();
            for (from, to) in changes {
                assert!(text.contains(from), "{name} has no {from:?}");
                text = text.replacen(from, &to, 1);
            }
            assert_eq!(core_config_hash(WorkloadSource { name, text: &text }).unwrap(), published, "{name}");
        }
    }

    #[test]
    fn every_file_in_the_folder_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
            assert!(WORKLOADS.iter().any(|workload| workload.name == name), "{name} is not in the table");
        }
    }

    #[test]
    fn the_workloads_of_the_2018_study_have_its_files() {
        for (name, files, median, mean, steps) in [
            ("chien2018_micro", 16_384, 112_000, 126_912.6, 256),
            ("chien2018_alexnet", 9_144, 12_000, 13_597.8, 142),
        ] {
            let spec = read(source(named(name).unwrap()), &[]).unwrap().spec;
            let format = session::format_of(&spec).unwrap();
            let data = Data::resolve(&spec, Some(&Arithmetic(format.as_ref()))).unwrap();
            let mut sizes: Vec<u64> =
                (0..files).map(|file| data.computed().unwrap().file_bytes(file)).collect();
            let near = |size: f64, expected: f64| (size / expected - 1.0).abs() < 0.01;
            let seen = sizes.iter().sum::<u64>() as f64 / files as f64;
            assert!(data.files() == files && near(seen, mean), "{name}: mean {seen}");
            sizes.sort_unstable();
            let middle = sizes[sizes.len() / 2];
            assert!(near(middle as f64, f64::from(median)), "{name}: median {middle}");
            assert_eq!(files / spec.reader.batch_size, steps, "{name}");
        }
        let alexnet = read(source(named("chien2018_alexnet").unwrap()), &[]).unwrap().spec;
        assert_eq!(alexnet.model.model_size_bytes, 58_699_238 * 4 * 3);
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        let error = load("unet3d_h10").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no workload 'unet3d_h10'; did you mean 'unet3d_h100' or 'unet3d_h100_s3'?"
        );
        let error = load("unet3d_h1000").unwrap_err().to_string();
        assert_eq!(error, "there is no workload 'unet3d_h1000'; did you mean 'unet3d_h100'?");
        assert!(load("xyzzy_plugh").unwrap_err().to_string().contains("'feedline workloads' lists them"));
        assert!(load("./nowhere.yaml").unwrap_err().to_string().contains("./nowhere.yaml"));
    }
}
