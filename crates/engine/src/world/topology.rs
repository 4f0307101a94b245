//! The members of a run, the hosts that they run on, and the ranks that each of them plays.

use std::ops::Range;

use model::units::counted;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What distinguishes one host from another. Containers on one machine share its boot id, and machines may share a
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    pub name: String,
    pub boot_id: String,
}

/// The members of a run and their hosts. A node is a host; nodes are numbered in the order of their first member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Names of the nodes. Nodes that share a name are told apart by their number.
    nodes: Vec<String>,
    /// The node of each member.
    node_of: Vec<u64>,
    /// The ranks of each member, if they were given; otherwise ranks are distributed evenly.
    shares: Option<Vec<u64>>,
}

/// Why ranks cannot be distributed over members.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DistributionError {
    #[error(
        "there are {members} processes, but only {}; start fewer processes, or raise --ranks",
        counted(*ranks, "rank")
    )]
    TooFewRanks { members: u64, ranks: u64 },
    #[error(
        "--ranks-per-process has {}, but the number of processes is {members}; give one for each process",
        counted(*given, "number")
    )]
    OtherMembers { given: u64, members: u64 },
    #[error("--ranks-per-process gives process {member} no rank; give each process at least one")]
    NoRanks { member: u64 },
    #[error("--ranks-per-process adds up to {sum} ranks, but --ranks is {ranks}; leave out one of the two")]
    OtherRanks { sum: u64, ranks: u64 },
}

impl Topology {
    /// One member on one host.
    pub fn solo(host: &str) -> Topology {
        Topology { nodes: vec![host.to_owned()], node_of: vec![0], shares: None }
    }

    /// Members on the given hosts, one entry per member.
    pub fn new(hosts: &[HostIdentity]) -> Topology {
        let mut known: Vec<&HostIdentity> = Vec::new();
        let node_of = hosts.iter().map(|host| {
            let node = known.iter().position(|other| *other == host).unwrap_or_else(|| {
                known.push(host);
                known.len() - 1
            });
            node as u64
        });
        let node_of = node_of.collect();
        let is_shared = |name: &str| known.iter().filter(|other| other.name == name).count() > 1;
        let name = |(node, host): (usize, &&HostIdentity)| match is_shared(&host.name) {
            true => format!("{}#{node}", host.name),
            false => host.name.clone(),
        };
        Topology { nodes: known.iter().enumerate().map(name).collect(), node_of, shares: None }
    }

    /// The same with this number of ranks for each member.
    pub fn with_shares(self, shares: Vec<u64>) -> Result<Topology, DistributionError> {
        let (given, members) = (shares.len() as u64, self.members());
        if given != members {
            return Err(DistributionError::OtherMembers { given, members });
        }
        if let Some(member) = shares.iter().position(|share| *share == 0) {
            return Err(DistributionError::NoRanks { member: member as u64 });
        }
        Ok(Topology { shares: Some(shares), ..self })
    }

    pub fn members(&self) -> u64 {
        self.node_of.len() as u64
    }

    pub fn nodes(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The node of a member.
    pub fn node_of(&self, member: u64) -> u64 {
        self.node_of.get(member as usize).copied().unwrap_or_default()
    }

    /// The name of a node.
    pub fn name(&self, node: u64) -> &str {
        self.nodes.get(node as usize).map_or("", String::as_str)
    }

    /// A member as messages name it.
    pub fn shown(&self, member: u64) -> String {
        format!("process {member} on {}", self.name(self.node_of(member)))
    }

    /// The members on a node, in order.
    pub fn members_on(&self, node: u64) -> impl Iterator<Item = u64> {
        (0..).zip(&self.node_of).filter(move |(_, of)| **of == node).map(|(member, _)| member)
    }

    /// Whether a member is the first one of its node, which does what a node does once.
    pub fn leads_node(&self, member: u64) -> bool {
        self.members_on(self.node_of(member)).next() == Some(member)
    }

    /// Checks that a run of `ranks` ranks can be distributed.
    pub fn check(&self, ranks: u64) -> Result<(), DistributionError> {
        let (members, sum) = (self.members(), self.shares.as_ref().map(|shares| shares.iter().sum::<u64>()));
        match sum {
            Some(sum) if sum != ranks => Err(DistributionError::OtherRanks { sum, ranks }),
            None if ranks < members => Err(DistributionError::TooFewRanks { members, ranks }),
            _ => Ok(()),
        }
    }

    /// The ranks of a run of `ranks` ranks that a member plays: those that were given for it, or an even share, of
    /// which the first members have one more if the ranks do not divide.
    pub fn ranks(&self, member: u64, ranks: u64) -> Range<u64> {
        if let Some(shares) = &self.shares {
            let first: u64 = shares.iter().take(member as usize).sum();
            return first..first + shares.get(member as usize).copied().unwrap_or_default();
        }
        let (share, more) = (ranks / self.members(), ranks % self.members());
        let first = member * share + member.min(more);
        first..first + share + u64::from(member < more)
    }

    /// The number of ranks of a run for which none is given: what was given for the members, or one for each of
    /// several.
    pub fn default_ranks(&self) -> Option<u64> {
        let given = self.shares.as_ref().map(|shares| shares.iter().sum());
        given.or_else(|| Some(self.members()).filter(|members| *members > 1))
    }

    /// How many of a run's ranks are played on a node.
    pub fn ranks_on(&self, node: u64, ranks: u64) -> u64 {
        self.members_on(node)
            .map(|member| self.ranks(member, ranks))
            .map(|range| range.end - range.start)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, boot_id: &str) -> HostIdentity {
        HostIdentity { name: name.to_owned(), boot_id: boot_id.to_owned() }
    }

    #[test]
    fn ranks_are_distributed_without_gap_or_overlap() {
        for (ranks, members) in [(8, 1), (8, 3), (5, 5), (1000, 7)] {
            let topology = Topology::new(&vec![host("a", "1"); members as usize]);
            let all: Vec<u64> = (0..members).flat_map(|member| topology.ranks(member, ranks)).collect();
            assert_eq!(all, (0..ranks).collect::<Vec<u64>>());
            let sizes = (0..members).map(|member| topology.ranks(member, ranks).count());
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }

    #[test]
    fn a_host_is_a_name_and_a_boot_id() {
        let hosts = [host("a", "1"), host("b", "1"), host("a", "1"), host("a", "2")];
        let topology = Topology::new(&hosts);
        assert_eq!((topology.members(), topology.nodes()), (4, 3));
        assert_eq!((0..4).map(|member| topology.node_of(member)).collect::<Vec<_>>(), [0, 1, 0, 2]);
        assert_eq!((0..3).map(|node| topology.name(node)).collect::<Vec<_>>(), ["a#0", "b", "a#2"]);
        let leads: Vec<bool> = (0..4).map(|member| topology.leads_node(member)).collect();
        assert_eq!(leads, [true, true, false, true]);
        assert_eq!(topology.ranks_on(0, 9), 3 + 2);
    }

    #[test]
    fn given_shares_must_match_members_and_ranks() {
        let two = || Topology::new(&[host("a", "1"), host("b", "1")]);
        let given = two().with_shares(vec![5, 3]).unwrap();
        assert_eq!((given.ranks(0, 8), given.ranks(1, 8)), (0..5, 5..8));
        assert_eq!(given.check(8), Ok(()));
        let defaults = [given.default_ranks(), two().default_ranks(), Topology::solo("a").default_ranks()];
        assert_eq!(defaults, [Some(8), Some(2), None]);
        assert_eq!(given.check(9), Err(DistributionError::OtherRanks { sum: 8, ranks: 9 }));
        assert_eq!(two().check(1), Err(DistributionError::TooFewRanks { members: 2, ranks: 1 }));
        assert_eq!(
            two().with_shares(vec![8]).unwrap_err(),
            DistributionError::OtherMembers { given: 1, members: 2 }
        );
        assert_eq!(two().with_shares(vec![8, 0]).unwrap_err(), DistributionError::NoRanks { member: 1 });
    }
}
