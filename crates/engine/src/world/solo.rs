//! All ranks in one process: there is no other member to wait for.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::units::Nanos;

use super::{Barrier, Cause, ClockOffset, EarlyEnd, World};
use crate::meter::{self, Clock};
use crate::stop::Stop;

/// A run in one process.
#[derive(Debug)]
pub struct Solo {
    ranks: u64,
    /// When the last barrier was released. Relaxed: `arrive` and `released` are called by one thread at a time.
    released: AtomicU64,
}

impl Solo {
    pub fn new(ranks: u64) -> Solo {
        Solo { ranks, released: AtomicU64::new(0) }
    }
}

impl World for Solo {
    fn members(&self) -> u64 {
        1
    }

    fn member(&self) -> u64 {
        0
    }

    fn node(&self) -> u64 {
        0
    }

    fn ranks(&self) -> Range<u64> {
        0..self.ranks
    }

    fn arrive(&self, _: Barrier, last_here: Nanos) {
        self.released.store(last_here.0, Ordering::Relaxed);
    }

    fn released(&self) -> Option<Nanos> {
        Some(Nanos(self.released.load(Ordering::Relaxed)))
    }

    fn wait(&self, _: &Stop, timeout: Duration) -> Result<(), EarlyEnd> {
        meter::pause(timeout);
        Ok(())
    }

    fn wake(&self) {}

    fn announce(&self, _: Cause) {}

    fn agree(&self, here: Result<(), Cause>, _: &Stop) -> Result<(), EarlyEnd> {
        here.map_err(|cause| EarlyEnd { member: 0, cause })
    }

    fn broadcast(&self, _: &mut Vec<u8>, _: &Stop) -> Result<(), EarlyEnd> {
        Ok(())
    }

    fn gather(&self, bytes: &[u8], _: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        take(0, bytes);
        Ok(())
    }

    fn synchronize(&self, _: &dyn Clock, _: &Stop) -> Result<ClockOffset, EarlyEnd> {
        Ok(ClockOffset::default())
    }
}
