//! Several members list a data set together. Member 0 keeps the folders that are still to be listed and all records; it
//! deals folders out to the others, which return a record of each. Members exchange messages of bounded size in rounds,
//! while their threads list, so a large folder at one member delays no other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::catalog::{put_varint, take_bytes, take_varint};

use super::journal::FolderRecord;
use super::walk::{FolderWalk, PendingFolder};
use super::{ScanError, SkippedEntries};
use crate::meter;
use crate::stop::Stop;
use crate::world::{Cause, EarlyEnd, Exchange};

/// The largest message of a member in one round.
const CHUNK: usize = 1 << 20;
/// A member with more bytes than this to send is dealt no folders.
const BACKLOG: usize = 4 * CHUNK;
/// How long member 0 waits between two rounds if there is nothing to deal out: longer with many members, all of which
/// take part in a round.
const PERIOD: Duration = Duration::from_millis(5);
const PERIOD_PER_MEMBER: Duration = Duration::from_micros(100);

/// What member 0 has to tell before the others begin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListingOrders {
    pub(super) begun_ns: i64,
    /// Version of the root; `None` if the members have checked in another way that they see the same one.
    pub(super) root_ns: Option<i64>,
    pub(super) suffixes: Vec<Vec<u8>>,
}

impl ListingOrders {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.begun_ns.to_le_bytes().to_vec();
        put_times(&mut out, self.root_ns.as_slice());
        put_varint(&mut out, self.suffixes.len() as u64);
        self.suffixes.iter().for_each(|suffix| put_bytes(&mut out, suffix));
        out
    }

    pub(super) fn decode(world: &dyn Exchange, mut bytes: &[u8]) -> Result<ListingOrders, EarlyEnd> {
        let rest = &mut bytes;
        let mut decode = || {
            let begun_ns = take_time(rest)?;
            let root_ns = take_times(rest)?.first().copied();
            let suffixes = (0..take_varint(rest)?).map(|_| take_name(rest)).collect::<Option<_>>()?;
            Some(ListingOrders { begun_ns, root_ns, suffixes })
        };
        decode().ok_or_else(|| unreadable(world, 0))
    }
}

/// What a member that is not member 0 found and has not sent yet.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Vec<u8>>);

/// The answer of a member about one folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FolderAnswer {
    Listed {
        record: FolderRecord,
        skipped: Box<SkippedEntries>,
    },
    /// It is as in a listing that member 0 has.
    Unchanged {
        path: Vec<u8>,
        mtime_ns: i64,
    },
}

impl FolderAnswer {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            FolderAnswer::Listed { record, skipped } => {
                out.push(0);
                put_bytes(&mut out, &serde_json::to_vec(skipped).unwrap_or_default());
                record.put(&mut out);
            }
            FolderAnswer::Unchanged { path, mtime_ns } => {
                out.push(1);
                out.extend_from_slice(&mtime_ns.to_le_bytes());
                out.extend_from_slice(path);
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<FolderAnswer> {
        let (kind, mut rest) = bytes.split_first()?;
        match kind {
            0 => {
                let skipped = serde_json::from_slice(&take_name(&mut rest)?).ok()?;
                Some(FolderAnswer::Listed { record: FolderRecord::decode(rest)?, skipped })
            }
            1 => Some(FolderAnswer::Unchanged { mtime_ns: take_time(&mut rest)?, path: rest.to_vec() }),
            _ => None,
        }
    }
}

impl Outbox {
    pub(super) fn add(&self, answer: &FolderAnswer) {
        let answer = answer.encode();
        let mut waiting = self.waiting();
        waiting.extend_from_slice(&(answer.len() as u64).to_le_bytes());
        waiting.extend_from_slice(&answer);
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What member 0 has received from another member.
#[derive(Debug, Default)]
struct Inbox {
    /// The beginning of an answer whose rest has not been sent yet.
    bytes: Vec<u8>,
    /// Folders that the member can take.
    room: u64,
}

impl Inbox {
    /// Takes the message of a round, and returns the answers that are complete now.
    fn take(&mut self, mut message: &[u8]) -> Option<Vec<FolderAnswer>> {
        self.room = take_varint(&mut message)?;
        self.bytes.extend_from_slice(message);
        let (mut answers, mut rest) = (Vec::new(), self.bytes.as_slice());
        while let Some((length, more)) = rest.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let Some((answer, more)) = more.split_at_checked(length) else { break };
            answers.push(FolderAnswer::decode(answer)?);
            rest = more;
        }
        let left = rest.len();
        self.bytes.drain(..self.bytes.len() - left);
        Some(answers)
    }
}

/// Takes part in the rounds of a listing until everything is listed.
pub(super) fn exchange(walk: &FolderWalk<'_>, world: &dyn Exchange, stop: &Stop) -> Result<(), ScanError> {
    if world.member() == 0 { lead(walk, world, stop) } else { follow(walk, world, stop) }
}

/// The rounds of member 0.
fn lead(walk: &FolderWalk<'_>, world: &dyn Exchange, stop: &Stop) -> Result<(), ScanError> {
    let mut inboxes: Vec<Inbox> = (0..world.members()).map(|_| Inbox::default()).collect();
    loop {
        if walk.is_ending() {
            return Ok(());
        }
        let mut received: Vec<Option<Vec<FolderAnswer>>> = Vec::new();
        world.gather(&[0], stop, &mut |member, message| {
            let inbox = &mut inboxes[member as usize];
            received.push(inbox.take(message));
        })?;
        for (member, answers) in (0..).zip(received) {
            for answer in answers.ok_or_else(|| unreadable(world, member))? {
                walk.take(answer)?;
            }
        }
        let is_over = walk.is_over();
        let mut message = vec![u8::from(is_over)];
        deal(walk, &mut inboxes, &mut message);
        let is_idle = message.len() == 1;
        world.broadcast(&mut message, stop)?;
        if is_over {
            return Ok(());
        }
        if is_idle {
            meter::pause(PERIOD + PERIOD_PER_MEMBER * world.members() as u32);
        }
    }
}

/// Adds folders for other members to a message, in turn, while there are some and it is not full.
fn deal(walk: &FolderWalk<'_>, inboxes: &mut [Inbox], message: &mut Vec<u8>) {
    let mut dealt = true;
    while dealt {
        dealt = false;
        for (member, inbox) in inboxes.iter_mut().enumerate().skip(1) {
            if inbox.room == 0 || message.len() >= CHUNK {
                continue;
            }
            let Some(folder) = walk.give_away() else { return };
            put_varint(message, member as u64);
            put_bytes(message, &folder.path);
            put_times(message, folder.times.as_deref().unwrap_or_default());
            (inbox.room, dealt) = (inbox.room - 1, true);
        }
    }
}

/// The rounds of any other member.
fn follow(walk: &FolderWalk<'_>, world: &dyn Exchange, stop: &Stop) -> Result<(), ScanError> {
    loop {
        if walk.is_ending() {
            return Ok(());
        }
        let mut message = Vec::new();
        if let Some(outbox) = walk.outbox() {
            let mut waiting = outbox.waiting();
            put_varint(&mut message, if waiting.len() < BACKLOG { walk.room() } else { 0 });
            let most = waiting.len().min(CHUNK);
            message.extend(waiting.drain(..most));
        }
        world.gather(&message, stop, &mut |_, _| {})?;
        let mut orders = Vec::new();
        world.broadcast(&mut orders, stop)?;
        let (is_over, mut rest) = orders.split_first().ok_or_else(|| unreadable(world, 0))?;
        while !rest.is_empty() {
            let (member, folder) = take_folder(&mut rest).ok_or_else(|| unreadable(world, 0))?;
            if member == world.member() {
                walk.add(folder);
            }
        }
        if *is_over == 1 {
            walk.close();
            return Ok(());
        }
    }
}

/// A folder in a message, and the member that lists it.
fn take_folder(rest: &mut &[u8]) -> Option<(u64, PendingFolder)> {
    let member = take_varint(rest)?;
    Some((member, PendingFolder { path: take_name(rest)?, times: Some(take_times(rest)?) }))
}

fn unreadable(world: &dyn Exchange, member: u64) -> EarlyEnd {
    let cause = Cause::Failed("sent a message that cannot be read".to_owned());
    EarlyEnd::new(world.topology(), member, cause)
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_name(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = take_varint(rest)?;
    Some(take_bytes(rest, length)?.to_vec())
}

fn put_times(out: &mut Vec<u8>, times: &[i64]) {
    put_varint(out, times.len() as u64);
    times.iter().for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
}

fn take_times(rest: &mut &[u8]) -> Option<Vec<i64>> {
    (0..take_varint(rest)?).map(|_| take_time(rest)).collect()
}

fn take_time(rest: &mut &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(take_bytes(rest, 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use model::catalog::FolderEncoder;

    use super::*;

    /// Answers arrive whole, whatever the size of the messages.
    #[test]
    fn answers_are_put_together_from_messages() {
        let mut encoder = FolderEncoder::new();
        (0..500).for_each(|i| encoder.push(format!("{i:06}").as_bytes(), i).unwrap());
        let subfolders = vec![b"x".to_vec()];
        let record = FolderRecord { path: b"a".to_vec(), mtime_ns: -5, subfolders, folder: encoder.finish() };
        let mut skipped = SkippedEntries::default();
        skipped.note(super::super::SkipReason::Hidden, b".h\xff");
        let sent = [
            FolderAnswer::Listed { record, skipped: Box::new(skipped) },
            FolderAnswer::Unchanged { path: b"b/\xff".to_vec(), mtime_ns: 7 },
        ];
        let outbox = Outbox::default();
        sent.iter().for_each(|answer| outbox.add(answer));
        let all = std::mem::take(&mut *outbox.waiting());
        for size in [1, 7, 100, all.len()] {
            let mut inbox = Inbox::default();
            let chunks = all.chunks(size);
            let taken: Vec<FolderAnswer> =
                chunks.flat_map(|chunk| inbox.take(&[&[3], chunk].concat()).unwrap()).collect();
            assert_eq!((taken.as_slice(), inbox.bytes.len(), inbox.room), (sent.as_slice(), 0, 3));
        }
    }

    #[test]
    fn orders_are_read_back() {
        let world = crate::world::Solo::new();
        for root_ns in [None, Some(-3)] {
            let orders = ListingOrders { begun_ns: -9, root_ns, suffixes: vec![b".a".to_vec(), Vec::new()] };
            assert_eq!(ListingOrders::decode(&world, &orders.encode()).unwrap(), orders);
        }
        ListingOrders::decode(&world, &[1, 2]).unwrap_err();
    }
}
