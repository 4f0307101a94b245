//! The closed sets of words that a workload file chooses from, each with DLIO's spelling.

use serde::{Deserialize, Serialize};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $(#[serde(rename = $word)] $variant),+ }

        impl $name {
            /// DLIO's words, in the order in which help lists them.
            pub const NAMES: &'static [&'static str] = &[$($word),+];

            /// DLIO's word for it.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// What the word stands for.
            pub fn named(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }
    )+ };
}

names! {
    Framework { Tensorflow = "tensorflow", Pytorch = "pytorch" }
    /// Which data loader of the framework is emulated; it decides how batches are formed and fetched ahead.
    Loader {
        Tensorflow = "tensorflow", Pytorch = "pytorch", Dali = "dali", NativeDali = "native_dali",
        Synthetic = "synthetic", Custom = "custom", None = "none",
    }
    /// Order of files or samples: as listed, the same permutation in every run, a new one in every run.
    Shuffle { Off = "off", Seed = "seed", Random = "random" }
    StorageType {
        LocalFs = "local_fs", ParallelFs = "parallel_fs", S3 = "s3", Aistore = "aistore", DirectFs = "direct_fs",
    }
    /// Element types of model and optimizer states.
    Datatype {
        Int8 = "int8", Uint8 = "uint8", Fp16 = "fp16", Bf16 = "bf16", Fp32 = "fp32", Fp64 = "fp64",
    }
    /// How samples are taken out of files: with the reads that the framework's own reader makes, or with reads of just
    /// their bytes.
    Access { Framework = "framework", Extent = "extent" }
    /// What of a batch stays in memory until the accelerator takes it.
    Retain { None = "none", Batch = "batch" }
    /// How the time of a sample's preprocessing is spent.
    Preprocess { None = "none", Sleep = "sleep", Burn = "burn", Decode = "decode" }
    /// What the kernel is told about how files will be read.
    Readahead { Normal = "normal", Sequential = "sequential", Random = "random", Dontcache = "dontcache" }
    /// How much of what is read is compared with what the files should hold.
    Verify { None = "none", Sample = "sample", Full = "full" }
    /// What happens when a sample cannot be read.
    OnError { Stop = "stop", Count = "count" }
    /// What of the data set is in the page cache when an epoch begins.
    CacheState { Cold = "cold", Warm = "warm", AsIs = "as-is" }
    /// Of which fetches the pages in memory are counted right before they are read.
    CacheProof { Exact = "exact", Sample = "sample", None = "none" }
    /// Whether the ranks of the run hold the whole model or a subset of it.
    CheckpointMode { Default = "default", Subset = "subset" }
    /// What training waits for when it saves: the last tier, a copy in memory, or a fast tier in front.
    SaveMode { Direct = "direct", Async = "async", BurstBuffer = "burst-buffer" }
}

impl Loader {
    /// The loader that belongs to a framework, for files that name none.
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

/// Names of the data formats that DLIO knows; which of them can be read and written is the format registry's business.
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
