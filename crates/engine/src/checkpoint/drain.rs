//! Draining: a checkpoint goes from the fast tier to the last one in the background, at a limited rate if that is
//! wanted, and is removed from the fast tier when it is complete on the other.

use std::sync::Mutex;
use std::sync::PoisonError;

use model::checkpoint::manifest::{Entry, Manifest, Moment};
use model::names::Name;
use model::units::Nanos;
use store::{Buffer, Source, Tier};

use super::files::{self, Crew, Hands, Item};
use super::{CheckpointError, Keeper, tiers};

/// How often a drain is tried before the next checkpoint gets its turn, and how long a pause there is in between.
const ATTEMPTS: u32 = 5;
const PAUSE: Nanos = Nanos(500_000_000);

impl Keeper<'_> {
    /// Brings a checkpoint to the last tier. One that cannot be brought stays on the fast tier, complete, and keeps its
    /// slot; the next run tries again.
    pub(super) fn drain(&self, moment: Moment) {
        let Some(fast) = self.setup.fast else { return };
        for attempt in 1..=ATTEMPTS {
            match self.try_drain(fast, moment) {
                Ok(()) => {
                    let mut state = self.state();
                    state.undrained -= 1;
                    state.drain_failure = None;
                    drop(state);
                    if let Err(cause) = self.retain() {
                        self.note(moment, |saved| saved.troubles.push(cause.to_string()));
                    }
                    return;
                }
                Err(CheckpointError::Interrupted) => return,
                Err(cause) => {
                    let text = format!("drain, attempt {attempt} of {ATTEMPTS}: {cause}");
                    self.note(moment, |saved| saved.troubles.push(text));
                    if attempt == ATTEMPTS {
                        self.state().drain_failure = Some(cause.to_string());
                        return;
                    }
                    let until = self.now() + PAUSE;
                    self.setup.clock.sleep_until(until, &|| self.setup.stop.wished());
                }
            }
        }
    }

    fn try_drain(&self, fast: &dyn Tier, moment: Moment) -> Result<(), CheckpointError> {
        let began = self.now();
        let Some(manifest) = tiers::complete(fast, moment)? else {
            return Err(CheckpointError::None(fast.shown(&Name::new(&moment.folder()).unwrap_or_default())));
        };
        let last = self.setup.last;
        tiers::begin(last, moment)?;
        let (crew, items) = (self.crew(), listed(&manifest));
        let pace = Pace::new(self.setup.plan.drain_bytes_per_second, began);
        let ended = crew.each(&items, |item, hands| copy(&crew, [fast, last], item, moment, &pace, hands))?;
        tiers::finish(last, &manifest)?;
        let reckoned = ended.iter().map(|end| end.at).max().unwrap_or(began);
        let end = if last.holds_files() { self.now() } else { reckoned };
        self.completed(moment, false, |saved| {
            saved.drain_ns = Some(end.since(began));
            saved.durable_ns = Some(end.since(saved.began));
        });
        let mut state = self.state();
        while state.restoring > 0 && !self.setup.stop.wished() {
            state = self.wait(state);
        }
        // One that somebody is still reading is removed by the next run.
        if state.restoring > 0 {
            return Ok(());
        }
        drop(state);
        tiers::remove(fast, moment)
    }
}

/// The files of a checkpoint as its manifest lists them.
pub(super) fn listed(manifest: &Manifest) -> Vec<Item> {
    let entries = manifest.files.iter().zip(0..);
    let items = entries.map(|(entry, number)| {
        let Entry { name, rank, bytes, crc32 } = entry.clone();
        Item { number, rank, name, bytes, crc32: Some(crc32) }
    });
    items.collect()
}

/// Copies a file; the copy counts only if its checksum is the one that was written down when it was saved.
fn copy(
    crew: &Crew<'_>,
    [from, to]: [&dyn Tier; 2],
    item: &Item,
    moment: Moment,
    pace: &Pace,
    hands: &mut Hands,
) -> Result<(Nanos, u32), CheckpointError> {
    let path = item.path(moment);
    let mut source = from.open(&path, crew.clock.as_now())?;
    let mut read = |chunk: &mut Buffer, len: usize| read_exactly(&mut *source, from, &path, item, chunk, len);
    let (end, crc32) = files::write(crew, to, &path, item.bytes, true, hands, |_, chunk, len| {
        read(chunk, len)?;
        pace.wait(len as u64, crew);
        Ok(())
    })?;
    match item.crc32 {
        Some(listed) if from.holds_files() && to.holds_files() && listed != crc32 => {
            Err(CheckpointError::Checksum(from.shown(&path)))
        }
        listed => Ok((end, listed.unwrap_or(crc32))),
    }
}

/// The next `len` bytes of a file.
fn read_exactly(
    source: &mut dyn Source,
    tier: &dyn Tier,
    path: &Name,
    item: &Item,
    chunk: &mut Buffer,
    len: usize,
) -> Result<(), CheckpointError> {
    source.read(chunk)?;
    match chunk.bytes().len() {
        there if there >= len => Ok(()),
        there => Err(CheckpointError::Size {
            name: tier.shown(path),
            there: item.bytes - (len - there) as u64,
            listed: item.bytes,
        }),
    }
}

/// Holds a drain to its rate.
struct Pace {
    rate: Option<u64>,
    began: Nanos,
    bytes: Mutex<u64>,
}

impl Pace {
    fn new(rate: Option<u64>, began: Nanos) -> Pace {
        Pace { rate, began, bytes: Mutex::new(0) }
    }

    /// Waits until so many bytes more are allowed.
    fn wait(&self, bytes: u64, crew: &Crew<'_>) {
        let Some(rate) = self.rate else { return };
        let mut sent = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.began + Nanos((u128::from(*sent) * 1_000_000_000 / u128::from(rate)) as u64);
        *sent += bytes;
        drop(sent);
        crew.clock.sleep_until(due, &|| crew.stop.wished());
    }
}
