//! The thread of a member that tells the peers that the process is alive, receives messages while no other thread
//! waits for any, and ends the process if it does not notice that the run has ended.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::units::Nanos;
use store::Now;

use super::wire::ClusterMessage;
use super::{Connections, lock};
use crate::figures::LiveFigures;

/// Time between two signs of life, unless the stall timeout is shorter.
const BEAT: Nanos = Nanos(1_000_000_000);
const SHORTEST_BEAT: Nanos = Nanos(10_000_000);
/// How long this thread leaves the receiving to others before it looks again whether one of them does.
const ASIDE: Duration = Duration::from_millis(50);
/// How long after the end of the run this member's work is asked to stop, and then given up. Work that waits for others
/// notices the end at once; a transfer in the background does not. A launcher may end all processes a second after the
/// first one, so the work must have stopped by then.
const UNNOTICED: Nanos = Nanos(200_000_000);
const GIVEN_UP: Nanos = Nanos(10_000_000_000);

impl Connections {
    /// Works until the membership ends.
    pub(super) fn beat(&self) {
        let mut last = None;
        while !self.closing.load(Ordering::Relaxed) {
            let (now, period) = (self.clock.now(), self.period());
            if last.is_none_or(|last| now.since(last) >= period) {
                // Only member 0 uses the figures of others.
                let figures = if self.member == 0 { LiveFigures::default() } else { lock(&self.own).clone() };
                self.send_to_peers(&ClusterMessage::Beat(Box::new(figures)));
                last = Some(now);
            }
            let has_ended = self.end_unnoticed(now);
            let next = last.unwrap_or_default() + period;
            let rest = Duration::from_nanos(next.since(self.clock.now()).0);
            let rest = if has_ended { rest.min(ASIDE) } else { rest };
            // SeqCst: see `receive_or_wait`.
            self.rests.store(true, Ordering::SeqCst);
            let free = self.incoming.try_lock().ok().filter(|_| self.wanting.load(Ordering::SeqCst) == 0);
            match free {
                Some(incoming) => {
                    self.receive(incoming, rest);
                    self.rests.store(false, Ordering::SeqCst);
                }
                None => {
                    self.rests.store(false, Ordering::SeqCst);
                    let state = lock(&self.state);
                    let _ = self.changed.wait_timeout_while(state, rest.min(ASIDE), |_| {
                        !self.closing.load(Ordering::Relaxed)
                    });
                }
            }
        }
    }

    /// A quarter of the stall timeout, but no more than a second.
    fn period(&self) -> Nanos {
        let patience = lock(&self.state).patience;
        patience.map_or(BEAT, |patience| Nanos(patience.0 / 4).clamp(SHORTEST_BEAT, BEAT))
    }

    /// If this member's work does not notice that the run has ended, it is asked to stop. If that does not help,
    /// because it waits for storage that does not respond, it is given up. Returns whether the run has ended.
    pub(super) fn end_unnoticed(&self, now: Nanos) -> bool {
        let state = lock(&self.state);
        let Some(ended) = state.ended.as_ref().filter(|_| !state.concludes) else { return false };
        let since = now.since(state.ended_at);
        let text = ended.to_string();
        drop(state);
        if since >= UNNOTICED {
            self.stop.end_here();
        }
        if since >= GIVEN_UP {
            self.stop.abandon(&text);
        }
        true
    }
}
