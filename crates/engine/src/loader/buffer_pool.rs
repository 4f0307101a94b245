//! Batches of one rank that stay in memory until the accelerator has finished with them, and their buffers, which are
//! reused.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::Buffer;

#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    inside: Mutex<BufferPoolState>,
}

#[derive(Debug, Default)]
struct BufferPoolState {
    free: Vec<Buffer>,
    /// The bytes of samples, and the step that they are for.
    kept: Vec<(u64, Buffer)>,
}

impl BufferPool {
    /// A buffer to read into.
    pub(crate) fn buffer(&self) -> Buffer {
        self.inside().free.pop().unwrap_or_default()
    }

    /// Keeps the bytes that were read for a step.
    pub(crate) fn keep(&self, step: u64, bytes: &mut Vec<Buffer>) {
        self.inside().kept.extend(bytes.drain(..).map(|buffer| (step, buffer)));
    }

    /// The accelerator begins `step`: buffers of earlier steps become free.
    pub(crate) fn begin(&self, step: u64) {
        let BufferPoolState { free, kept } = &mut *self.inside();
        let mut i = 0;
        while i < kept.len() {
            if kept[i].0 < step {
                free.push(kept.swap_remove(i).1);
            } else {
                i += 1;
            }
        }
    }

    fn inside(&self) -> MutexGuard<'_, BufferPoolState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_after_their_step() {
        let pool = BufferPool::default();
        let mut first = vec![Buffer::with_capacity(5000), Buffer::with_capacity(6000)];
        pool.keep(0, &mut first);
        pool.keep(1, &mut vec![Buffer::with_capacity(7000)]);
        assert!(first.is_empty());
        assert_eq!(pool.buffer().capacity(), 0, "all are in use");
        pool.begin(0);
        assert_eq!(pool.buffer().capacity(), 0, "the accelerator still uses it");
        pool.begin(1);
        assert!(pool.buffer().capacity() >= 5000 && pool.buffer().capacity() >= 5000);
        assert_eq!(pool.buffer().capacity(), 0);
    }
}
