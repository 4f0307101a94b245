//! Which checkpoints are on the tiers, as all members of a run see it together. On a fast tier, every host holds the
//! files of its own ranks, and the manifest of the whole checkpoint. A checkpoint is complete there if the hosts of
//! this run hold all its files, whichever hosts and processes wrote them.

use std::collections::BTreeMap;

use model::checkpoint::manifest::Moment;
use serde::{Deserialize, Serialize};
use store::{StoredCheckpoint, Tier};

use super::members::StepError;
use super::{CheckpointError, Checkpointer};
use crate::world::Exchange;

/// A checkpoint with a manifest on a tier. The serial orders checkpoints, and the digest is that of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenCheckpoint {
    pub(super) moment: Moment,
    pub(super) serial: u64,
    digest: u32,
    /// Whether this run could restore it.
    pub(super) is_ours: bool,
    /// Number of files that the manifest lists.
    count: u64,
    /// The places of the files that are here: beginnings and ends of ranges.
    here: Vec<(u64, u64)>,
}

impl SeenCheckpoint {
    fn has(&self, place: u64) -> bool {
        self.here.iter().any(|(begin, end)| (*begin..*end).contains(&place))
    }

    /// Whether another tier has the same checkpoint.
    pub(super) fn is_same(&self, other: &SeenCheckpoint) -> bool {
        (self.moment, self.serial, self.digest) == (other.moment, other.serial, other.digest)
    }

    /// Whether it is this checkpoint.
    pub(super) fn is_of(&self, stored: &StoredCheckpoint) -> bool {
        (self.moment, self.serial, self.digest)
            == (stored.manifest.moment, stored.manifest.serial, digest(stored))
    }
}

fn digest(stored: &StoredCheckpoint) -> u32 {
    crc32fast::hash(stored.manifest.to_text().as_bytes())
}

/// A checkpoint on the fast tiers of one or more hosts: what each of them has of it, by the member that reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpreadCheckpoint {
    pub(super) parts: Vec<(u64, SeenCheckpoint)>,
}

impl SpreadCheckpoint {
    /// The description that all parts share.
    pub(super) fn seen(&self) -> &SeenCheckpoint {
        &self.parts[0].1
    }

    /// The member that reported a file.
    pub(super) fn holder(&self, place: u64) -> Option<u64> {
        self.parts.iter().find(|(_, part)| part.has(place)).map(|(member, _)| *member)
    }

    /// Whether a member reported this file.
    pub(super) fn is_at(&self, member: u64, place: u64) -> bool {
        self.parts.iter().any(|(holder, part)| *holder == member && part.has(place))
    }

    /// Number of files that no host has.
    pub(super) fn missing(&self) -> u64 {
        (0..self.seen().count).filter(|place| self.holder(*place).is_none()).count() as u64
    }

    pub(super) fn is_whole(&self) -> bool {
        (0..self.seen().count).all(|place| self.holder(place).is_some())
    }
}

/// What is on the tiers, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TierSurvey {
    pub(super) fast: Vec<SpreadCheckpoint>,
    pub(super) last: Vec<SeenCheckpoint>,
}

impl TierSurvey {
    /// All checkpoints that are complete on any tier.
    pub(super) fn complete(&self) -> impl Iterator<Item = &SeenCheckpoint> {
        let on_fast = self.fast.iter().filter(|spread| spread.is_whole()).map(SpreadCheckpoint::seen);
        on_fast.chain(&self.last)
    }
}

impl Checkpointer<'_> {
    /// Looks for all checkpoints, or those of one moment, at all members. With `counts_files`, a file of a checkpoint
    /// counts as present on a fast tier only if it is there; otherwise the manifest is believed.
    pub(super) fn survey(
        &self,
        line: &dyn Exchange,
        moment: Option<Moment>,
        counts_files: bool,
    ) -> Result<TierSurvey, StepError> {
        let see = |tier: &dyn Tier, counts_files| -> Result<Vec<SeenCheckpoint>, CheckpointError> {
            let found = match moment {
                Some(moment) => tier.find(moment)?.into_iter().collect(),
                None => tier.list()?,
            };
            found.iter().map(|stored| self.see(tier, stored, counts_files)).collect()
        };
        let fast = self.setup.fast.filter(|_| self.fast_sharers.leads());
        let here = || {
            let fast = fast.map_or(Ok(Vec::new()), |fast| see(fast, counts_files))?;
            let is_first = line.member() == 0;
            Ok((fast, if is_first { see(self.setup.last, false)? } else { Vec::new() }))
        };
        let mut all = self.combine(line, here())?;
        let mut last = all.first_mut().map_or(Vec::new(), |(_, last)| std::mem::take(last));
        last.sort_by_key(|seen| seen.serial);
        let mut spread: BTreeMap<(u64, Moment, u32), SpreadCheckpoint> = BTreeMap::new();
        for (member, (parts, _)) in (0..).zip(all) {
            for part in parts {
                let of = spread.entry((part.serial, part.moment, part.digest));
                of.or_insert_with(|| SpreadCheckpoint { parts: Vec::new() }).parts.push((member, part));
            }
        }
        Ok(TierSurvey { fast: spread.into_values().collect(), last })
    }

    fn see(
        &self,
        tier: &dyn Tier,
        stored: &StoredCheckpoint,
        counts_files: bool,
    ) -> Result<SeenCheckpoint, CheckpointError> {
        let (manifest, count) = (&stored.manifest, stored.manifest.files.len() as u64);
        let here = if counts_files { ranges(&tier.present(stored)?) } else { vec![(0, count)] };
        Ok(SeenCheckpoint {
            moment: manifest.moment,
            serial: manifest.serial,
            digest: digest(stored),
            is_ours: self.is_ours(manifest),
            count,
            here,
        })
    }
}

/// The ranges of places that are `true`.
fn ranges(present: &[bool]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (place, _) in (0..).zip(present).filter(|(_, is_here)| **is_here) {
        match ranges.last_mut() {
            Some((_, end)) if *end == place => *end += 1,
            _ => ranges.push((place, place + 1)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_if_they_hold_every_file() {
        let part = |present: &[bool]| SeenCheckpoint {
            moment: Moment { epoch: 1, step: 1 },
            serial: 1,
            digest: 7,
            is_ours: true,
            count: present.len() as u64,
            here: ranges(present),
        };
        let first = (0, part(&[true, true, false, false, true]));
        let of = |second: &[bool]| SpreadCheckpoint { parts: vec![first.clone(), (3, part(second))] };
        assert_eq!(first.1.here, [(0, 2), (4, 5)]);
        let whole = of(&[false, true, true, true, false]);
        assert!(whole.is_whole() && whole.missing() == 0);
        let holders: Vec<_> = (0..5).map(|place| whole.holder(place).unwrap()).collect();
        assert_eq!(holders, [0, 0, 3, 3, 0], "each file has one holder");
        assert!(whole.is_at(3, 1) && !whole.is_at(3, 0));
        let partial = of(&[false, false, true, false, false]);
        assert!(!partial.is_whole() && partial.missing() == 1);
    }
}
