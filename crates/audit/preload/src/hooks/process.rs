//! Calls that make processes and threads, and that end a process.

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_ulong, c_void};

use libc::{pid_t, pthread_attr_t, pthread_t};

use super::{Done, record};
use crate::fds::FdView;
use crate::layout::Op;
use crate::process::{self, Observed};
use crate::{raw, real};

/// The real `vfork`; this thread is two processes from now on. It leaves no event: the program that its child
/// executes does.
unsafe extern "C" fn before_vfork() -> usize {
    (*raw::thread()).vforked = 1;
    real::vfork().or(real::fork()).map_or(0, |real| real as usize)
}

/// `vfork` returns twice, so this function must have left the stack before.
macro_rules! vfork {
    ($($name:ident)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!("sub rsp, 8", "call {before}", "add rsp, 8", "jmp rax", before = sym before_vfork)
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "stp x29, x30, [sp, #-16]!",
                "bl {before}",
                "ldp x29, x30, [sp], #16",
                "mov x16, x0",
                "br x16",
                before = sym before_vfork,
            )
        }
    )*};
}
vfork! { vfork __vfork }

macro_rules! fork {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> pid_t {
            let Some(real) = real::$name() else {
                raw::set_errno(libc::ENOSYS);
                return -1;
            };
            let Some(process) = process::current() else { return real() };
            let start = raw::now();
            let child = real();
            if child == 0 {
                process::is_child_of_fork();
            } else {
                record(process, &FdView::NONE, &Done::new(Op::Fork, -1, start, child.into()));
            }
            child
        }
    )*};
}
fork! { fork _Fork }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    run: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    argument: *mut c_void,
) -> c_int {
    let Some(real) = real::pthread_create() else { return libc::EAGAIN };
    let Some(process) = process::current() else { return real(thread, attributes, run, argument) };
    let start = raw::now();
    let result = real(thread, attributes, run, argument);
    let mut done = Done::new(Op::Thread, -1, start, 0);
    done.result = -i64::from(result);
    record(process, &FdView::NONE, &done);
    result
}

/// Records the end, unless this is a child of `vfork`.
fn ends(status: c_int) {
    if let Some(process) = process::current().filter(|process: &Observed| process.is_itself()) {
        record(process, &FdView::NONE, &Done::new(Op::Exit, -1, raw::now(), i64::from(status & 0xff)));
    }
}

macro_rules! exit {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            ends(status);
            if let Some(real) = real::$name() {
                real(status);
            }
            loop {
                raw::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]);
            }
        }
    )*};
}
exit! { _exit _Exit exit }

const PR_SET_SECCOMP: c_int = 22;
const FILTER: c_ulong = 1;

/// Whether a call restricts system calls. Without a filter, programs only ask whether they could.
fn restricts(mode: c_ulong, filter: c_ulong) -> bool {
    mode < FILTER || (mode == FILTER && filter != 0)
}

/// `prctl`: variadic in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    let call = || match real::prctl() {
        Some(real) => real(option, a, b, c, d),
        None => {
            let arguments = [option as usize, a as usize, b as usize, c as usize, d as usize, 0];
            raw::syscall_as_libc(libc::SYS_prctl, arguments) as c_int
        }
    };
    // A mode of 1 is the strict one here, and 2 the one with a filter.
    if option != PR_SET_SECCOMP || !restricts(a.wrapping_sub(1), b) {
        return call();
    }
    let page = process::leave();
    let result = call();
    if result != 0 {
        process::come_back(page);
    }
    result
}

/// `syscall`: only `io_uring_setup` and `seccomp` are of interest. Everything else jumps to the real function with
/// registers and stack as they are, so that this function is not in between, whatever the system call does.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {setup}",
        "je {observed}",
        "cmp rdi, {seccomp}",
        "je {observed}",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {real}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test rax, rax",
        "je {observed}",
        "jmp rax",
        setup = const libc::SYS_io_uring_setup,
        seccomp = const libc::SYS_seccomp,
        observed = sym observed_syscall,
        real = sym real_syscall,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp x0, {setup}",
        "b.eq {observed}",
        "cmp x0, {seccomp}",
        "b.eq {observed}",
        "stp x29, x30, [sp, #-80]!",
        "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]", "stp x4, x5, [sp, #48]", "str x6, [sp, #64]",
        "bl {real}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]", "ldp x4, x5, [sp, #48]", "ldr x6, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        "cbz x16, {observed}",
        "br x16",
        setup = const libc::SYS_io_uring_setup,
        seccomp = const libc::SYS_seccomp,
        observed = sym observed_syscall,
        real = sym real_syscall,
    )
}

/// The address of the real function, or 0.
unsafe extern "C" fn real_syscall() -> usize {
    real::syscall().map_or(0, |real| real as usize)
}

/// The system calls of interest, and all of them if there is no real function.
unsafe extern "C" fn observed_syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    let arguments = [a, b, c, d, e, f].map(|argument| argument as usize);
    let Some(real) = real::syscall() else { return raw::syscall_as_libc(number, arguments) as c_long };
    if number == libc::SYS_seccomp {
        let page = restricts(a, c).then(|| process::leave());
        let result = real(number, a, b, c, d, e, f);
        page.filter(|_| result != 0).inspect(|page| process::come_back(*page));
        return result;
    }
    let start = raw::now();
    let result = real(number, a, b, c, d, e, f);
    if let Some(process) = process::current() {
        record(process, &FdView::NONE, &Done::new(Op::Uring, result as c_int, start, result));
    }
    result
}
