//! Counts of file operations: number, bytes, time and errors of each kind.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// One kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    pub count: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    pub ns: Nanos,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errors: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Calls {
    /// Adds one call that returned `bytes` bytes, or failed.
    pub fn add(&mut self, bytes: u64, ns: Nanos, failed: bool) {
        *self += Calls { count: 1, bytes, ns, errors: u64::from(failed) };
    }
}

impl AddAssign for Calls {
    fn add_assign(&mut self, Calls { count, bytes, ns, errors }: Calls) {
        self.count += count;
        self.bytes += bytes;
        self.ns += ns;
        self.errors += errors;
    }
}

/// Operations by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    pub opens: Calls,
    /// `read` and relatives, and buffered reads of the C library.
    pub reads: Calls,
    pub closes: Calls,
    pub seeks: Calls,
    pub stats: Calls,
    pub listings: Calls,
    pub maps: Calls,
    pub writes: Calls,
    pub syncs: Calls,
    /// Reads that began where the one before of the same descriptor ended, and their bytes.
    pub sequential: Calls,
    /// Reads with an offset of their own.
    pub positioned: u64,
}

impl IoCounts {
    /// Time in calls that locate or describe files.
    pub fn metadata_ns(&self) -> Nanos {
        self.opens.ns + self.closes.ns + self.stats.ns + self.listings.ns
    }

    /// Calls that locate or describe files.
    pub fn metadata_calls(&self) -> u64 {
        self.opens.count + self.closes.count + self.stats.count + self.listings.count
    }

    /// Time in all calls that read.
    pub fn file_ns(&self) -> Nanos {
        self.metadata_ns() + self.reads.ns + self.seeks.ns
    }
}

impl AddAssign for IoCounts {
    fn add_assign(&mut self, other: IoCounts) {
        let IoCounts {
            opens,
            reads,
            closes,
            seeks,
            stats,
            listings,
            maps,
            writes,
            syncs,
            sequential,
            positioned,
        } = other;
        self.opens += opens;
        self.reads += reads;
        self.closes += closes;
        self.seeks += seeks;
        self.stats += stats;
        self.listings += listings;
        self.maps += maps;
        self.writes += writes;
        self.syncs += syncs;
        self.sequential += sequential;
        self.positioned += positioned;
    }
}
