//! All ranks in one process: there is no other member to wait for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::ledger::{Agreement, ClockReading};
use model::units::Nanos;

use super::{Barrier, Cause, EarlyEnd, Exchange, Topology, World};
use crate::figures::LiveFigures;
use crate::host;
use crate::meter::{self, Clock};
use crate::stop::Stop;

/// A run in one process.
#[derive(Debug)]
pub struct Solo {
    topology: Topology,
    /// When the last barrier was released. Relaxed: `arrive` and `released` are called by one thread at a time.
    released: AtomicU64,
}

impl Solo {
    #[expect(clippy::new_without_default, reason = "`new` reads the name of the host; a default should not")]
    pub fn new() -> Solo {
        Solo { topology: Topology::solo(&host::name()), released: AtomicU64::new(0) }
    }
}

impl Exchange for Solo {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn member(&self) -> u64 {
        0
    }

    fn announce(&self, _: Cause) {}

    fn agree(&self, here: Result<(), Cause>, _: &Stop) -> Result<(), EarlyEnd> {
        here.map_err(|cause| EarlyEnd::new(&self.topology, 0, cause))
    }

    fn broadcast(&self, _: &mut Vec<u8>, _: &Stop) -> Result<(), EarlyEnd> {
        Ok(())
    }

    fn gather(&self, bytes: &[u8], _: &Stop, take: &mut dyn FnMut(u64, &[u8])) -> Result<(), EarlyEnd> {
        take(0, bytes);
        Ok(())
    }
}

impl World for Solo {
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

    fn synchronize(&self, _: &dyn Clock, _: &Stop) -> Result<ClockReading, EarlyEnd> {
        Ok(ClockReading::default())
    }

    fn background(&self) -> &dyn Exchange {
        self
    }

    fn publish(&self, _: LiveFigures) {}

    fn figures(&self) -> Vec<(u64, LiveFigures)> {
        Vec::new()
    }

    fn take_agreement(&self) -> Vec<(u64, Agreement)> {
        Vec::new()
    }

    fn transport(&self) -> Option<String> {
        None
    }
}
