//! Calls that run another program. Programs are observed as well if they are started with an environment that lacks
//! the variables of feedline.

use core::ffi::{c_char, c_int};

use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use super::{Done, record};
use crate::classify::bytes;
use crate::environment::{completed, own};
use crate::fds::FdView;
use crate::layout::{Op, TextKind};
use crate::process;
use crate::{raw, real};

type Texts = *const *const c_char;

/// Records that a program starts in process `pid`, with the name of the program: one that is linked statically
/// leaves nothing else. `result` is that of the event.
unsafe fn starts(program: *const c_char, start: u64, pid: u32, result: i64) {
    let Some(process) = process::current() else { return };
    process.memory().text(TextKind::Program, pid.into(), 0, process.tid(), bytes(program));
    record(process, &FdView::NONE, &Done { result, ..Done::new(Op::Spawn, -1, start, 0) });
}

/// Before `exec`. In a child of `vfork` this is recorded with its parent, in whose memory it runs.
unsafe fn before_exec(program: *const c_char) {
    let Some(process) = process::current() else { return };
    let pid = if process.is_itself() { 0 } else { raw::getpid() };
    starts(program, raw::now(), pid, i64::from(pid));
}

/// `exec` returned, so it failed: no program was started.
unsafe fn after_exec() {
    let Some(process) = process::current() else { return };
    let pid = if process.is_itself() { 0 } else { raw::getpid() };
    process.memory().text(TextKind::Program, pid.into(), 0, process.tid(), &[]);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(program: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    // Unless it will fail, as when a program is searched for in one folder after another.
    let here = libc::AT_FDCWD as isize as usize;
    let asked = [here, program as usize, libc::X_OK as usize, 0, 0, 0];
    let can_start = process::current().is_some() && raw::syscall(libc::SYS_faccessat, asked) == 0;
    if can_start {
        before_exec(program);
    }
    let result = completed(environment, |environment| match real::execve() {
        Some(real) => real(program, arguments, environment),
        None => {
            let arguments = [program as usize, arguments as usize, environment as usize, 0, 0, 0];
            raw::syscall_as_libc(libc::SYS_execve, arguments) as c_int
        }
    });
    if can_start {
        after_exec();
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(program: *const c_char, arguments: Texts) -> c_int {
    execve(program, arguments, own())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(program: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let Some(real) = real::execvpe() else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    before_exec(program);
    let result = completed(environment, |environment| real(program, arguments, environment));
    after_exec();
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(program: *const c_char, arguments: Texts) -> c_int {
    execvpe(program, arguments, own())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Texts, environment: Texts) -> c_int {
    let Some(real) = real::fexecve() else {
        raw::set_errno(libc::ENOSYS);
        return -1;
    };
    completed(environment, |environment| real(fd, arguments, environment))
}

macro_rules! posix_spawn {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut pid_t,
            program: *const c_char,
            actions: *const posix_spawn_file_actions_t,
            attributes: *const posix_spawnattr_t,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            let Some(real) = real::$name() else { return libc::ENOSYS };
            let start = raw::now();
            let mut child: pid_t = 0;
            let result = completed(environment.cast(), |environment| {
                real(&raw mut child, program, actions, attributes, arguments, environment.cast())
            });
            if !pid.is_null() && result == 0 {
                *pid = child;
            }
            if result == 0 {
                starts(program, start, child as u32, child.into());
            }
            result
        }
    )*};
}
posix_spawn! { posix_spawn posix_spawnp }
