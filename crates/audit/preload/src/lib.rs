//! The library that `feedline audit` loads into every process of a job with `LD_PRELOAD`. It records calls of the C
//! library that concern files, into memory that feedline reads.
//!
//! A crash of the job is the worst that it can cause. So it must not allocate, lock, panic, need much stack or
//! change `errno`, and it passes every call through when feedline is absent. It opens its own files by raw system
//! calls, so that its hooks do not see them.

#![no_std]
// Every hook is an unsafe function whose whole body acts on arguments of the job.
#![allow(unsafe_op_in_unsafe_fn)]

mod classify;
mod environment;
mod fds;
mod file_class;
mod hooks;
#[allow(dead_code)]
mod layout;
mod maps;
mod process;
mod raw;
mod real;
mod ring;

/// Runs before `main`, but after the constructors of the libraries of the program, which may have called hooks
/// before.
extern "C" fn constructor() {
    // SAFETY: `errno` of the thread that loads the program.
    unsafe {
        let errno = raw::errno();
        real::resolve_all();
        process::current();
        raw::set_errno(errno);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Nothing in here panics: the check of the library looks for this function's text in the result.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    raw::end_process(b"feedline-preload panicked\n")
}
