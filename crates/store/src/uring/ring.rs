//! One ring: its queues, the slots that files are opened into, the memory that is read into, and the bell that ends a
//! wait. All that the compiler cannot check about this road stands here; what to ask for and what an answer means is
//! the lane's business.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use memmap2::{MmapMut, MmapRaw};
use model::units::Nanos;
use rustix::event::EventfdFlags;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::Waker;
use crate::buffer::ALIGNMENT;
use crate::reading::{Ask, Part};

/// Requests that are handed over at once. More readers than this are served in several calls.
const MOST_SUBMISSIONS: usize = 4096;
/// The longest chain: close another file, open, advise, read, close.
pub(super) const LONGEST_CHAIN: usize = 5;

/// Flags of io_uring_enter (linux/io_uring.h). The crate's own calls leave the first out when there is nothing to wait
/// for; but a ring that defers its work does it in such a call only, and without it a chain stops after its first link.
const GET_EVENTS: u32 = 1 << 0;
const EXTENDED_ARGUMENT: u32 = 1 << 3;

/// How rings can be made on this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    /// Completions are worked off when the reading thread asks for them and never interrupt it (Linux 6.1).
    pub(super) deferred: bool,
}

impl Setup {
    /// Tries what there is, best first.
    pub(super) fn probe() -> Result<Setup, Errno> {
        let attempt = |deferred| {
            let setup = Setup { deferred };
            let ring = setup.build(1, 8)?;
            // Files in slots, and chains that read from a slot which they have filled: Linux 5.19.
            ring.submitter().register_files_sparse(1).map_err(|error| errno(&error))?;
            Ok(setup)
        };
        match attempt(true) {
            Err(Errno::INVAL) => attempt(false),
            outcome => outcome,
        }
    }

    fn build(self, requests: usize, completions: usize) -> Result<IoUring, Errno> {
        let mut builder = IoUring::builder();
        // Enabled by the first call, because a ring that defers its work belongs to the thread that enables it.
        builder.setup_clamp().setup_submit_all().setup_r_disabled().setup_cqsize(completions as u32);
        if self.deferred {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        }
        builder.build(requests as u32).map_err(|error| errno(&error))
    }
}

/// Where the file that a request is about is open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In the reader's slot of the ring, which takes no descriptor and no step of its own.
    Slot,
    /// As everywhere, where others than the ring have something to ask about it.
    Descriptor(RawFd),
}

/// What was asked of the ring, as it comes back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Into the reader's slot.
    Open,
    /// As everywhere: the answer is a descriptor, for `Ring::adopt`.
    OpenDescriptor,
    Advise,
    Read,
    Close,
    Cancel,
    /// To be told of the bell.
    Bell,
}

const KINDS: [Asked; 7] = [
    Asked::Open,
    Asked::OpenDescriptor,
    Asked::Advise,
    Asked::Read,
    Asked::Close,
    Asked::Cancel,
    Asked::Bell,
];

/// What a reader may have with the kernel that can wait for ever, and that is cancelled then.
const CANCELLED: [Asked; 3] = [Asked::Open, Asked::OpenDescriptor, Asked::Read];

impl Asked {
    /// The mark that a request of a reader carries.
    fn mark(self, reader: usize) -> u64 {
        (reader as u64) << 3 | self as u64
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) reader: usize,
    pub(super) asked: Asked,
    pub(super) result: Result<usize, Errno>,
}

/// What a ring is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) readers: usize,
    /// Bytes that one reader reads at a time.
    pub(super) room: usize,
}

impl Size {
    /// From one reader's memory to the next: whole pages, so that each begins on one.
    fn stride(self) -> usize {
        self.room.next_multiple_of(ALIGNMENT)
    }

    /// Memory that the kernel keeps at hand.
    pub(super) fn bytes(self) -> usize {
        self.stride().saturating_mul(self.readers)
    }
}

/// Which part of making a ring failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failed {
    Setup(Errno),
    /// Keeping the memory at hand.
    Lock(Errno),
    /// Memory itself, slots, the bell.
    Room(Errno),
}

pub(super) struct Ring {
    // Declared before the memory and so dropped before it.
    ring: IoUring,
    memory: MmapRaw,
    stride: usize,
    /// The name of each reader's file, with its NUL: the kernel takes it from here when a request is handed over.
    paths: Vec<Vec<u8>>,
    /// The requests that are being put together.
    chain: Vec<Entry>,
    bell: Arc<Bell>,
    listening: bool,
    rung: bool,
    enabled: bool,
    /// Requests that have not been answered, those for the bell aside.
    unanswered: usize,
}

impl Ring {
    pub(super) fn new(setup: Setup, size: Size) -> Result<Ring, Failed> {
        let requests = (size.readers * LONGEST_CHAIN + 1).next_power_of_two().min(MOST_SUBMISSIONS);
        // Every request of every reader, its cancellations, and the bell have room, so that none is held back.
        let answers = size.readers * (LONGEST_CHAIN + CANCELLED.len()) + 1;
        let ring = setup.build(requests, answers.next_power_of_two().max(requests)).map_err(Failed::Setup)?;
        let mut memory =
            MmapMut::map_anon(size.bytes().max(1)).map_err(|error| Failed::Room(errno(&error)))?;
        // Fewer pieces to hand to a disk, so less CPU time per byte past the page cache. It is advice.
        let _ = memory.advise(memmap2::Advice::HugePage);
        let base = memory.as_mut_ptr();
        let parts: Vec<libc::iovec> = (0..size.readers)
            .map(|reader| libc::iovec {
                iov_base: base.wrapping_add(reader * size.stride()).cast(),
                iov_len: size.room,
            })
            .collect();
        // SAFETY: the parts lie within the mapping, one behind the other. The kernel holds on to their pages by itself
        // until the ring is gone and its last read has ended. The mapping is nobody else's memory: pages that are
        // unmapped under a late read are given to no one before the kernel lets go of them.
        unsafe { ring.submitter().register_buffers(&parts) }.map_err(|error| Failed::Lock(errno(&error)))?;
        ring.submitter()
            .register_files_sparse(size.readers as u32)
            .map_err(|error| Failed::Room(errno(&error)))?;
        Ok(Ring {
            ring,
            memory: MmapRaw::from(memory),
            stride: size.stride(),
            paths: vec![vec![0]; size.readers],
            chain: Vec::with_capacity(LONGEST_CHAIN),
            bell: Arc::new(Bell::new().map_err(Failed::Room)?),
            listening: false,
            rung: false,
            enabled: false,
            unanswered: 0,
        })
    }

    /// The name of the file that is or will be in the reader's slot.
    pub(super) fn path(&self, reader: usize) -> &CStr {
        CStr::from_bytes_until_nul(&self.paths[reader]).unwrap_or(c"")
    }

    /// Changes that name. The reader must have no request with the kernel or on its way there.
    pub(super) fn set_path(&mut self, reader: usize, path: &CStr) {
        self.paths[reader].clear();
        self.paths[reader].extend_from_slice(path.to_bytes_with_nul());
    }

    /// Opens the reader's file into its slot.
    pub(super) fn open(&mut self, reader: usize, folder: BorrowedFd<'_>, flags: OFlags) {
        let slot = DestinationSlot::try_from_slot_target(reader as u32).ok();
        self.open_at(reader, folder, flags, slot, Asked::Open);
    }

    /// Opens the reader's file; the answer is a descriptor, for `adopt`.
    pub(super) fn open_descriptor(&mut self, reader: usize, folder: BorrowedFd<'_>, flags: OFlags) {
        self.open_at(reader, folder, flags | OFlags::CLOEXEC, None, Asked::OpenDescriptor);
    }

    fn open_at(
        &mut self,
        reader: usize,
        folder: BorrowedFd<'_>,
        flags: OFlags,
        slot: Option<DestinationSlot>,
        asked: Asked,
    ) {
        let path = self.paths[reader].as_ptr().cast();
        let open =
            opcode::OpenAt::new(Fd(folder.as_raw_fd()), path).file_index(slot).flags(flags.bits() as i32);
        self.add(open.build(), asked, reader);
    }

    /// The file that the answer to `open_descriptor` is about.
    pub(super) fn adopt(answer: usize) -> OwnedFd {
        // SAFETY: the kernel has just opened it for us, and nobody else has seen the number.
        unsafe { OwnedFd::from_raw_fd(answer as RawFd) }
    }

    /// Says how the file in the slot will be read.
    pub(super) fn advise(&mut self, reader: usize, advice: i32) {
        self.add(opcode::Fadvise::new(Fixed(reader as u32), 0, advice).build(), Asked::Advise, reader);
    }

    /// Reads into the reader's memory, which must have room for it.
    pub(super) fn read(&mut self, reader: usize, place: Place, ask: Ask, flags: i32) {
        debug_assert!(ask.bytes <= self.stride);
        let memory = self.memory.as_mut_ptr().wrapping_add(reader * self.stride);
        let (bytes, part) = (ask.bytes as u32, reader as u16);
        let read = match place {
            Place::Slot => opcode::ReadFixed::new(Fixed(reader as u32), memory, bytes, part),
            Place::Descriptor(file) => opcode::ReadFixed::new(Fd(file), memory, bytes, part),
        };
        self.add(read.offset(ask.offset).rw_flags(flags).build(), Asked::Read, reader);
    }

    /// Closes the reader's file.
    pub(super) fn close(&mut self, reader: usize, place: Place) {
        let close = match place {
            Place::Slot => opcode::Close::new(Fixed(reader as u32)),
            Place::Descriptor(file) => opcode::Close::new(Fd(file)),
        };
        self.add(close.build(), Asked::Close, reader);
    }

    /// Links the request to the one before it, for which it waits, also when that fails or brings less than it should.
    fn add(&mut self, entry: Entry, asked: Asked, reader: usize) {
        if let Some(before) = self.chain.pop() {
            self.chain.push(before.flags(Flags::IO_HARDLINK));
        }
        self.chain.push(entry.user_data(asked.mark(reader)));
    }

    /// Whether another chain fits.
    pub(super) fn has_room(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.capacity() - queue.len() >= LONGEST_CHAIN
    }

    /// Queues what was put together; says how many answers will come. There must be room.
    pub(super) fn commit(&mut self) -> usize {
        let requests = self.chain.len();
        self.unanswered += requests;
        self.push();
        requests
    }

    /// Asks the kernel to let go of what the reader has with it. There must be room.
    pub(super) fn cancel(&mut self, reader: usize) {
        for asked in CANCELLED {
            let cancel = opcode::AsyncCancel::new(asked.mark(reader)).build();
            self.chain.push(cancel.user_data(Asked::Cancel.mark(reader)));
        }
        self.commit();
    }

    fn push(&mut self) {
        // SAFETY: what the entries point to lives as long as the ring and is left alone until they are answered: paths
        // (see `set_path`), parts of the registered memory, and the bell's descriptor.
        let pushed = unsafe { self.ring.submission().push_multiple(&self.chain) };
        debug_assert!(pushed.is_ok(), "there was room");
        self.chain.clear();
    }

    /// Hands over what is queued and lets the kernel go on with what it has. Waits for an answer if `most` is given,
    /// and no longer than that; says whether that time passed without one, which the kernel tells only if nothing was
    /// handed over.
    pub(super) fn enter(&mut self, most: Option<Nanos>) -> Result<bool, Errno> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings().map_err(|error| errno(&error))?;
            self.enabled = true;
        }
        if !self.listening && self.has_room() {
            let listen = opcode::PollAdd::new(Fd(self.bell.0.as_raw_fd()), libc::POLLIN as u32);
            self.chain.push(listen.build().user_data(Asked::Bell.mark(0)));
            self.push();
            self.listening = true;
        }
        let queued = self.ring.submission().len() as u32;
        match self.call(queued, most) {
            Ok(()) | Err(Errno::INTR) => Ok(false),
            Err(Errno::TIME) => Ok(true),
            // The kernel is short of room or memory; what is queued stays so and is handed over another time.
            Err(Errno::BUSY | Errno::AGAIN) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    fn call(&self, queued: u32, most: Option<Nanos>) -> Result<(), Errno> {
        let submitter = self.ring.submitter();
        let outcome = match most {
            // SAFETY: there is no argument.
            None => unsafe { submitter.enter::<libc::sigset_t>(queued, 0, GET_EVENTS, None) },
            Some(most) => {
                let most = Timespec::from(Duration::from_nanos(most.0));
                let arguments = SubmitArgs::new().timespec(&most);
                // SAFETY: the argument is the one that the flag announces, and lives until the call returns.
                unsafe { submitter.enter(queued, 1, GET_EVENTS | EXTENDED_ARGUMENT, Some(&arguments)) }
            }
        };
        outcome.map(|_| ()).map_err(|error| errno(&error))
    }

    /// Whether `enter` has something to do.
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// An answer that has come, if there is one.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let entry = self.ring.completion().next()?;
        let mark = entry.user_data();
        let asked = KINDS[(mark & 7) as usize % KINDS.len()];
        if asked == Asked::Bell {
            self.bell.hush();
            (self.listening, self.rung) = (false, true);
        } else {
            self.unanswered -= 1;
        }
        let result = match entry.result() {
            error if error < 0 => Err(Errno::from_raw_os_error(-error)),
            result => Ok(result as usize),
        };
        Some(Answer { reader: (mark >> 3) as usize, asked, result })
    }

    /// The bytes that a read has brought to the reader. It must have none with the kernel.
    pub(super) fn came(&self, reader: usize, part: Part) -> &[u8] {
        assert!(part.skip + part.bytes <= self.stride);
        let memory = self.memory.as_ptr().wrapping_add(reader * self.stride + part.skip);
        // SAFETY: it lies within the reader's part of the mapping, which was zero when it was made and is written to by
        // the kernel only, while a read of this reader is with it.
        unsafe { std::slice::from_raw_parts(memory, part.bytes) }
    }

    pub(super) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Whether the bell was rung since this was asked last.
    pub(super) fn was_rung(&mut self) -> bool {
        std::mem::take(&mut self.rung)
    }

    /// Requests that the kernel has.
    fn with_kernel(&mut self) -> usize {
        let queued = self.ring.submission().len();
        self.unanswered.saturating_sub(queued)
    }
}

/// How long a ring that goes waits for what it cannot call back, in steps.
const LAST_WAIT: Nanos = Nanos(100_000_000);
const LAST_WAITS: usize = 20;

impl Drop for Ring {
    fn drop(&mut self) {
        if self.with_kernel() == 0 {
            return;
        }
        // Best effort and bounded: files should be closed and memory free when the lane is gone. What the kernel does
        // not give back in time it finishes by itself, in pages that it holds.
        let patience = Timespec::new().nsec(LAST_WAIT.0 as u32);
        let _ = self.ring.submitter().register_sync_cancel(Some(patience), CancelBuilder::any().all());
        for _ in 0..LAST_WAITS {
            while let Some(answer) = self.answer() {
                if let (Asked::OpenDescriptor, Ok(file)) = (answer.asked, answer.result) {
                    drop(Ring::adopt(file));
                }
            }
            if self.with_kernel() == 0
                || self.call(0, Some(LAST_WAIT)).is_err_and(|cause| cause != Errno::TIME)
            {
                return;
            }
        }
    }
}

/// Ends a wait from another thread.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    fn new() -> Result<Bell, Errno> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Bell)
    }

    fn hush(&self) {
        // There is nothing to read if it was not rung, which is as good.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Waker for Bell {
    fn wake(&self) {
        // It fails when the counter is full: then it has been rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
