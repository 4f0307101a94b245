//! The messages between members, as bytes. Those of a step are a few numbers; the others are rare.

use model::ledger::Phase;
use model::units::Nanos;

use super::super::{Barrier, EarlyEnd};
use crate::figures::LiveFigures;

/// Bytes of a message's length, which precedes it.
const LENGTH_BYTES: usize = 8;

/// A collective call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectiveKind {
    Agree = 0,
    Broadcast = 1,
    Gather = 2,
}

impl CollectiveKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            CollectiveKind::Agree => "agree",
            CollectiveKind::Broadcast => "broadcast",
            CollectiveKind::Gather => "gather",
        }
    }

    fn from_byte(byte: u8) -> Option<CollectiveKind> {
        [CollectiveKind::Agree, CollectiveKind::Broadcast, CollectiveKind::Gather]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A collective call of one of the two sequences, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallNumber {
    pub(super) line: u8,
    pub(super) round: u64,
}

/// Messages to member 0 and from it; there are no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterMessage {
    /// The sender is alive, and this is what it has done.
    Beat(Box<LiveFigures>),
    /// To member 0: all ranks of the sender have reached a barrier. The last is done at `last`, and the message was
    /// sent at `posted`; both on member 0's clock.
    Arrive {
        barrier: Barrier,
        last: Nanos,
        posted: Nanos,
    },
    /// From member 0: all members have arrived, the last one at `posted`. The barrier is released at `at`.
    Release {
        barrier: Barrier,
        at: Nanos,
        posted: Nanos,
    },
    /// To member 0: the sender has made a collective call.
    Call {
        number: CallNumber,
        kind: CollectiveKind,
    },
    /// From member 0: all members have made the call. The bytes are those of a broadcast.
    Answer {
        number: CallNumber,
        bytes: Vec<u8>,
    },
    /// From member 0: it is the receiver's turn to send its bytes of a `gather`; and these bytes.
    Ask(CallNumber),
    Part {
        number: CallNumber,
        bytes: Vec<u8>,
    },
    /// To member 0: the sender ends. From member 0: all members end.
    Ended(EarlyEnd),
    /// To member 0, which answers with the clock of its connections and its wall clock.
    Ping(u64),
    Pong {
        number: u64,
        clock: Nanos,
        wall: Nanos,
    },
    /// To member 0: the sender's exit code. From member 0: the exit code of all.
    Code(u8),
}

impl ClusterMessage {
    /// The message with its length.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH_BYTES];
        match self {
            ClusterMessage::Beat(figures) => write_json(&mut bytes, 0, figures),
            ClusterMessage::Arrive { barrier, last, posted } => {
                bytes.push(1);
                write_barrier(&mut bytes, barrier, [*last, *posted]);
            }
            ClusterMessage::Release { barrier, at, posted } => {
                bytes.push(2);
                write_barrier(&mut bytes, barrier, [*at, *posted]);
            }
            ClusterMessage::Call { number, kind } => {
                bytes.push(3);
                write_number(&mut bytes, *number);
                bytes.push(*kind as u8);
            }
            ClusterMessage::Answer { number, bytes: given } => {
                bytes.push(4);
                write_number(&mut bytes, *number);
                bytes.extend_from_slice(given);
            }
            ClusterMessage::Ask(number) => {
                bytes.push(5);
                write_number(&mut bytes, *number);
            }
            ClusterMessage::Part { number, bytes: given } => {
                bytes.push(6);
                write_number(&mut bytes, *number);
                bytes.extend_from_slice(given);
            }
            ClusterMessage::Ended(ended) => write_json(&mut bytes, 7, ended),
            ClusterMessage::Ping(number) => {
                bytes.push(8);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            ClusterMessage::Pong { number, clock, wall } => {
                bytes.push(9);
                [*number, clock.0, wall.0].iter().for_each(|one| bytes.extend_from_slice(&one.to_le_bytes()));
            }
            ClusterMessage::Code(code) => bytes.extend_from_slice(&[10, *code]),
        }
        let length = (bytes.len() - LENGTH_BYTES) as u64;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<ClusterMessage> {
        let (kind, rest) = bytes.split_first()?;
        let mut rest = MessageBytes(rest);
        Some(match kind {
            0 => ClusterMessage::Beat(serde_json::from_slice(rest.0).ok()?),
            1 => {
                let (barrier, [last, posted]) = rest.barrier()?;
                ClusterMessage::Arrive { barrier, last, posted }
            }
            2 => {
                let (barrier, [at, posted]) = rest.barrier()?;
                ClusterMessage::Release { barrier, at, posted }
            }
            3 => {
                let number = rest.call()?;
                ClusterMessage::Call { number, kind: CollectiveKind::from_byte(rest.byte()?)? }
            }
            4 => ClusterMessage::Answer { number: rest.call()?, bytes: rest.0.to_vec() },
            5 => ClusterMessage::Ask(rest.call()?),
            6 => ClusterMessage::Part { number: rest.call()?, bytes: rest.0.to_vec() },
            7 => ClusterMessage::Ended(serde_json::from_slice(rest.0).ok()?),
            8 => ClusterMessage::Ping(rest.number()?),
            9 => {
                let (number, clock) = (rest.number()?, Nanos(rest.number()?));
                ClusterMessage::Pong { number, clock, wall: Nanos(rest.number()?) }
            }
            10 => ClusterMessage::Code(rest.byte()?),
            _ => return None,
        })
    }
}

fn write_json(bytes: &mut Vec<u8>, kind: u8, value: &impl serde::Serialize) {
    bytes.push(kind);
    // Only a value that cannot be JSON fails here; the receiver then refuses the message.
    let _ = serde_json::to_writer(bytes, value);
}

fn write_number(bytes: &mut Vec<u8>, CallNumber { line, round }: CallNumber) {
    bytes.push(line);
    bytes.extend_from_slice(&round.to_le_bytes());
}

fn write_barrier(bytes: &mut Vec<u8>, barrier: &Barrier, times: [Nanos; 2]) {
    let Barrier { epoch, phase, step, checkpoint } = barrier;
    bytes.extend_from_slice(&[u8::from(*phase == Phase::Eval), u8::from(*checkpoint)]);
    for number in [*epoch, *step, times[0].0, times[1].0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// The bytes of a message that have not been read.
struct MessageBytes<'a>(&'a [u8]);

impl MessageBytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn call(&mut self) -> Option<CallNumber> {
        Some(CallNumber { line: self.byte()?, round: self.number()? })
    }

    fn barrier(&mut self) -> Option<(Barrier, [Nanos; 2])> {
        let phase = if self.byte()? == 0 { Phase::Train } else { Phase::Eval };
        let checkpoint = self.byte()? != 0;
        let (epoch, step) = (self.number()?, self.number()?);
        let times = [Nanos(self.number()?), Nanos(self.number()?)];
        Some((Barrier { epoch, phase, step, checkpoint }, times))
    }
}

/// The bytes that were received from one member and are not a complete message yet.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAMessage;

impl Incoming {
    /// Adds bytes, and calls `take` with each message that is complete.
    pub(super) fn add(
        &mut self,
        more: &[u8],
        mut take: impl FnMut(ClusterMessage),
    ) -> Result<(), NotAMessage> {
        self.bytes.extend_from_slice(more);
        let mut start = 0;
        while let Some((length, rest)) = self.bytes[start..].split_first_chunk::<LENGTH_BYTES>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| NotAMessage)?;
            let Some(message) = rest.get(..length) else { break };
            take(ClusterMessage::decode(message).ok_or(NotAMessage)?);
            start += LENGTH_BYTES + length;
        }
        self.bytes.drain(..start);
        // A large message is rare; its memory is not kept.
        if self.bytes.is_empty() {
            self.bytes.shrink_to(1 << 12);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Cause;
    use super::*;
    use crate::figures::{Progress, RankProgress};

    fn all() -> Vec<ClusterMessage> {
        let barrier = Barrier { epoch: 3, phase: Phase::Eval, step: u64::MAX, checkpoint: true };
        let number = CallNumber { line: 1, round: 77 };
        let place = Some(barrier);
        let ended = EarlyEnd { member: 2, node: "c07".to_owned(), cause: Cause::Silent(Nanos(5)), place };
        vec![
            ClusterMessage::Beat(Box::new(LiveFigures {
                totals: Progress { samples: 9, compute: Nanos(4), ..Progress::default() },
                ranks: vec![RankProgress { rank: 1, ..RankProgress::default() }],
                rank_count: 1,
                ended: true,
            })),
            ClusterMessage::Arrive { barrier, last: Nanos(1), posted: Nanos(2) },
            ClusterMessage::Release { barrier, at: Nanos(3), posted: Nanos(4) },
            ClusterMessage::Call { number, kind: CollectiveKind::Gather },
            ClusterMessage::Answer { number, bytes: vec![1, 2, 3] },
            ClusterMessage::Ask(number),
            ClusterMessage::Part { number, bytes: vec![7; 100_000] },
            ClusterMessage::Ended(ended),
            ClusterMessage::Ping(5),
            ClusterMessage::Pong { number: 5, clock: Nanos(6), wall: Nanos(7) },
            ClusterMessage::Code(4),
        ]
    }

    #[test]
    fn messages_arrive_whole_however_the_bytes_are_cut() {
        let bytes: Vec<u8> = all().iter().flat_map(ClusterMessage::encode).collect();
        for piece in [1, 7, 1000, bytes.len()] {
            let (mut incoming, mut seen) = (Incoming::default(), Vec::new());
            bytes.chunks(piece).for_each(|some| incoming.add(some, |one| seen.push(one)).unwrap());
            assert_eq!(seen, all(), "{piece} bytes at a time");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&[1, 0, 0, 0, 0, 0, 0, 0, 99][..], &[2, 0, 0, 0, 0, 0, 0, 0, 1, 1], &[0; 8]] {
            assert_eq!(Incoming::default().add(bytes, |_| ()), Err(NotAMessage), "{bytes:?}");
        }
    }
}
