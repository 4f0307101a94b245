//! Under which conditions a run was made: how the data was to be read and how it was, what could not be honoured, and
//! what else the hosts were busy with. Beside plan and rows this is all that the rules of the verdict go by.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// The conditions of a run, over all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Settings that were given, that change what is measured, and that this version cannot honour.
    pub unhonoured: BTreeSet<String>,
    /// How the data was read, property by property, in the words of the stores.
    pub modes: BTreeMap<String, ModeSeen>,
    /// By the host's name.
    pub hosts: BTreeMap<String, HostSeen>,
}

/// One property of the road to the data: as it was asked for and as it turned out. Nodes may differ in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeSeen {
    /// Empty where there was nothing to ask for.
    pub requested: BTreeSet<String>,
    pub observed: BTreeSet<String>,
}

/// What the kernel of one host says of itself and of the time of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSeen {
    pub kernels: BTreeSet<String>,
    pub clock_sources: BTreeSet<String>,
    /// What limited the run to less memory or CPU time than the host has, such as a control group.
    #[serde(default)]
    pub limits: BTreeSet<String>,
    /// How often the counts below were taken; zero means that they are not known.
    pub readings: u64,
    /// CPU time of all cores in the kernel's ticks: all there was, what the hypervisor gave to others, and what others
    /// than the run used on this host. Kernel threads are others, also those that work for it.
    pub ticks: u64,
    pub stolen_ticks: u64,
    pub foreign_ticks: u64,
    /// Pages that came back from swap.
    pub swapped_in_pages: u64,
}

impl Conditions {
    /// Notes what was asked for.
    pub fn request(&mut self, property: &str, value: &str) {
        self.modes.entry(property.to_owned()).or_default().requested.insert(value.to_owned());
    }

    /// Notes how it turned out.
    pub fn observe(&mut self, property: &str, value: &str) {
        self.modes.entry(property.to_owned()).or_default().observed.insert(value.to_owned());
    }
}

impl AddAssign for Conditions {
    fn add_assign(&mut self, other: Conditions) {
        let Conditions { unhonoured, modes, hosts } = other;
        self.unhonoured.extend(unhonoured);
        for (property, mode) in modes {
            *self.modes.entry(property).or_default() += mode;
        }
        for (host, seen) in hosts {
            *self.hosts.entry(host).or_default() += seen;
        }
    }
}

impl AddAssign for ModeSeen {
    fn add_assign(&mut self, ModeSeen { requested, observed }: ModeSeen) {
        self.requested.extend(requested);
        self.observed.extend(observed);
    }
}

impl AddAssign for HostSeen {
    fn add_assign(&mut self, other: HostSeen) {
        let HostSeen {
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
