//! Which file is mapped at an address of a process: from the calls that map and unmap data files.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::event::{PageFault, ProcessIndex, ProcessStart, SeenCall};
use crate::layout::Op;

/// Mappings of one process. The preload library knows no more of them either.
const MAPPINGS: usize = 4096;

/// A mapping, without its address.
#[derive(Clone, Copy, Debug)]
struct MappedRange {
    end: u64,
    device: u32,
    file: u64,
    /// Where the mapping begins in the file.
    offset: u64,
    /// When the call that made it had returned.
    since_ns: u64,
}

/// The mappings of one process, by address.
#[derive(Clone, Debug, Default)]
struct AddressSpace {
    index: ProcessIndex,
    /// Shared with the parent until one of the two changes it.
    mappings: Rc<BTreeMap<u64, MappedRange>>,
}

/// The mappings of all processes.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    spaces: HashMap<u32, AddressSpace>,
}

impl Mappings {
    /// A process starts: with the mappings of its parent if it was forked.
    pub(super) fn start(&mut self, index: ProcessIndex, start: &ProcessStart) {
        let parent = self.spaces.get(&start.parent).filter(|_| !start.executed);
        let mappings = parent.map(|parent| Rc::clone(&parent.mappings)).unwrap_or_default();
        self.spaces.insert(start.pid, AddressSpace { index, mappings });
    }

    /// A process ended. A later one can have its number.
    pub(super) fn end(&mut self, index: ProcessIndex, pid: u32) {
        if self.spaces.get(&pid).is_some_and(|space| space.index == index) {
            self.spaces.remove(&pid);
        }
    }

    /// A call of a process.
    pub(super) fn call(&mut self, pid: u32, call: &SeenCall) {
        if !call.is_data() || !matches!(call.op, Op::Map | Op::Unmap) {
            return;
        }
        let Some(space) = self.spaces.get_mut(&pid) else { return };
        let Some(address) = u64::try_from(call.result).ok().filter(|address| *address > 0) else { return };
        let end = address.saturating_add(call.asked);
        if call.op == Op::Unmap {
            // Another thread may have mapped the same addresses again before the call returned.
            space.remove(address, end, call.start_ns);
            return;
        }
        space.remove(address, end, u64::MAX);
        if space.mappings.len() < MAPPINGS {
            let offset = u64::try_from(call.offset).unwrap_or(0);
            let (device, file, since_ns) = (call.device, call.file, call.end_ns());
            let mapped = MappedRange { end, device, file, offset, since_ns };
            Rc::make_mut(&mut space.mappings).insert(address, mapped);
        }
    }

    /// The place in a data file of a fault at an address.
    pub(super) fn find(&self, pid: u32, address: u64, page: u64) -> Option<(ProcessIndex, PageFault)> {
        let space = self.spaces.get(&pid)?;
        let (begin, mapped) = space.mappings.range(..=address).next_back()?;
        if address >= mapped.end {
            return None;
        }
        let offset = mapped.offset.saturating_add(address - begin) / page * page;
        let MappedRange { device, file, .. } = *mapped;
        Some((space.index, PageFault { device, file, offset, ..PageFault::default() }))
    }
}

impl AddressSpace {
    /// Removes what was mapped in a range of addresses before a time.
    fn remove(&mut self, from: u64, to: u64, before_ns: u64) {
        // Mappings do not overlap.
        let touched = self.mappings.range(..to).rev().take_while(|(_, mapped)| mapped.end > from);
        let older = touched.filter(|(_, mapped)| mapped.since_ns <= before_ns);
        let all: Vec<(u64, MappedRange)> = older.map(|(begin, mapped)| (*begin, *mapped)).collect();
        if all.is_empty() {
            return;
        }
        let mappings = Rc::make_mut(&mut self.mappings);
        for (begin, mapped) in all {
            mappings.remove(&begin);
            if begin < from {
                mappings.insert(begin, MappedRange { end: from, ..mapped });
            }
            if mapped.end > to {
                let offset = mapped.offset + (to - begin);
                mappings.insert(to, MappedRange { offset, ..mapped });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FdKind;

    const PAGE: u64 = 4096;

    fn call(op: Op, address: u64, length: u64, offset: i64, (start_ns, end_ns): (u64, u64)) -> SeenCall {
        SeenCall {
            op,
            kind: FdKind::Regular as u8,
            flags: 0,
            tid: 1,
            fd: 3,
            start_ns,
            duration_ns: end_ns - start_ns,
            file: 77,
            device: 5,
            offset,
            asked: length,
            result: address as i64,
        }
    }

    fn process(pid: u32, parent: u32, executed: bool) -> ProcessStart {
        ProcessStart { pid, parent, executed, ..ProcessStart::default() }
    }

    fn offset(mappings: &Mappings, pid: u32, address: u64) -> Option<(ProcessIndex, u64)> {
        mappings.find(pid, address, PAGE).map(|(index, fault)| (index, fault.offset))
    }

    #[test]
    fn addresses_become_offsets() {
        let mut mappings = Mappings::default();
        mappings.start(0, &process(10, 1, true));
        mappings.call(10, &call(Op::Map, 0x10_0000, 0x8000, 0x3000, (1, 2)));
        assert_eq!(offset(&mappings, 10, 0x10_0000), Some((0, 0x3000)));
        assert_eq!(offset(&mappings, 10, 0x10_5fff), Some((0, 0x8000)));
        for outside in [0xf_ffff, 0x10_8000] {
            assert_eq!(offset(&mappings, 10, outside), None);
        }
        assert_eq!(offset(&mappings, 11, 0x10_0000), None);
        // A part is unmapped, then the rest.
        mappings.call(10, &call(Op::Unmap, 0x10_2000, 0x1000, 0, (3, 4)));
        assert_eq!(offset(&mappings, 10, 0x10_2000), None);
        assert_eq!(offset(&mappings, 10, 0x10_1fff), Some((0, 0x4000)));
        assert_eq!(offset(&mappings, 10, 0x10_3000), Some((0, 0x6000)));
        mappings.call(10, &call(Op::Unmap, 0x10_0000, 0x8000, 0, (5, 6)));
        assert_eq!(offset(&mappings, 10, 0x10_3000), None);
    }

    #[test]
    fn forked_processes_inherit_and_executed_ones_do_not() {
        let mut mappings = Mappings::default();
        mappings.start(0, &process(10, 1, true));
        mappings.call(10, &call(Op::Map, 0x10_0000, 0x8000, 0, (1, 2)));
        mappings.start(1, &process(11, 10, false));
        mappings.call(10, &call(Op::Unmap, 0x10_0000, 0x8000, 0, (3, 4)));
        assert_eq!(offset(&mappings, 10, 0x10_0000), None);
        assert_eq!(offset(&mappings, 11, 0x10_0000), Some((1, 0)));
        // The same process with another program; the end of its first image comes late.
        mappings.start(2, &process(11, 10, true));
        mappings.end(1, 11);
        assert_eq!(offset(&mappings, 11, 0x10_0000), None);
        mappings.call(11, &call(Op::Map, 0x10_0000, 0x8000, 0, (5, 6)));
        assert_eq!(offset(&mappings, 11, 0x10_0000), Some((2, 0)));
    }

    #[test]
    fn addresses_that_another_thread_maps_again_stay() {
        let mut mappings = Mappings::default();
        mappings.start(0, &process(10, 1, true));
        mappings.call(10, &call(Op::Map, 0x10_0000, 0x8000, 0, (1, 2)));
        // `munmap` from 10 to 20; another thread gets the addresses at 15.
        mappings.call(10, &call(Op::Map, 0x10_0000, 0x8000, 0x9000, (12, 16)));
        mappings.call(10, &call(Op::Unmap, 0x10_0000, 0x8000, 0, (10, 20)));
        assert_eq!(offset(&mappings, 10, 0x10_0000), Some((0, 0x9000)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut mappings = Mappings::default();
        mappings.start(0, &process(10, 1, true));
        for number in 1..=2 * MAPPINGS as u64 {
            mappings.call(10, &call(Op::Map, number << 20, 0x1000, 0, (number, number)));
        }
        assert_eq!(mappings.spaces[&10].mappings.len(), MAPPINGS);
    }
}
