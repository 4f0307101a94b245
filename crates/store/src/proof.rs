//! What a lane asks of the page cache around a fetch: how many of its pages are in memory right before they are read,
//! and that they be given back afterwards. Both lanes, blocking and asynchronous, ask through here.

use model::extent::Extent;
use model::order::mix;
use rustix::fd::BorrowedFd;

use crate::page_cache::{self, Pages};

/// Whether and how the pages of fetches are looked after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Of so many fetches one, drawn at random, has its pages counted; 0: none has.
    pub counts_one_in: u64,
    /// Of the draw.
    pub seed: u64,
    /// Whether pages are given back once they were read.
    pub gives_back: bool,
}

/// What is known of the pages of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probe {
    /// Nobody asked.
    #[default]
    Unasked,
    /// It was not drawn.
    LeftOut,
    /// The kernel did not say.
    Refused,
    Counted(Pages),
}

/// Does what a proof asks for, fetch by fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prover {
    proof: Proof,
    fetches: u64,
}

impl Prover {
    pub(crate) fn new(proof: Proof) -> Prover {
        Prover { proof, fetches: 0 }
    }

    /// Whether it will ever look at a file.
    pub(crate) fn looks(&self) -> bool {
        self.proof != Proof { counts_one_in: 0, gives_back: false, ..self.proof }
    }

    /// Draws the next fetch: whether its pages are to be counted, or what is known of them without.
    pub(crate) fn draw(&mut self) -> Option<Probe> {
        self.fetches += 1;
        match self.proof.counts_one_in {
            0 => Some(Probe::Unasked),
            one_in if !mix(self.proof.seed, self.fetches).is_multiple_of(one_in) => Some(Probe::LeftOut),
            _ => None,
        }
    }

    /// Counts the pages of all ranges before the first is read: read-ahead of one brings those of the next.
    pub(crate) fn count(file: BorrowedFd<'_>, ranges: &[Extent]) -> Probe {
        let mut sum = Pages::default();
        for range in ranges {
            match page_cache::count(file, *range) {
                Some(pages) => sum += pages,
                None => return Probe::Refused,
            }
        }
        Probe::Counted(sum)
    }

    pub(crate) fn gives_back(&self) -> bool {
        self.proof.gives_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts_one_in: u64, seed: u64) -> Vec<bool> {
        let mut prover = Prover::new(Proof { counts_one_in, seed, gives_back: false });
        (0..16_000).map(|_| prover.draw().is_none()).collect()
    }

    #[test]
    fn a_sample_is_random_and_the_whole_is_whole() {
        let count = |drawn: Vec<bool>| drawn.into_iter().filter(|drawn| *drawn).count();
        assert_eq!((count(drawn(0, 1)), count(drawn(1, 1))), (0, 16_000));
        let some = count(drawn(16, 1));
        // The deviation of that binomial is 31.
        assert!((850..1150).contains(&some), "{some}");
        assert_ne!(drawn(16, 1), drawn(16, 2));
    }

    #[test]
    fn one_who_asks_for_nothing_is_left_alone() {
        for (proof, looks) in [
            (Proof::default(), false),
            (Proof { seed: 5, ..Proof::default() }, false),
            (Proof { counts_one_in: 1, ..Proof::default() }, true),
            (Proof { gives_back: true, ..Proof::default() }, true),
        ] {
            assert_eq!(Prover::new(proof).looks(), looks, "{proof:?}");
        }
    }
}
