//! The processes of a job, and the bytes that all of them read: found by their parents in /proc.
//!
//! The kernel adds the counts of a process to those of its parent when the parent has waited for it. So the sum over
//! all processes that exist, and those that feedline itself has waited for, is the sum of the whole job.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::proc::{self, IoBytes, Stat};

/// Scans after which processes that are not of the job are looked at again: their numbers may have been reused.
const SCANS_PER_CHECK: u64 = 50;

/// A process of the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) parent: u32,
    pub(super) stat: Stat,
    pub(super) io: Option<IoBytes>,
    /// The counts of its parent that were read together with its own.
    parent_io: Option<IoBytes>,
    /// Scans in which it was there.
    pub(super) scans: u64,
}

/// A process that is gone without having been waited for by feedline.
#[derive(Clone, Copy, Debug)]
struct Vanished {
    parent: u32,
    parent_before: IoBytes,
    own: IoBytes,
}

/// The processes of the job.
#[derive(Debug)]
pub(super) struct Tree {
    own: u32,
    members: BTreeMap<u32, Member>,
    foreign: HashSet<u32>,
    scans: u64,
    vanished: Vec<Vanished>,
    /// Counts of processes that are not reaped yet.
    lost: IoBytes,
    most: Option<IoBytes>,
}

impl IoBytes {
    pub(super) fn plus(self, other: IoBytes) -> IoBytes {
        IoBytes {
            copied: self.copied.saturating_add(other.copied),
            issued: self.issued.saturating_add(other.issued),
        }
    }

    fn minus(self, other: IoBytes) -> IoBytes {
        IoBytes {
            copied: self.copied.saturating_sub(other.copied),
            issued: self.issued.saturating_sub(other.issued),
        }
    }

    fn most(self, other: IoBytes) -> IoBytes {
        IoBytes { copied: self.copied.max(other.copied), issued: self.issued.max(other.issued) }
    }
}

impl Tree {
    /// `own`: feedline, whose children are all of the job.
    pub(super) fn new(own: u32) -> Tree {
        Tree {
            own,
            members: BTreeMap::new(),
            foreign: HashSet::new(),
            scans: 0,
            vanished: Vec::new(),
            lost: IoBytes::default(),
            most: None,
        }
    }

    pub(super) fn members(&self) -> &BTreeMap<u32, Member> {
        &self.members
    }

    /// Finds the processes of the job.
    pub(super) fn scan(&mut self) {
        self.scans += 1;
        if self.scans.is_multiple_of(SCANS_PER_CHECK) {
            self.foreign.clear();
        }
        let listed: HashSet<u32> = proc::processes().into_iter().collect();
        self.foreign.retain(|pid| listed.contains(pid));
        let unknown = listed.iter().filter(|pid| !self.foreign.contains(pid) && **pid != self.own);
        let stats: HashMap<u32, Stat> =
            unknown.filter_map(|pid| proc::stat(*pid).map(|stat| (*pid, stat))).collect();
        self.update(&stats);
    }

    /// Sorts processes into those of the job and others.
    fn update(&mut self, stats: &HashMap<u32, Stat>) {
        let stays = |pid: &u32, member: &Member| {
            stats.get(pid).is_some_and(|stat| stat.started == member.stat.started)
        };
        let gone: Vec<(u32, Member)> =
            self.members.extract_if(.., |pid, member| !stays(pid, member)).collect();
        for (_, member) in gone {
            // Feedline reads the counts of its own children before it waits for them.
            if let (Some(parent_before), Some(own)) = (member.parent_io, member.io) {
                self.vanished.push(Vanished { parent: member.parent, parent_before, own });
            }
        }
        loop {
            let is_new = |pid: &u32, stat: &Stat| {
                let is_child = stat.parent == self.own || self.members.contains_key(&stat.parent);
                is_child && !self.members.contains_key(pid)
            };
            let found: Vec<(u32, Stat)> = stats
                .iter()
                .filter(|(pid, stat)| is_new(pid, stat))
                .map(|(pid, stat)| (*pid, *stat))
                .collect();
            if found.is_empty() {
                break;
            }
            let member =
                |stat: Stat| Member { parent: stat.parent, stat, io: None, parent_io: None, scans: 0 };
            self.members.extend(found.into_iter().map(|(pid, stat)| (pid, member(stat))));
        }
        for (pid, stat) in stats {
            match self.members.get_mut(pid) {
                Some(member) => {
                    (member.parent, member.stat) = (stat.parent, *stat);
                    member.scans += 1;
                }
                None => {
                    self.foreign.insert(*pid);
                }
            }
        }
    }

    /// Decides about the processes that are gone, since when their parents' counts were read again. A parent that
    /// ignores the end of its children does not get their counts.
    fn settle(&mut self) {
        let mut by_parent: BTreeMap<u32, (IoBytes, IoBytes)> = BTreeMap::new();
        for one in std::mem::take(&mut self.vanished) {
            let sum = by_parent.entry(one.parent).or_insert((one.parent_before, IoBytes::default()));
            sum.1 = sum.1.plus(one.own);
        }
        for (parent, (before, children)) in by_parent {
            if let Some(now) = self.members.get(&parent).and_then(|member| member.io) {
                self.lost = self.lost.plus(children.minus(now.minus(before)));
            }
        }
    }

    /// Reads the counts, and returns those of the whole job; `reaped` are those of children of feedline. They never
    /// become less: a process that was waited for in the middle of it is missing once.
    pub(super) fn read(&mut self, reaped: IoBytes, io: impl Fn(u32) -> Option<IoBytes>) -> Option<IoBytes> {
        let mut sum = reaped;
        let mut read = BTreeMap::new();
        for (pid, member) in &mut self.members {
            if let Some(now) = io(*pid) {
                member.io = Some(now);
                read.insert(*pid, now);
                sum = sum.plus(now);
                self.most.get_or_insert_default();
            }
        }
        for (_, member) in self.members.iter_mut().filter(|(pid, _)| read.contains_key(pid)) {
            member.parent_io = read.get(&member.parent).copied();
        }
        self.settle();
        sum = sum.plus(self.lost);
        self.most = match self.most {
            None if reaped == IoBytes::default() => None,
            most => Some(most.unwrap_or_default().most(sum)),
        };
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: u32) -> Stat {
        Stat { state: b'R', parent, threads: 1, cpu_ns: 0, started: 1, signal: None }
    }

    fn stats(of: &[(u32, u32)]) -> HashMap<u32, Stat> {
        of.iter().map(|(pid, parent)| (*pid, stat(*parent))).collect()
    }

    fn counts(of: &[(u32, u64)]) -> impl Fn(u32) -> Option<IoBytes> {
        let of: HashMap<u32, u64> = of.iter().copied().collect();
        move |pid| of.get(&pid).map(|bytes| IoBytes { copied: *bytes, issued: *bytes })
    }

    #[track_caller]
    fn step(tree: &mut Tree, processes: &[(u32, u32)], bytes: &[(u32, u64)], expected: u64) {
        tree.update(&stats(processes));
        assert_eq!(tree.read(IoBytes::default(), counts(bytes)).unwrap().issued, expected);
    }

    #[test]
    fn descendants_are_found_whatever_their_numbers() {
        let mut tree = Tree::new(100);
        tree.update(&stats(&[(7, 300), (300, 200), (200, 100), (50, 1), (1, 0)]));
        assert_eq!(tree.members().keys().copied().collect::<Vec<_>>(), [7, 200, 300]);
        // An orphan stays a process of the job.
        tree.update(&stats(&[(7, 1), (200, 100)]));
        assert_eq!(tree.members().keys().copied().collect::<Vec<_>>(), [7, 200]);
    }

    #[test]
    fn a_child_that_was_waited_for_counts_once() {
        let mut tree = Tree::new(100);
        step(&mut tree, &[(200, 100), (201, 200)], &[(200, 10), (201, 5)], 15);
        step(&mut tree, &[(200, 100)], &[(200, 16)], 16);
        step(&mut tree, &[(200, 100)], &[(200, 20)], 20);
        // Waited for between the scan and the reading of its counts, before and after those of its parent.
        step(&mut tree, &[(200, 100), (202, 200)], &[(200, 20), (202, 5)], 25);
        step(&mut tree, &[(200, 100), (202, 200)], &[(200, 26)], 26);
        step(&mut tree, &[(200, 100), (203, 200)], &[(200, 26), (203, 5)], 31);
        step(&mut tree, &[(200, 100), (203, 200)], &[(200, 26)], 31);
        step(&mut tree, &[(200, 100)], &[(200, 32)], 32);
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_kept() {
        let mut tree = Tree::new(100);
        step(&mut tree, &[(200, 100), (201, 200)], &[(200, 10), (201, 5)], 15);
        step(&mut tree, &[(200, 100)], &[(200, 12)], 15);
        step(&mut tree, &[(200, 100)], &[(200, 12)], 15);
        step(&mut tree, &[(200, 100)], &[(200, 20)], 23);
    }
}
