//! Passes within an epoch: a sampler that never ends goes through all places again and again. Places that are drawn
//! again at random, or one block for each of its samples, are no passes.

use std::collections::HashSet;

/// The fewest places of a pass.
const FEWEST: usize = 8;
/// Places that come again in a row: this part of all begins a pass.
const RUN: usize = 8;
/// This part of the places may come again within a pass: workers are not equally far.
const WITHIN: usize = 4;

/// The places of the pass that runs.
#[derive(Debug, Default)]
pub(super) struct PassCount {
    seen: HashSet<u64>,
    /// Places that came again, one after the other.
    run: Vec<u64>,
    again: usize,
    last: u64,
    ended: u64,
}

impl PassCount {
    pub(super) fn visit(&mut self, place: u64) {
        if self.last == place {
            return;
        }
        self.last = place;
        if self.seen.insert(place) {
            self.again += self.run.len();
            self.run.clear();
            return;
        }
        self.run.push(place);
        let all = self.seen.len();
        let begins = all >= FEWEST && self.run.len() > (all / RUN).max(FEWEST / 2);
        if begins && self.again <= all / WITHIN {
            self.ended += 1;
            self.again = 0;
            self.seen = self.run.drain(..).collect();
        }
    }

    /// Drops places that a smaller sample does not have.
    pub(super) fn thin(&mut self, is_kept: impl Fn(&u64) -> bool) {
        self.seen.retain(&is_kept);
        self.run.retain(&is_kept);
    }

    /// Passes, begun ones included.
    pub(super) fn passes(&self) -> u64 {
        self.ended + u64::from(!self.seen.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::file_hash;

    /// `times` orders of `count` places, each shuffled.
    fn shuffled(count: u64, times: u64) -> impl Iterator<Item = u64> {
        (0..times).flat_map(move |time| {
            let mut order: Vec<u64> = (0..count).collect();
            order.sort_by_key(|place| file_hash(place * 31 + time));
            order
        })
    }

    fn passes(places: impl Iterator<Item = u64>) -> u64 {
        let mut count = PassCount::default();
        places.for_each(|place| count.visit(place));
        count.passes()
    }

    #[test]
    fn passes_of_a_sampler_that_never_ends() {
        assert_eq!(passes(shuffled(300, 4)), 4);
        assert_eq!(passes(shuffled(20, 3)), 3);
        assert_eq!(passes(0..500), 1);
        assert_eq!(passes(std::iter::empty()), 0);
    }

    #[test]
    fn random_places_are_no_passes() {
        // Each place 12 times, in one shuffled order; and drawn with replacement.
        let mut order: Vec<u64> = (0..480).collect();
        order.sort_by_key(|place| file_hash(*place));
        assert_eq!(passes(order.iter().map(|place| place % 40)), 1);
        assert_eq!(passes((0..2000).map(|number| file_hash(number) % 400)), 1);
        assert_eq!(passes((0..2000).map(|number| number / 50)), 1, "neighbours");
    }
}
