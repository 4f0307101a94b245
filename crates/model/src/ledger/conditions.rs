//! The conditions of a run: how the data should be read and was read, which settings had no effect, and what else the
//! hosts did. The rules of the verdict use only these, the plan and the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The conditions of a run, over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Settings that change what is measured but have no effect in this version.
    pub unhonoured: BTreeSet<String>,
    /// How the data was read, by property, in the terms of the I/O backends.
    pub modes: BTreeMap<String, ObservedMode>,
    /// By host name.
    pub hosts: BTreeMap<String, ObservedHost>,
    /// The processes of the run, by number. Ledgers of earlier versions lack them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<u64, ObservedMember>,
    /// How the processes communicated; empty for a run of one process.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub transports: BTreeSet<String>,
}

/// A process of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedMember {
    /// The number and the name of its host.
    pub node: u64,
    pub host: String,
    /// The ranks that it played.
    pub first_rank: u64,
    pub ranks: u64,
    /// Whether its ledger is part of this one. If it is not, the values below are unknown.
    pub reported: bool,
    /// Cores and memory that it may use.
    pub cores: u64,
    pub memory_bytes: u64,
    pub peak_rss_bytes: Option<u64>,
}

/// One property of data access, as requested and as observed. Nodes may differ in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedMode {
    /// Empty if nothing was requested.
    pub requested: BTreeSet<String>,
    pub observed: BTreeSet<String>,
}

/// What the kernel of one host reports about itself and the time of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedHost {
    pub kernels: BTreeSet<String>,
    pub clock_sources: BTreeSet<String>,
    /// Limits that gave the run less memory or CPU time than the host has, such as a control group.
    #[serde(default)]
    pub limits: BTreeSet<String>,
    /// How often the counters below were read; zero means that they are unknown.
    pub readings: u64,
    /// CPU time of all cores in kernel ticks: in total, taken by the hypervisor, and used by other processes on this
    /// host. Kernel threads count as other processes, even those that work for the run.
    pub ticks: u64,
    pub stolen_ticks: u64,
    pub foreign_ticks: u64,
    /// Pages read back from swap.
    pub swapped_in_pages: u64,
}

impl Conditions {
    /// Records a requested value.
    pub fn request(&mut self, property: &str, value: &str) {
        self.modes.entry(property.to_owned()).or_default().requested.insert(value.to_owned());
    }

    /// Records an observed value.
    pub fn observe(&mut self, property: &str, value: &str) {
        self.modes.entry(property.to_owned()).or_default().observed.insert(value.to_owned());
    }
}

impl AddAssign for Conditions {
    fn add_assign(&mut self, other: Conditions) {
        let Conditions { unhonoured, modes, hosts, members, transports } = other;
        self.unhonoured.extend(unhonoured);
        for (property, mode) in modes {
            *self.modes.entry(property).or_default() += mode;
        }
        for (host, seen) in hosts {
            *self.hosts.entry(host).or_default() += seen;
        }
        for (member, seen) in members {
            *self.members.entry(member).or_default() += seen;
        }
        self.transports.extend(transports);
    }
}

impl AddAssign for ObservedMember {
    /// Two descriptions of the same member: what both know is equal.
    fn add_assign(&mut self, other: ObservedMember) {
        let ObservedMember { node, host, first_rank, ranks, reported, cores, memory_bytes, peak_rss_bytes } =
            other;
        self.node = self.node.max(node);
        if host > self.host {
            self.host = host;
        }
        self.first_rank = self.first_rank.max(first_rank);
        self.ranks = self.ranks.max(ranks);
        self.reported |= reported;
        self.cores = self.cores.max(cores);
        self.memory_bytes = self.memory_bytes.max(memory_bytes);
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak_rss_bytes);
    }
}

impl AddAssign for ObservedMode {
    fn add_assign(&mut self, ObservedMode { requested, observed }: ObservedMode) {
        self.requested.extend(requested);
        self.observed.extend(observed);
    }
}

impl AddAssign for ObservedHost {
    fn add_assign(&mut self, other: ObservedHost) {
        let ObservedHost {
            kernels,
            clock_sources,
            limits,
            readings,
            ticks,
            stolen_ticks,
            foreign_ticks,
            swapped_in_pages,
        } = other;
        self.kernels.extend(kernels);
        self.clock_sources.extend(clock_sources);
        self.limits.extend(limits);
        self.readings += readings;
        self.ticks += ticks;
        self.stolen_ticks += stolen_ticks;
        self.foreign_ticks += foreign_ticks;
        self.swapped_in_pages += swapped_in_pages;
    }
}
