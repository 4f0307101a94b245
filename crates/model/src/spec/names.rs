//! The closed sets of words in a workload file, in DLIO's spelling.

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $(#[serde(rename = $word)] $variant),+ }

        impl $name {
            /// DLIO's words, in the order of the help text.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// DLIO's word for this value.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// The value for a word.
            pub fn named(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }
    )+ };
}

names! {
    Framework { Tensorflow = "tensorflow", Pytorch = "pytorch" }
    /// The data loader that is emulated; it determines how batches are formed and prefetched.
    Loader {
        Tensorflow = "tensorflow", Pytorch = "pytorch", Dali = "dali", NativeDali = "native_dali",
        Synthetic = "synthetic", Custom = "custom", None = "none",
    }
    /// The order of files or samples: as listed, the same permutation in every run, or a new one in every run.
    Shuffle { Off = "off", Seed = "seed", Random = "random" }
    StorageType {
        LocalFs = "local_fs", ParallelFs = "parallel_fs", S3 = "s3", Aistore = "aistore", DirectFs = "direct_fs",
        AdlsGen2 = "adls_gen2", Fsspec = "fsspec_fs", Daos = "daos_pytorch",
    }
    /// Element types of model and optimizer states.
    Datatype {
        Int8 = "int8", Uint8 = "uint8", Fp16 = "fp16", Bf16 = "bf16", Fp32 = "fp32", Fp64 = "fp64",
    }
    /// How samples are read from files: with the reads of the framework's own reader, or with reads of exactly their
    /// bytes.
    Access { Framework = "framework", Extent = "extent" }
    /// Which part of a batch stays in memory until the accelerator takes it.
    Retain { None = "none", Batch = "batch" }
    /// How the preprocessing time of a sample is spent.
    Preprocess { None = "none", Sleep = "sleep", Burn = "burn", Decode = "decode" }
    /// The advice to the kernel about how files will be read.
    Readahead { Normal = "normal", Sequential = "sequential", Random = "random", Dontcache = "dontcache" }
    /// How much of the data is compared with the expected content.
    Verify { None = "none", Sample = "sample", Full = "full" }
    /// What happens when a sample cannot be read.
    OnError { Stop = "stop", Count = "count" }
    /// Which part of the data set is in the page cache at the start of an epoch.
    CacheState {
        Cold = "cold", Warm = "warm", AsIs = "as-is", FirstCold = "first-cold", EpochCold = "epoch-cold"
    }
    /// For which fetches the pages in memory are counted right before the read.
    CacheProof { Exact = "exact", Sample = "sample", None = "none" }
    /// Whether the ranks of the run hold the whole model or a subset of it.
    CheckpointMode { Default = "default", Subset = "subset" }
    /// What training waits for when it saves: the last tier, a copy in memory, or a fast tier.
    SaveMode { Direct = "direct", Async = "async", BurstBuffer = "burst-buffer" }
    /// Whose behaviour a run has where feedline deliberately differs from DLIO.
    Semantics { Feedline = "feedline", Dlio = "dlio" }
    /// The figure that the plot of a sweep shows.
    PlottedFigure {
        MbPerSecond = "mb_per_second", SamplesPerSecond = "samples_per_second", AuPercent = "au_percent",
        BlockedSeconds = "blocked_seconds",
    }
}

impl Loader {
    /// The loader of a framework, for files that name none.
    pub fn of(framework: Framework) -> Loader {
        match framework {
            Framework::Tensorflow => Loader::Tensorflow,
            Framework::Pytorch => Loader::Pytorch,
        }
    }
}

impl Datatype {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Datatype::Int8 | Datatype::Uint8 => 1,
            Datatype::Fp16 | Datatype::Bf16 => 2,
            Datatype::Fp32 => 4,
            Datatype::Fp64 => 8,
        }
    }
}

/// The names of data formats, all but `raw` DLIO's; the format registry decides which of them can be read and written.
pub const FORMATS: &[&str] = &[
    "tfrecord",
    "hdf5",
    "csv",
    "npz",
    "npy",
    "hdf5_opt",
    "jpeg",
    "png",
    "indexed_binary",
    "mmap_indexed_binary",
    "synthetic",
    "parquet",
    "arrow",
    "raw",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_one_to_one() {
        for word in Loader::NAMES {
            assert_eq!(Loader::named(word).map(Loader::name), Some(*word));
        }
        for word in Datatype::NAMES {
            assert_eq!(Datatype::named(word).map(Datatype::name), Some(*word));
        }
        assert_eq!(StorageType::named("nfs"), None);
        assert_eq!(Loader::of(Framework::Pytorch), Loader::Pytorch);
        let json = serde_json::to_string(&StorageType::LocalFs).unwrap();
        assert_eq!(json, "\"local_fs\"");
    }
}
