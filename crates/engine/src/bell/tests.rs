//! The bell with real threads. `models` has the interleavings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::bell::Bell;

#[test]
fn no_ring_is_lost() {
    // Ping-pong: each side waits for the other's count; a lost wake-up would show as a wait of a minute.
    let (here, there) = (Bell::default(), Bell::default());
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    let listen = |bell: &Bell, count: &AtomicU64, round: u64| {
        while count.load(Ordering::Acquire) < round {
            bell.wait(Duration::from_secs(60), || count.load(Ordering::Acquire) >= round);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=5000 {
                listen(&there, &ping, round);
                pong.store(round, Ordering::Release);
                here.ring();
            }
        });
        for round in 1..=5000 {
            ping.store(round, Ordering::Release);
            there.ring();
            listen(&here, &pong, round);
        }
    });
}

#[test]
fn a_wait_ends_by_itself_and_a_sleeper_is_woken_once() {
    let bell = Bell::default();
    bell.wait(Duration::from_millis(1), || false);
    bell.wait(Duration::from_secs(60), || true);
    assert!(!bell.ring(), "the listener is awake");
    bell.doze(|| false, || assert!(bell.ring() && !bell.ring()));
}
