//! The parts of a ledger that are judged and reported separately: the nodes of a run, or the whole run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;

use super::{BlockWindow, Ledger, NodeRow, ObservedMember, Phase, RankRow};

/// One node of a run, or the whole run.
#[derive(Clone, Debug)]
pub struct LedgerPart<'a> {
    ledger: &'a Ledger,
    /// The number and the name of the node, and the ranks of each of its members; `None` for the whole run.
    node: Option<(u64, &'a str, Vec<Range<u64>>)>,
    /// Number of processes; a ledger that names none is that of one process.
    pub processes: u64,
}

impl Ledger {
    /// The nodes of a run of several processes, by number; empty for a run of one process.
    pub fn nodes(&self) -> Vec<LedgerPart<'_>> {
        let mut nodes: BTreeMap<u64, (&str, Vec<Range<u64>>)> = BTreeMap::new();
        for ObservedMember { node, host, first_rank, ranks, .. } in self.conditions.members.values() {
            let entry = nodes.entry(*node).or_insert((host, Vec::new()));
            entry.1.push(*first_rank..first_rank + ranks);
        }
        let part = |(number, (name, ranks)): (u64, (_, Vec<_>))| {
            let processes = ranks.len() as u64;
            LedgerPart { ledger: self, node: Some((number, name, ranks)), processes }
        };
        nodes.into_iter().map(part).collect()
    }

    /// The parts that a rule looks at one by one, so that none hides in the sum: the nodes if there are several,
    /// otherwise the whole run.
    pub fn parts(&self) -> Vec<LedgerPart<'_>> {
        let nodes = self.nodes();
        if nodes.len() > 1 { nodes } else { vec![self.whole()] }
    }

    /// All nodes together.
    pub fn whole(&self) -> LedgerPart<'_> {
        LedgerPart { ledger: self, node: None, processes: (self.conditions.members.len() as u64).max(1) }
    }

    /// Moves latencies, timelines and sample digests to the rows of the first node. They are only of interest for all
    /// nodes together, and with those of every node and epoch a ledger of hundreds of nodes would be too large.
    pub fn pool(&mut self) {
        for (epoch, phase, node) in self.nodes.keys().copied().collect::<Vec<_>>() {
            if let Some(row) = self.nodes.get_mut(&(epoch, phase, node)).filter(|_| node > 0) {
                let (latencies, timeline, parts) =
                    (mem::take(&mut row.latencies), mem::take(&mut row.timeline), mem::take(&mut row.parts));
                self.add_node(epoch, phase, 0, NodeRow { latencies, timeline, parts, ..NodeRow::default() });
            }
        }
    }

    /// What a node observed of an epoch of training, for tests that change it.
    #[cfg(test)]
    pub(crate) fn node_mut(&mut self, epoch: u64, node: u64) -> &mut NodeRow {
        self.nodes.entry((epoch, Phase::Train, node)).or_default()
    }

    /// The processes whose ledgers are not part of this one.
    pub fn missing(&self) -> impl Iterator<Item = (u64, &ObservedMember)> {
        let members = self.conditions.members.iter().filter(|(_, member)| !member.reported);
        members.map(|(number, member)| (*number, member))
    }

    /// The same as text; `None` if no process is missing.
    pub fn missing_processes(&self) -> Option<String> {
        let mut missing = self.missing();
        let (number, ObservedMember { host, .. }) = missing.next()?;
        let others = match missing.count() {
            0 => String::new(),
            1 => " and of another process".to_owned(),
            others => format!(" and of {others} other processes"),
        };
        Some(format!("the measurements of process {number} on {host}{others} are missing"))
    }

    /// The name of the node that played a rank; `None` for a run of one process.
    pub fn host_of(&self, rank: u64) -> Option<&str> {
        let plays =
            |member: &&ObservedMember| (member.first_rank..member.first_rank + member.ranks).contains(&rank);
        self.conditions.members.values().find(plays).map(|member| member.host.as_str())
    }
}

impl<'a> LedgerPart<'a> {
    /// The number of the node; 0 for the whole run.
    pub fn number(&self) -> u64 {
        self.node.as_ref().map_or(0, |(number, ..)| *number)
    }

    /// The name of the node; `None` for the whole run.
    pub fn name(&self) -> Option<&'a str> {
        self.node.as_ref().map(|(_, name, _)| *name)
    }

    /// Whether the ledger lacks what some process observed.
    pub(crate) fn lacks_rows(&self) -> bool {
        self.ledger.missing().next().is_some()
    }

    /// The rows of its ranks in one phase of one epoch.
    pub fn rows(&self, epoch: u64, phase: Phase) -> impl Iterator<Item = (u64, &'a RankRow)> + use<'a> {
        let all = || std::iter::once(0..u64::MAX).collect();
        let ranges = self.node.as_ref().map_or_else(all, |(.., ranges)| ranges.clone());
        let ledger = self.ledger;
        ranges.into_iter().flat_map(move |Range { start, end }| {
            let rows = ledger.ranks.range((epoch, phase, start)..(epoch, phase, end));
            rows.map(|((.., rank), row)| (*rank, row))
        })
    }

    /// The blocks of one of its ranks in one phase of one epoch.
    pub(crate) fn blocks(&self, epoch: u64, phase: Phase, rank: u64) -> Cow<'a, [BlockWindow]> {
        self.ledger.blocks(epoch, phase, rank)
    }

    /// The sum over its ranks.
    pub fn total(&self, epoch: u64, phase: Phase) -> RankRow {
        self.rows(epoch, phase).fold(RankRow::default(), |mut sum, (_, row)| {
            sum += *row;
            sum
        })
    }

    /// What it observed in one phase of one epoch. Borrowed if it is one node: histograms and timelines are large, and
    /// verdicts read those of every epoch.
    pub fn observed(&self, epoch: u64, phase: Phase) -> Cow<'a, NodeRow> {
        let range = match &self.node {
            Some((number, ..)) => (epoch, phase, *number)..=(epoch, phase, *number),
            None => (epoch, phase, 0)..=(epoch, phase, u64::MAX),
        };
        let mut rows = self.ledger.nodes.range(range).map(|(_, row)| row);
        let first = rows.next().map_or_else(Cow::default, Cow::Borrowed);
        rows.fold(first, |mut sum, row| {
            *sum.to_mut() += row.clone();
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::SampleDigest;
    use crate::units::Nanos;

    #[test]
    fn pooling_keeps_the_sum_and_the_counts_of_each_node() {
        let mut ledger = Ledger::default();
        for node in 0..3 {
            let mut row = NodeRow { device_read_bytes: 10 + node, ..NodeRow::default() };
            row.latencies.read.record(Nanos(100 * node));
            row.timeline.add(Nanos(1), node, 1);
            row.parts = vec![SampleDigest { samples: node, ..SampleDigest::default() }];
            ledger.add_node(1, Phase::Train, node, row);
        }
        let before = ledger.node_total(1, Phase::Train).into_owned();
        ledger.pool();
        assert_eq!(*ledger.node_total(1, Phase::Train), before);
        let row = ledger.node_mut(1, 2);
        assert_eq!((row.device_read_bytes, row.latencies.read.count(), row.parts.len()), (12, 0, 0));
    }
}
