//! The environment: the variables with which feedline started the job, and how they reach programs that are started
//! with another environment.

use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::ptr::null;

use crate::classify::bytes;
use crate::layout::{LIBRARY_VARIABLE, PYTHON_VARIABLE, RING_VARIABLE};
use crate::process;
use crate::raw;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Bytes of a variable with its name. A longer one is not kept.
const VARIABLE_BYTES: usize = 1024;
/// A new environment of this number of words is made on the stack, a larger one in memory of its own.
const STACK_WORDS: usize = 768;

/// Variables of the environment, as `NAME=value` with a NUL byte.
pub(crate) struct Kept {
    ring: UnsafeCell<[u8; VARIABLE_BYTES]>,
    library: UnsafeCell<[u8; VARIABLE_BYTES]>,
    python: UnsafeCell<[u8; VARIABLE_BYTES]>,
}

// SAFETY: written once, by the only thread that sets up the process.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept {
    ring: UnsafeCell::new([0; VARIABLE_BYTES]),
    library: UnsafeCell::new([0; VARIABLE_BYTES]),
    python: UnsafeCell::new([0; VARIABLE_BYTES]),
};

/// The value of a variable in an environment.
unsafe fn value_in<'a>(environment: *const *const c_char, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = environment;
    while !at.is_null() && !(*at).is_null() {
        if let Some(value) = bytes(*at).strip_prefix(name).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        at = at.add(1);
    }
    None
}

unsafe fn keep_one(name: &str, to: &UnsafeCell<[u8; VARIABLE_BYTES]>) -> bool {
    let Some(value) = value_in(environ, name.as_bytes()) else { return false };
    let to = &mut *to.get();
    if value.is_empty() || name.len() + value.len() + 2 > to.len() {
        return false;
    }
    let text = name.as_bytes().iter().chain(b"=").chain(value);
    for (place, byte) in to.iter_mut().zip(text) {
        *place = *byte;
    }
    true
}

/// Keeps the variables of feedline, and returns the path of its memory.
pub(crate) unsafe fn keep() -> Option<*const u8> {
    if !keep_one(RING_VARIABLE, &KEPT.ring) {
        return None;
    }
    keep_one(LIBRARY_VARIABLE, &KEPT.library);
    keep_one(PYTHON_VARIABLE, &KEPT.python);
    Some(Kept::ring_path())
}

impl Kept {
    /// The path of feedline's memory, with a NUL byte.
    pub(crate) fn ring_path() -> *const u8 {
        // SAFETY: within the buffer, which ends with a NUL byte.
        unsafe { KEPT.ring.get().cast::<u8>().add(RING_VARIABLE.len() + 1) }
    }

    /// A variable without its NUL byte, and its value. Empty if feedline did not set it.
    unsafe fn text(of: &UnsafeCell<[u8; VARIABLE_BYTES]>, name: &str) -> (&'static [u8], &'static [u8]) {
        let whole = bytes(of.get().cast::<c_char>());
        (whole, whole.get(name.len() + 1..).unwrap_or(&[]))
    }
}

fn number(text: &[u8]) -> Option<i64> {
    let digit = |sum: i64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

/// The number of this process among those of a distributed job, and how many there are; -1 if the launcher does not
/// say.
pub(crate) unsafe fn rank() -> (i64, i64) {
    let names: [(&[u8], &[u8]); 4] = [
        (b"RANK", b"WORLD_SIZE"),
        (b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_SIZE"),
        (b"SLURM_PROCID", b"SLURM_NTASKS"),
        (b"PMI_RANK", b"PMI_SIZE"),
    ];
    for (rank, ranks) in names {
        if let Some(rank) = value_in(environ, rank).and_then(number) {
            return (rank, value_in(environ, ranks).and_then(number).unwrap_or(-1));
        }
    }
    (-1, -1)
}

/// What an environment must contain so that a program is observed.
#[derive(Clone, Copy)]
struct Wanted {
    name: &'static [u8],
    value: &'static [u8],
    /// The variable is a list, to which the value is added: in front, or at the end.
    separator: Option<u8>,
}

/// Whether a list starts with the run-time library of a sanitizer, which refuses to work in any other place.
fn starts_with_sanitizer(list: &[u8]) -> bool {
    let first =
        list.split(|byte| *byte == b':' || *byte == b' ').find(|part| !part.is_empty()).unwrap_or(&[]);
    let name = first.rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
    let names: [&[u8]; 4] = [b"asan", b"tsan", b"msan", b"lsan"];
    name.windows(4).any(|part| names.contains(&part))
}

impl Wanted {
    /// The value that it has in the environment already, if that is right.
    unsafe fn is_in(&self, environment: *const *const c_char) -> bool {
        match (value_in(environment, self.name), self.separator) {
            (None, _) => self.value.is_empty(),
            (Some(_), None) => true,
            (Some(list), Some(separator)) => {
                self.value.is_empty() || list.split(|byte| *byte == separator).any(|part| part == self.value)
            }
        }
    }

    /// Bytes of `NAME=value` in the new environment.
    unsafe fn size(&self, environment: *const *const c_char) -> usize {
        let old = value_in(environment, self.name).map_or(0, <[u8]>::len);
        self.name.len() + self.value.len() + old + 3
    }

    /// Writes `NAME=value`, and returns the next free byte.
    unsafe fn write(&self, environment: *const *const c_char, to: *mut u8) -> *mut u8 {
        let old = value_in(environment, self.name).filter(|old| !old.is_empty());
        let separator = self.separator.unwrap_or(b':');
        let parts: [&[u8]; 3] = match old {
            None => [self.value, b"", b""],
            Some(old) if starts_with_sanitizer(old) => [old, &[separator], self.value],
            Some(old) => [self.value, &[separator], old],
        };
        let mut at = to;
        for part in [self.name, b"="].into_iter().chain(parts).chain([&b"\0"[..]]) {
            core::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
            at = at.add(part.len());
        }
        at
    }
}

unsafe fn wanted() -> [Wanted; 6] {
    let ring = Kept::text(&KEPT.ring, RING_VARIABLE).1;
    let library = Kept::text(&KEPT.library, LIBRARY_VARIABLE).1;
    let python = Kept::text(&KEPT.python, PYTHON_VARIABLE).1;
    // A program that is linked with the address sanitizer ends at once if another library comes before the
    // sanitizer's.
    let order: &[u8] = if library.is_empty() { b"" } else { b"verify_asan_link_order=0" };
    let one = |name: &'static str, value| Wanted { name: name.as_bytes(), value, separator: None };
    let list = |name: &'static str, value| Wanted { name: name.as_bytes(), value, separator: Some(b':') };
    [
        one(RING_VARIABLE, ring),
        one(LIBRARY_VARIABLE, library),
        one(PYTHON_VARIABLE, python),
        list("LD_PRELOAD", library),
        list("PYTHONPATH", python),
        list("ASAN_OPTIONS", order),
    ]
}

/// Calls `run` with the environment, or with a copy that has the variables of feedline.
#[cold]
pub(crate) unsafe fn completed<T>(
    environment: *const *const c_char,
    run: impl FnOnce(*const *const c_char) -> T,
) -> T {
    let wanted = wanted();
    if process::current().is_none() || wanted.iter().all(|one| one.is_in(environment)) {
        return run(environment);
    }
    let mut count = 0;
    while !environment.is_null() && !(*environment.add(count)).is_null() {
        count += 1;
    }
    let pointers = count + wanted.len() + 1;
    let text: usize = wanted.iter().map(|one| one.size(environment)).sum();
    let words = pointers + text.div_ceil(8);
    if words <= STACK_WORDS {
        let mut space = [0_usize; STACK_WORDS];
        return run(fill(environment, &wanted, pointers, space.as_mut_ptr()));
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let space = raw::mmap(0, words * 8, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    if (-4095..=0).contains(&space) {
        return run(environment);
    }
    let result = run(fill(environment, &wanted, pointers, space as *mut usize));
    raw::munmap(space as usize, words * 8);
    result
}

/// Writes the new environment into `space`: pointers, then the texts.
unsafe fn fill(
    environment: *const *const c_char,
    wanted: &[Wanted],
    pointers: usize,
    space: *mut usize,
) -> *const *const c_char {
    let start = space.cast::<*const c_char>();
    let mut to = start;
    let mut text = space.add(pointers).cast::<u8>();
    let mut from = environment;
    let is_replaced = |entry: &[u8]| {
        wanted.iter().any(|one| {
            let is_it = entry.strip_prefix(one.name).is_some_and(|rest| rest.starts_with(b"="));
            is_it && !one.is_in(environment)
        })
    };
    while !from.is_null() && !(*from).is_null() {
        if !is_replaced(bytes(*from)) {
            *to = *from;
            to = to.add(1);
        }
        from = from.add(1);
    }
    for one in wanted.iter().filter(|one| !one.is_in(environment)) {
        *to = text.cast();
        to = to.add(1);
        text = one.write(environment, text);
    }
    *to = null();
    start
}

/// The environment of this process.
pub(crate) fn own() -> *const *const c_char {
    // SAFETY: a variable of the C library.
    unsafe { environ }
}
