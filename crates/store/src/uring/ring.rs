//! One ring: its queues, the slots into which files are opened, the memory for reads, and the bell that ends a wait.
//! All unsafe code of this backend is here; the lane decides what to request and interprets the answers.

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
use crate::reading::{ReadRequest, WantedPart};

/// Maximum number of requests per submission. More readers than this are served in several calls.
const MOST_SUBMISSIONS: usize = 4096;
/// The longest chain: close another file, open, advise, read, close.
pub(super) const LONGEST_CHAIN: usize = 5;

/// Flags of io_uring_enter (linux/io_uring.h). The crate's own calls omit the first one if there is nothing to wait
/// for; but a ring with deferred work does it in such a call only, and without it a chain stops after its first link.
const GET_EVENTS: u32 = 1 << 0;
const EXTENDED_ARGUMENT: u32 = 1 << 3;

/// The kind of ring that this kernel supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingFeatures {
    /// Completions are processed when the reader thread asks for them and never interrupt it (Linux 6.1).
    pub(super) deferred: bool,
}

impl RingFeatures {
    /// Tries all kinds, the best one first.
    pub(super) fn probe() -> Result<RingFeatures, Errno> {
        let attempt = |deferred| {
            let setup = RingFeatures { deferred };
            let ring = setup.build(1, 8)?;
            // Files in slots, and chains that read from a slot that they have filled: Linux 5.19.
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
        // Enabled by the first call, because a ring with deferred work belongs to the thread that enables it.
        builder.setup_clamp().setup_submit_all().setup_r_disabled().setup_cqsize(completions as u32);
        if self.deferred {
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        }
        builder.build(requests as u32).map_err(|error| errno(&error))
    }
}

/// Where the file of a request is open.
#[derive(Clone, Copy, Debug)]
pub(super) enum FileHandle {
    /// In the reader's slot of the ring, which needs no descriptor and no separate step.
    Slot,
    /// As a descriptor, for other calls on it than the ring's.
    Descriptor(RawFd),
}

/// What was requested from the ring, as returned with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingRequest {
    /// Into the reader's slot.
    Open,
    /// As a descriptor: the answer is its number, for `Ring::adopt`.
    OpenDescriptor,
    Advise,
    Read,
    Close,
    Cancel,
    /// To be notified of the bell.
    Bell,
}

const KINDS: [RingRequest; 7] = [
    RingRequest::Open,
    RingRequest::OpenDescriptor,
    RingRequest::Advise,
    RingRequest::Read,
    RingRequest::Close,
    RingRequest::Cancel,
    RingRequest::Bell,
];

/// The requests of a reader that can wait forever and are cancelled in that case.
const CANCELLED: [RingRequest; 3] = [RingRequest::Open, RingRequest::OpenDescriptor, RingRequest::Read];

impl RingRequest {
    /// The user data of a reader's request.
    fn mark(self, reader: usize) -> u64 {
        (reader as u64) << 3 | self as u64
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) reader: usize,
    pub(super) asked: RingRequest,
    pub(super) result: Result<usize, Errno>,
}

/// The size of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSize {
    pub(super) readers: usize,
    /// Bytes that one reader reads at a time.
    pub(super) room: usize,
}

impl RingSize {
    /// The distance between two readers' memory: whole pages, so that each begins at a page.
    fn stride(self) -> usize {
        self.room.next_multiple_of(ALIGNMENT)
    }

    /// Memory that is registered with the kernel.
    pub(super) fn bytes(self) -> usize {
        self.stride().saturating_mul(self.readers)
    }
}

/// The step at which creating a ring failed.
#[derive(Clone, Copy, Debug)]
pub(super) enum RingError {
    Setup(Errno),
    /// Registering the memory.
    Lock(Errno),
    /// Allocating memory, slots or the bell.
    Room(Errno),
}

pub(super) struct Ring {
    // Declared before the memory and so dropped before it.
    ring: IoUring,
    memory: MmapRaw,
    stride: usize,
    /// The name of each reader's file, with its NUL: the kernel reads it from here when a request is submitted.
    paths: Vec<Vec<u8>>,
    /// The chain that is being composed.
    chain: Vec<Entry>,
    bell: Arc<RingWaker>,
    listening: bool,
    rung: bool,
    enabled: bool,
    /// Requests that have not been answered, except those for the bell.
    unanswered: usize,
}

impl Ring {
    pub(super) fn new(setup: RingFeatures, size: RingSize) -> Result<Ring, RingError> {
        let requests = (size.readers * LONGEST_CHAIN + 1).next_power_of_two().min(MOST_SUBMISSIONS);
        // Every request of every reader, its cancellations, and the bell have space, so that none is delayed.
        let answers = size.readers * (LONGEST_CHAIN + CANCELLED.len()) + 1;
        let ring =
            setup.build(requests, answers.next_power_of_two().max(requests)).map_err(RingError::Setup)?;
        let mut memory =
            MmapMut::map_anon(size.bytes().max(1)).map_err(|error| RingError::Room(errno(&error)))?;
        // Fewer segments per request to a disk, so less CPU time per byte with O_DIRECT. It is advice.
        let _ = memory.advise(memmap2::Advice::HugePage);
        let base = memory.as_mut_ptr();
        let parts: Vec<libc::iovec> = (0..size.readers)
            .map(|reader| libc::iovec {
                iov_base: base.wrapping_add(reader * size.stride()).cast(),
                iov_len: size.room,
            })
            .collect();
        // SAFETY: the parts are within the mapping, one behind the other. The kernel itself keeps their pages until the
        // ring is gone and its last read has ended. No other code uses the mapping's memory: pages that are unmapped
        // during a late read are not reused before the kernel releases them.
        unsafe { ring.submitter().register_buffers(&parts) }
            .map_err(|error| RingError::Lock(errno(&error)))?;
        ring.submitter()
            .register_files_sparse(size.readers as u32)
            .map_err(|error| RingError::Room(errno(&error)))?;
        Ok(Ring {
            ring,
            memory: MmapRaw::from(memory),
            stride: size.stride(),
            paths: vec![vec![0]; size.readers],
            chain: Vec::with_capacity(LONGEST_CHAIN),
            bell: Arc::new(RingWaker::new().map_err(RingError::Room)?),
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

    /// Changes that name. The reader must have no request in the kernel or in the submission queue.
    pub(super) fn set_path(&mut self, reader: usize, path: &CStr) {
        self.paths[reader].clear();
        self.paths[reader].extend_from_slice(path.to_bytes_with_nul());
    }

    /// Opens the reader's file into its slot.
    pub(super) fn open(&mut self, reader: usize, folder: BorrowedFd<'_>, flags: OFlags) {
        let slot = DestinationSlot::try_from_slot_target(reader as u32).ok();
        self.open_at(reader, folder, flags, slot, RingRequest::Open);
    }

    /// Opens the reader's file; the answer is a descriptor, for `adopt`.
    pub(super) fn open_descriptor(&mut self, reader: usize, folder: BorrowedFd<'_>, flags: OFlags) {
        self.open_at(reader, folder, flags | OFlags::CLOEXEC, None, RingRequest::OpenDescriptor);
    }

    fn open_at(
        &mut self,
        reader: usize,
        folder: BorrowedFd<'_>,
        flags: OFlags,
        slot: Option<DestinationSlot>,
        asked: RingRequest,
    ) {
        let path = self.paths[reader].as_ptr().cast();
        let open =
            opcode::OpenAt::new(Fd(folder.as_raw_fd()), path).file_index(slot).flags(flags.bits() as i32);
        self.add(open.build(), asked, reader);
    }

    /// The file of an answer to `open_descriptor`.
    pub(super) fn adopt(answer: usize) -> OwnedFd {
        // SAFETY: the kernel has just opened it for this ring, and no other code has seen the number.
        unsafe { OwnedFd::from_raw_fd(answer as RawFd) }
    }

    /// Advises the kernel how the file in the slot will be read.
    pub(super) fn advise(&mut self, reader: usize, advice: i32) {
        self.add(opcode::Fadvise::new(Fixed(reader as u32), 0, advice).build(), RingRequest::Advise, reader);
    }

    /// Reads into the reader's memory, which must be large enough.
    pub(super) fn read(&mut self, reader: usize, place: FileHandle, ask: ReadRequest, flags: i32) {
        debug_assert!(ask.bytes <= self.stride);
        let memory = self.memory.as_mut_ptr().wrapping_add(reader * self.stride);
        let (bytes, part) = (ask.bytes as u32, reader as u16);
        let read = match place {
            FileHandle::Slot => opcode::ReadFixed::new(Fixed(reader as u32), memory, bytes, part),
            FileHandle::Descriptor(file) => opcode::ReadFixed::new(Fd(file), memory, bytes, part),
        };
        self.add(read.offset(ask.offset).rw_flags(flags).build(), RingRequest::Read, reader);
    }

    /// Closes the reader's file.
    pub(super) fn close(&mut self, reader: usize, place: FileHandle) {
        let close = match place {
            FileHandle::Slot => opcode::Close::new(Fixed(reader as u32)),
            FileHandle::Descriptor(file) => opcode::Close::new(Fd(file)),
        };
        self.add(close.build(), RingRequest::Close, reader);
    }

    /// Links the request to the previous one: it waits for that one, even if that fails or reads less than requested.
    fn add(&mut self, entry: Entry, asked: RingRequest, reader: usize) {
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

    /// Queues the composed chain; returns how many answers will arrive. There must be space for it.
    pub(super) fn commit(&mut self) -> usize {
        let requests = self.chain.len();
        self.unanswered += requests;
        self.push();
        requests
    }

    /// Asks the kernel to cancel the reader's requests. There must be space in the queue.
    pub(super) fn cancel(&mut self, reader: usize) {
        for asked in CANCELLED {
            let cancel = opcode::AsyncCancel::new(asked.mark(reader)).build();
            self.chain.push(cancel.user_data(RingRequest::Cancel.mark(reader)));
        }
        self.commit();
    }

    fn push(&mut self) {
        // SAFETY: what the entries point to lives as long as the ring and is not changed until they are answered: paths
        // (see `set_path`), parts of the registered memory, and the bell's descriptor.
        let pushed = unsafe { self.ring.submission().push_multiple(&self.chain) };
        debug_assert!(pushed.is_ok(), "there was space");
        self.chain.clear();
    }

    /// Submits what is queued and lets the kernel continue its work. Waits for an answer if `most` is given, at most
    /// that long; returns whether that time passed without one, which the kernel reports only if nothing was submitted.
    pub(super) fn enter(&mut self, most: Option<Nanos>) -> Result<bool, Errno> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings().map_err(|error| errno(&error))?;
            self.enabled = true;
        }
        if !self.listening && self.has_room() {
            let listen = opcode::PollAdd::new(Fd(self.bell.0.as_raw_fd()), libc::POLLIN as u32);
            self.chain.push(listen.build().user_data(RingRequest::Bell.mark(0)));
            self.push();
            self.listening = true;
        }
        let queued = self.ring.submission().len() as u32;
        match self.call(queued, most) {
            Ok(()) | Err(Errno::INTR) => Ok(false),
            Err(Errno::TIME) => Ok(true),
            // The kernel is short of queue space or memory; queued requests stay queued and are submitted later.
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

    /// Whether `enter` has work to do.
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// The next answer, if one has arrived.
    pub(super) fn answer(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let mark = entry.user_data();
        let asked = KINDS[(mark & 7) as usize % KINDS.len()];
        if asked == RingRequest::Bell {
            self.bell.hush();
            (self.listening, self.rung) = (false, true);
        } else {
            self.unanswered -= 1;
        }
        let result = match entry.result() {
            error if error < 0 => Err(Errno::from_raw_os_error(-error)),
            result => Ok(result as usize),
        };
        Some(Completion { reader: (mark >> 3) as usize, asked, result })
    }

    /// The bytes that a read delivered to the reader, which must have no read in the kernel.
    pub(super) fn came(&self, reader: usize, part: WantedPart) -> &[u8] {
        assert!(part.skip + part.bytes <= self.stride);
        let memory = self.memory.as_ptr().wrapping_add(reader * self.stride + part.skip);
        // SAFETY: the part is within the reader's part of the mapping, which was zero when it was created and is
        // written to by the kernel only, while a read of this reader is in the kernel.
        unsafe { std::slice::from_raw_parts(memory, part.bytes) }
    }

    pub(super) fn bell(&self) -> Arc<RingWaker> {
        Arc::clone(&self.bell)
    }

    /// Whether the bell was rung since the last call.
    pub(super) fn was_rung(&mut self) -> bool {
        std::mem::take(&mut self.rung)
    }

    /// Number of requests in the kernel.
    fn with_kernel(&mut self) -> usize {
        let queued = self.ring.submission().len();
        self.unanswered.saturating_sub(queued)
    }
}

/// How long a ring that is dropped waits for requests that it cannot cancel, in steps.
const LAST_WAIT: Nanos = Nanos(100_000_000);
const LAST_WAITS: usize = 20;

impl Drop for Ring {
    fn drop(&mut self) {
        if self.with_kernel() == 0 {
            return;
        }
        // Best effort and bounded: files should be closed and memory free when the lane is gone. Requests that the
        // kernel does not complete in time end later, in pages that it holds.
        let patience = Timespec::new().nsec(LAST_WAIT.0 as u32);
        let _ = self.ring.submitter().register_sync_cancel(Some(patience), CancelBuilder::any().all());
        for _ in 0..LAST_WAITS {
            while let Some(answer) = self.answer() {
                if let (RingRequest::OpenDescriptor, Ok(file)) = (answer.asked, answer.result) {
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
pub(super) struct RingWaker(OwnedFd);

impl RingWaker {
    fn new() -> Result<RingWaker, Errno> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(RingWaker)
    }

    fn hush(&self) {
        // If it was not rung there is nothing to read, which is fine.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Waker for RingWaker {
    fn wake(&self) {
        // It fails if the counter is at its maximum: then it has been rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
