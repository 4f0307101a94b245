//! The page cache around the runs of a stall analysis: emptied of the files that are read before the cold run, and
//! looked at before each. What cannot be checked is called unverified.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::meter;
use model::names::Name;
use model::units::grouped;
use serde::Serialize;
use store::page_cache::{PageCache, Pages};

use crate::commands::stage::Stage;
use crate::exit::Failure;

/// The state of the cache before a run, in words, and whether that is what the run needs.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    pub verified: bool,
    pub evidence: String,
}

/// The share of pages or bytes in the wrong place that does not matter.
pub const TOLERATED: f64 = 0.01;
/// Pages that were just in use leave a moment later, so that one is patient.
const ATTEMPTS: usize = 4;
const PATIENCE: Duration = Duration::from_millis(50);

/// The files that a run reads, and what the kernel keeps of them.
pub struct Cache<'a> {
    stage: &'a Stage<'a>,
    cache: PageCache,
    files: BTreeSet<u64>,
}

impl<'a> Cache<'a> {
    pub fn of(stage: &'a Stage<'a>) -> Result<Cache<'a>, Failure> {
        let cache = PageCache::below(&stage.folder).map_err(Failure::refused)?;
        Ok(Cache { stage, cache, files: files_read(stage) })
    }

    /// Takes the files out of the cache, and says what stayed.
    pub fn empty(&self) -> Result<State, Failure> {
        self.cache.flush().map_err(Failure::incomplete)?;
        let mut left = None;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                meter::pause(PATIENCE);
            }
            self.each(|name| self.cache.evict(name).map_err(Failure::incomplete))?;
            left = self.pages()?;
            if left.is_none_or(|left| left.cached == 0) {
                break;
            }
        }
        Ok(judge(left, |share| share <= TOLERATED))
    }

    /// Whether the files are in the cache.
    pub fn is_full(&self) -> Result<State, Failure> {
        Ok(judge(self.pages()?, |share| share >= 1.0 - TOLERATED))
    }

    fn pages(&self) -> Result<Option<Pages>, Failure> {
        let mut sum = Some(Pages::default());
        self.each(|name| {
            let pages = self.cache.pages(name).map_err(Failure::incomplete)?;
            sum = sum.zip(pages).map(|(mut sum, pages)| {
                sum += pages;
                sum
            });
            Ok(())
        })?;
        Ok(sum)
    }

    fn each(&self, mut work: impl FnMut(&Name) -> Result<(), Failure>) -> Result<(), Failure> {
        self.stage.with_files(|files| {
            let mut name = Name::default();
            for file in &self.files {
                let entry = files.train.entry(*file, &mut name);
                entry.map_err(|cause| Failure::incomplete(anyhow::anyhow!(cause)))?;
                work(&name)?;
            }
            Ok(())
        })
    }
}

fn judge(pages: Option<Pages>, right: impl Fn(f64) -> bool) -> State {
    let Some(pages) = pages else {
        return State { verified: false, evidence: "this kernel does not tell what is in memory".to_owned() };
    };
    let (cached, all) = (grouped(pages.cached), grouped(pages.all));
    State {
        verified: right(pages.share()),
        evidence: format!("{cached} of {all} pages were in memory before"),
    }
}

/// The numbers of the files that the first epoch of training reads.
fn files_read(stage: &Stage<'_>) -> BTreeSet<u64> {
    let train = &stage.plan.train;
    let (order, end) = (train.order.epoch(1), train.shards.delivered());
    let mut files = BTreeSet::new();
    let mut position = 0;
    while position < end {
        let (sample, length) = order.run(position, end - position);
        files.insert(sample / train.order.samples_per_file);
        position += length.max(1);
    }
    files
}
