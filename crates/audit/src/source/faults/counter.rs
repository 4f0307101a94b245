//! Events of the kernel that count page faults, opened with `perf_event_open` for a thread and everything that it
//! starts.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

const SOFTWARE: u32 = 1;
/// What a record of a sample contains, in this order: the number of its event, process and thread, time, address.
const SAMPLE: u64 = IDENTIFIER | TID | TIME | ADDRESS;
const IDENTIFIER: u64 = 1 << 16;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDRESS: u64 = 1 << 3;

const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const USE_CLOCK: u64 = 1 << 25;

const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_ENABLE` and its relatives: the same on x86-64 and 64-bit ARM.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const SET_OUTPUT: libc::c_ulong = 0x2405;
const ID: libc::c_ulong = 0x8008_2407;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFaultKind {
    /// Faults that do not wait for storage.
    Minor = 5,
    /// Faults that wait for storage.
    Major = 6,
}

/// `struct perf_event_attr`, up to the field that selects the clock.
#[repr(C)]
#[derive(Debug, Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_registers: u64,
    sample_stack: u32,
    clock: i32,
}

/// `PERF_ATTR_SIZE_VER3`: since Linux 4.1.
const ATTRIBUTES_BYTES: usize = 96;
const _: () = assert!(size_of::<EventAttributes>() == ATTRIBUTES_BYTES);

/// An event of one kind on one CPU.
#[derive(Debug)]
pub(super) struct FaultEvent {
    pub(super) file: File,
    /// The number in its records, also in those of processes that inherited it.
    pub(super) number: u64,
}

impl FaultEvent {
    /// Every fault of what this thread starts from now on, on a CPU. Major faults are recorded from the next `exec`
    /// on, minor faults when they are switched on. `user_only`: without faults that the kernel itself takes in
    /// memory of the process, which an unprivileged user may not see.
    pub(super) fn open(kind: PageFaultKind, cpu: u32, user_only: bool) -> io::Result<FaultEvent> {
        let mut flags = DISABLED | INHERIT | USE_CLOCK;
        if kind == PageFaultKind::Major {
            flags |= ENABLE_ON_EXEC;
        }
        if user_only {
            flags |= EXCLUDE_KERNEL;
        }
        let attributes = EventAttributes {
            kind: SOFTWARE,
            size: ATTRIBUTES_BYTES as u32,
            config: kind as u64,
            sample_period: 1,
            sample_type: SAMPLE,
            flags,
            clock: libc::CLOCK_MONOTONIC,
            ..EventAttributes::default()
        };
        let (this_thread, no_group): (libc::pid_t, libc::c_int) = (0, -1);
        // SAFETY: the kernel reads as many bytes of the attributes as their size says.
        let fd = unsafe {
            let at = &raw const attributes;
            libc::syscall(libc::SYS_perf_event_open, at, this_thread, cpu, no_group, CLOSE_ON_EXEC)
        };
        let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a new descriptor that has no other owner.
        let mut event = FaultEvent { file: unsafe { File::from_raw_fd(fd) }, number: 0 };
        let mut number = 0_u64;
        event.control(ID, &raw mut number as libc::c_ulong)?;
        event.number = number;
        Ok(event)
    }

    fn control(&self, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the argument is a number, or an address that is valid for the request.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Records the event from now on, in all processes that inherited it, or no longer.
    pub(super) fn switch(&self, on: bool) -> io::Result<()> {
        self.control(if on { ENABLE } else { DISABLE }, 0)
    }

    /// Writes into the ring of another event of the same CPU.
    pub(super) fn share_ring(&self, with: &FaultEvent) -> io::Result<()> {
        self.control(SET_OUTPUT, with.file.as_raw_fd() as libc::c_ulong)
    }
}
