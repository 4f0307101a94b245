//! The memory that an observed job and feedline share: one control area and a slot for each process. This file is
//! compiled into the preload library and into feedline, so that both have the same definition; [`VERSION`] changes
//! with it.
//!
//! The memory is one memfd of feedline. A process claims a free slot, maps the control area and that slot, and
//! writes into nothing else. feedline reads events, and frees the slot when the process is gone and everything was
//! read. Nothing in here is a pointer, and feedline trusts no number in it: a job can overwrite its own slot.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// "feedline" as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"feedline");
/// Changes with every change of this file. A library of another version stays silent.
pub const VERSION: u32 = 2;

/// The environment variable with the path of the memfd, `/proc/PID/fd/N`. Without it, the library passes calls
/// through.
pub const RING_VARIABLE: &str = "FEEDLINE_AUDIT_RING";
/// The environment variable with the path of the library itself, for processes that start others with a new
/// environment.
pub const LIBRARY_VARIABLE: &str = "FEEDLINE_AUDIT_LIBRARY";
/// The environment variable with the folder of `sitecustomize.py`.
pub const PYTHON_VARIABLE: &str = "FEEDLINE_AUDIT_PYTHON";

/// Processes that can be observed at the same time.
pub const SLOTS: usize = 4096;
/// Events that a process can be ahead of feedline: at 600,000 events per second, more than 100 ms.
pub const EVENTS: usize = 65_536;
/// Bytes reserved for the control area.
pub const CONTROL_BYTES: usize = 32 << 10;
/// Bytes of a slot's header.
pub const HEADER_BYTES: usize = 8 << 10;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = HEADER_BYTES + EVENTS * EVENT_BYTES;
pub const EVENT_BYTES: usize = 64;
/// Bytes of text in one continuation of a text event.
pub const TEXT_BYTES: usize = 60;
/// Continuations of a text event at most. Of a longer text, the end is kept.
pub const TEXT_PARTS: usize = 8;
/// Bytes of a command line that are kept.
pub const COMMAND_BYTES: usize = 1024;

/// The position of slot `number` in the memfd.
pub const fn slot_offset(number: usize) -> usize {
    CONTROL_BYTES + number * SLOT_BYTES
}

/// The length of a memfd with this number of slots. It is sparse: only what processes write to takes memory.
pub const fn ring_bytes(slots: usize) -> usize {
    slot_offset(slots)
}

/// States of a slot.
pub const FREE: u32 = 0;
pub const CLAIMED: u32 = 1;

/// The control area.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    /// Of files, those are kept in detail whose [`file_hash`] has this many leading zero bits. feedline increments
    /// it when it has enough of them. Paths of other files are not sent.
    pub sample_bits: AtomicU32,
    /// A futex: incremented by marks that begin or end an epoch, and when a ring is half full.
    pub wake: AtomicU32,
    /// Processes that could not take a slot.
    pub refused: AtomicU32,
    /// The number of slots, at most [`SLOTS`].
    pub slots: AtomicU32,
    /// Seccomp filters that feedline itself is under. A process with more of them is not observed: they may end it for
    /// a system call of the library.
    pub filters: AtomicU32,
    /// [`FREE`] or [`CLAIMED`].
    pub states: [AtomicU32; SLOTS],
}

/// Kinds of operations.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// `open` and relatives. `offset`: size of the file. `asked`: the flags of `open`. `result`: descriptor or
    /// -errno.
    Open = 0,
    /// `read`, `pread`, `readv` and relatives. `offset`: where it began, or -1. `asked`: bytes asked for.
    Read = 1,
    /// `fread`, `fgets`, `getline`: one event per call of the C library, whose own `read`s are not seen.
    BufferedRead = 2,
    Write = 3,
    Close = 4,
    /// `offset`: the resulting position. `asked`: 0, 1, 2 for SET, CUR, END.
    Seek = 5,
    /// `stat`, `fstat`, `access`, `statx` and relatives. `asked`: 0 by path, 1 by descriptor.
    Stat = 6,
    /// `opendir`. `file` is the inode of the folder.
    List = 7,
    /// `readdir` is only counted in the totals.
    ListEntry = 8,
    /// `mmap` of a descriptor. `offset`: in the file. `asked`: length. `result`: address or -errno.
    Map = 9,
    /// `munmap`. `result`: address. `asked`: length. Only for mappings of files.
    Unmap = 10,
    /// `posix_fadvise`, `readahead`, `madvise` of a mapped file. `asked`: the advice.
    Advise = 11,
    /// `fsync`, `fdatasync`.
    Sync = 12,
    /// `poll`, `select`, `epoll_wait`: time spent waiting.
    Poll = 13,
    /// `recvmsg`, `recv` on sockets.
    Receive = 14,
    Rename = 15,
    Unlink = 16,
    /// `fork` seen in the parent after it returned. `result`: pid of the child.
    Fork = 17,
    /// `execve`, `posix_spawn` before it runs. `result`: 0, or pid of the child of `posix_spawn`.
    Spawn = 18,
    /// `pthread_create`.
    Thread = 19,
    /// `sendfile`, `copy_file_range`, `splice`: data moved without a read.
    Move = 20,
    /// `syscall(SYS_io_uring_setup)`: reads that follow cannot be seen.
    Uring = 21,
    /// From Python. `kind`: a [`Mark`]. `file`, `offset`, `asked`: its three arguments.
    Mark = 22,
    /// A text. `kind`: a [`TextKind`]. `file`: what it belongs to. `asked`: bytes of it that are kept. Its bytes
    /// follow in continuations.
    Text = 23,
    /// `_exit` and `exit`. Nothing depends on it.
    Exit = 24,
}

/// The number of operations with totals.
pub const OPS: usize = 25;

/// What a descriptor refers to.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FdKind {
    Unknown = 0,
    Regular = 1,
    Folder = 2,
    Pipe = 3,
    Socket = 4,
    /// Terminals, /dev/null, eventfd and others.
    Other = 5,
    /// Files in /dev/shm and memfds: how processes exchange tensors.
    Memory = 6,
    /// Files of /proc and /sys.
    System = 7,
}

/// The descriptor or mapping was inherited from a parent by `fork`.
pub const INHERITED: u16 = 1;
/// The file is program code: Python modules, shared libraries, configuration. Everything else of kind Regular is
/// data.
pub const CODE: u16 = 2;
/// The call has its own offset (`pread`).
pub const POSITIONED: u16 = 4;
/// The file is opened with O_DIRECT.
pub const DIRECT: u16 = 8;
/// The file is opened for writing.
pub const WRITABLE: u16 = 16;
/// The text was longer; this is its end.
pub const CUT: u16 = 32;
/// Of a mapping: MAP_SHARED.
pub const SHARED: u16 = 64;

/// What Python marks.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// a: number of the loader in its process. b: workers | persistent << 16 | iterable << 17 | start method << 18
    /// (0 fork, 1 spawn, 2 forkserver) | pin_memory << 20 | shuffles in memory << 21 | framework << 24 (1 PyTorch,
    /// 2 TensorFlow, 3 Keras, 4 unknown, from traces). c: batch size | prefetch factor << 32.
    Loader = 1,
    /// a: loader, b: the loader's epoch from 0, c: batches expected, or -1.
    EpochBegin = 2,
    /// a: loader, b: number of the batch from 0, c: number of the worker that loads it, or -1.
    WaitBegin = 3,
    /// a: loader, b: number of the batch, or -1 if there was no further one. c: samples in the batch, or -1.
    WaitEnd = 4,
    /// a: loader, b: epoch. Absent if an iterator is abandoned.
    EpochEnd = 5,
    /// In a worker. a: its number, b: workers of the loader.
    Worker = 6,
    /// In a worker, or in the rank if there are none. a: samples asked for, or -1.
    FetchBegin = 7,
    /// a: samples returned. b: 1 if the fetch ended by StopIteration.
    FetchEnd = 8,
    /// Before an `open` of this thread. a: number of the call site, whose text was sent before.
    Site = 9,
    /// A module was prepared. a: 1 torch loader, 2 torch worker, 3 torch fetch, 4 TensorFlow, 5 Keras, 6 functions
    /// that save. b: 1 done, 0 failed.
    Prepared = 10,
    /// From Keras' callbacks, where batches cannot be seen. a: loader, b: step. c: 1 begin, 0 end.
    Step = 11,
    /// `torch.save` and relatives. a: 1 begin, 0 end.
    Checkpoint = 12,
    /// In the rank. a: number of modules imported when a worker started. In a worker: b = 1.
    Modules = 13,
    /// Of an epoch that began. a: loader, b: 1 if gradients are recorded, 0 if not, -1 not known. c: hash of the plain
    /// values of the data set object in the rank, or 0.
    Context = 14,
    /// Of the batch of the last wait. a: loader, b, c: hashes of some values of its first and last tensor, or 0.
    Content = 15,
}

/// What a text says.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextKind {
    /// The path of the file with inode `file`.
    Path = 1,
    /// Call site number `file`: `train.py:31 in __getitem__`.
    Site = 2,
    /// A note of the library or of the marks: what could not be observed.
    Note = 3,
    /// The path of a folder that is listed.
    Folder = 4,
    /// The program that process `file` executes. In the slot of that process before `execve`, where `file` is 0, or in
    /// that of its parent. Empty: it could not be executed.
    Program = 5,
}

/// Totals of one operation. Exact, whatever happens to events.
#[repr(C)]
#[derive(Debug)]
pub struct OpTotals {
    pub calls: AtomicU64,
    pub bytes: AtomicU64,
    pub ns: AtomicU64,
    pub errors: AtomicU64,
}

/// The header of a slot.
#[repr(C)]
#[derive(Debug)]
pub struct SlotHeader {
    pub pid: AtomicU32,
    /// The parent when the slot was claimed.
    pub parent: AtomicU32,
    /// CLOCK_MONOTONIC when the slot was claimed; written last, so that 0 means that the header is incomplete.
    pub started_ns: AtomicU64,
    /// 1: the image of a new program. 0: a fork of the parent.
    pub executed: AtomicU32,
    /// Bytes of `command` that are used.
    pub command_bytes: AtomicU32,
    /// RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID or PMI_RANK, and the matching number of ranks; -1: not set.
    pub rank: AtomicI64,
    pub ranks: AtomicI64,
    /// Positions: the next one to write, and the next one that feedline reads.
    pub head: AtomicU64,
    pub tail: AtomicU64,
    /// Events that found no room.
    pub dropped: AtomicU64,
    /// Calls on descriptors beyond the library's table.
    pub untracked: AtomicU64,
    /// By operation: all calls, and those on data files (kind Regular, not CODE).
    pub totals: [OpTotals; OPS],
    pub data: [OpTotals; OPS],
    /// Arguments of the program, each with a NUL byte behind it.
    pub command: [u8; COMMAND_BYTES],
}

/// An event. A continuation of a text has the `seq` of its own position and [`TEXT_BYTES`] bytes of text after it;
/// it is written before the `seq` of the event that it continues.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// The low bits of its position + 1; written last.
    pub seq: AtomicU32,
    pub op: u8,
    pub kind: u8,
    pub flags: u16,
    pub tid: u32,
    pub fd: i32,
    pub start_ns: u64,
    /// The inode number; 0 if unknown.
    pub file: u64,
    pub offset: i64,
    pub asked: u64,
    /// What the call returned, or -errno.
    pub result: i64,
    /// At most 2^32 - 1.
    pub duration_ns: u32,
    /// The device number of the file: major << 20 | minor.
    pub device: u32,
}

const _: () = assert!(size_of::<Event>() == EVENT_BYTES);
const _: () = assert!(size_of::<SlotHeader>() <= HEADER_BYTES);
const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);

/// The hash that decides which files are kept in detail. Of the inode only: device numbers differ between hosts.
pub const fn file_hash(inode: u64) -> u64 {
    let mut x = inode.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Whether a file is kept in detail.
pub const fn is_kept(inode: u64, sample_bits: u32) -> bool {
    file_hash(inode).leading_zeros() >= sample_bits
}
