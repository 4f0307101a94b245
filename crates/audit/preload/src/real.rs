//! The functions that the hooks stand for: what the program would have called without this library. They are found
//! by `dlsym(RTLD_NEXT)`, so that other preloaded libraries keep their place. All of them are looked up at the
//! start, because a look-up after the fork of a process with threads can block, and again at need, because
//! constructors of others come first.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use libc::{
    DIR, FILE, dirent, epoll_event, fd_set, iovec, mode_t, msghdr, nfds_t, off_t, pid_t, pollfd,
    posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

use crate::raw;

// The oldest versions of these functions, which every C library has.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".symver dlsym, dlsym@GLIBC_2.2.5",
    ".symver dlopen, dlopen@GLIBC_2.2.5",
    ".symver dlerror, dlerror@GLIBC_2.2.5",
);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".symver dlsym, dlsym@GLIBC_2.17",
    ".symver dlopen, dlopen@GLIBC_2.17",
    ".symver dlerror, dlerror@GLIBC_2.17",
);

/// A function that is found once.
pub(crate) struct Symbol {
    name: &'static [u8],
    address: AtomicPtr<c_void>,
}

impl Symbol {
    const fn new(name: &'static str) -> Self {
        Self { name: name.as_bytes(), address: AtomicPtr::new(null_mut()) }
    }

    #[inline(always)]
    unsafe fn get(&self) -> *mut c_void {
        let address = self.address.load(Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    /// Null if there is none, or if the search itself came here: an allocator may read files when `dlsym` calls it.
    #[cold]
    unsafe fn find(&self) -> *mut c_void {
        let thread = raw::thread();
        if (*thread).resolving != 0 {
            return null_mut();
        }
        let errno = raw::errno();
        (*thread).resolving = 1;
        let address = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast());
        if address.is_null() {
            // Or the program would take the error for one of its own.
            libc::dlerror();
        }
        (*thread).resolving = 0;
        self.address.store(address, Relaxed);
        raw::set_errno(errno);
        address
    }
}

macro_rules! symbols {
    ($($name:ident: $type:ty;)*) => {
        #[allow(non_upper_case_globals)]
        mod symbol {
            use super::Symbol;
            $(pub(super) static $name: Symbol = Symbol::new(concat!(stringify!($name), "\0"));)*
        }

        $(
            #[allow(non_snake_case)]
            #[inline(always)]
            pub(crate) unsafe fn $name() -> Option<$type> {
                core::mem::transmute::<*mut c_void, Option<$type>>(symbol::$name.get())
            }
        )*

        /// Finds all of them.
        #[cold]
        pub(crate) unsafe fn resolve_all() {
            for symbol in [$(&symbol::$name),*] {
                symbol.get();
            }
            find_clock();
        }
    };
}

/// Finds the clock of the C library, whatever other libraries stand for it.
unsafe fn find_clock() {
    let thread = raw::thread();
    (*thread).resolving = 1;
    let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
    let clock = if library.is_null() { null_mut() } else { libc::dlsym(library, raw::CLOCK_NAME.as_ptr()) };
    if clock.is_null() {
        libc::dlerror();
    }
    (*thread).resolving = 0;
    raw::set_clock(clock);
}

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type OpenFn = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAtFn = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type FopenFn = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
type FreopenFn = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
type PreadFn = unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type PwriteFn = unsafe extern "C" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type VectorFn = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
type VectorAtFn = unsafe extern "C" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type VectorFlagsFn = unsafe extern "C" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
type LseekFn = unsafe extern "C" fn(c_int, off_t, c_int) -> off_t;
type MmapFn = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
type FreadFn = unsafe extern "C" fn(*mut c_void, size_t, size_t, *mut FILE) -> size_t;
type FreadChkFn = unsafe extern "C" fn(*mut c_void, size_t, size_t, size_t, *mut FILE) -> size_t;
type FwriteFn = unsafe extern "C" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t;
type FgetsFn = unsafe extern "C" fn(*mut c_char, c_int, *mut FILE) -> *mut c_char;
type FgetsChkFn = unsafe extern "C" fn(*mut c_char, size_t, c_int, *mut FILE) -> *mut c_char;
type GetdelimFn = unsafe extern "C" fn(*mut *mut c_char, *mut size_t, c_int, *mut FILE) -> ssize_t;
type FseekFn = unsafe extern "C" fn(*mut FILE, c_long, c_int) -> c_int;
type StatFn = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type FstatFn = unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int;
type FstatatFn = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
type XstatFn = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat) -> c_int;
type FxstatFn = unsafe extern "C" fn(c_int, c_int, *mut libc::stat) -> c_int;
type FxstatatFn = unsafe extern "C" fn(c_int, c_int, *const c_char, *mut libc::stat, c_int) -> c_int;
type FadviseFn = unsafe extern "C" fn(c_int, off_t, off_t, c_int) -> c_int;
type ExecFn = unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
type SpawnFn = unsafe extern "C" fn(
    *mut pid_t,
    *const c_char,
    *const posix_spawn_file_actions_t,
    *const posix_spawnattr_t,
    *const *mut c_char,
    *const *mut c_char,
) -> c_int;
type ScandirFn = unsafe extern "C" fn(*const c_char, *mut c_void, *const c_void, *const c_void) -> c_int;
type SendfileFn = unsafe extern "C" fn(c_int, c_int, *mut off_t, size_t) -> ssize_t;
type ExitFn = unsafe extern "C" fn(c_int) -> !;
type PathFn = unsafe extern "C" fn(*const c_char) -> c_int;

symbols! {
    open: OpenFn;
    open64: OpenFn;
    openat: OpenAtFn;
    openat64: OpenAtFn;
    creat: unsafe extern "C" fn(*const c_char, mode_t) -> c_int;
    creat64: unsafe extern "C" fn(*const c_char, mode_t) -> c_int;
    __open_2: unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    __open64_2: unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    __openat_2: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
    __openat64_2: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
    shm_open: unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
    memfd_create: unsafe extern "C" fn(*const c_char, c_uint) -> c_int;
    close: unsafe extern "C" fn(c_int) -> c_int;
    close_range: unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
    closefrom: unsafe extern "C" fn(c_int);
    dup: unsafe extern "C" fn(c_int) -> c_int;
    dup2: unsafe extern "C" fn(c_int, c_int) -> c_int;
    dup3: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
    fcntl: unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
    fcntl64: unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

    read: unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
    __read_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    pread: PreadFn;
    pread64: PreadFn;
    __pread_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    __pread64_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    readv: VectorFn;
    preadv: VectorAtFn;
    preadv64: VectorAtFn;
    preadv2: VectorFlagsFn;
    preadv64v2: VectorFlagsFn;
    write: unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    pwrite: PwriteFn;
    pwrite64: PwriteFn;
    writev: VectorFn;
    pwritev: VectorAtFn;
    pwritev64: VectorAtFn;
    pwritev2: VectorFlagsFn;
    pwritev64v2: VectorFlagsFn;
    lseek: LseekFn;
    lseek64: LseekFn;
    fsync: unsafe extern "C" fn(c_int) -> c_int;
    fdatasync: unsafe extern "C" fn(c_int) -> c_int;
    sendfile: SendfileFn;
    sendfile64: SendfileFn;
    copy_file_range: unsafe extern "C" fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    splice: unsafe extern "C" fn(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    posix_fadvise: FadviseFn;
    posix_fadvise64: FadviseFn;
    readahead: unsafe extern "C" fn(c_int, off_t, size_t) -> ssize_t;
    mmap: MmapFn;
    mmap64: MmapFn;
    munmap: unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
    madvise: unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;
    posix_madvise: unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;

    fopen: FopenFn;
    fopen64: FopenFn;
    freopen: FreopenFn;
    freopen64: FreopenFn;
    fclose: unsafe extern "C" fn(*mut FILE) -> c_int;
    pclose: unsafe extern "C" fn(*mut FILE) -> c_int;
    fread: FreadFn;
    fread_unlocked: FreadFn;
    __fread_chk: FreadChkFn;
    __fread_unlocked_chk: FreadChkFn;
    fwrite: FwriteFn;
    fwrite_unlocked: FwriteFn;
    fgets: FgetsFn;
    fgets_unlocked: FgetsFn;
    __fgets_chk: FgetsChkFn;
    __fgets_unlocked_chk: FgetsChkFn;
    getline: unsafe extern "C" fn(*mut *mut c_char, *mut size_t, *mut FILE) -> ssize_t;
    getdelim: GetdelimFn;
    __getdelim: GetdelimFn;
    fseek: FseekFn;
    fseeko: FseekFn;
    fseeko64: FseekFn;
    rewind: unsafe extern "C" fn(*mut FILE);

    stat: StatFn;
    stat64: StatFn;
    lstat: StatFn;
    lstat64: StatFn;
    fstat: FstatFn;
    fstat64: FstatFn;
    fstatat: FstatatFn;
    fstatat64: FstatatFn;
    __xstat: XstatFn;
    __xstat64: XstatFn;
    __lxstat: XstatFn;
    __lxstat64: XstatFn;
    __fxstat: FxstatFn;
    __fxstat64: FxstatFn;
    __fxstatat: FxstatatFn;
    __fxstatat64: FxstatatFn;
    statx: unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut libc::statx) -> c_int;
    access: unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    faccessat: unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int;
    opendir: unsafe extern "C" fn(*const c_char) -> *mut DIR;
    fdopendir: unsafe extern "C" fn(c_int) -> *mut DIR;
    closedir: unsafe extern "C" fn(*mut DIR) -> c_int;
    readdir: unsafe extern "C" fn(*mut DIR) -> *mut dirent;
    readdir64: unsafe extern "C" fn(*mut DIR) -> *mut dirent;
    scandir: ScandirFn;
    scandir64: ScandirFn;
    rename: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
    renameat: unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char) -> c_int;
    renameat2: unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int;
    unlink: PathFn;
    unlinkat: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
    remove: PathFn;

    poll: unsafe extern "C" fn(*mut pollfd, nfds_t, c_int) -> c_int;
    __poll_chk: unsafe extern "C" fn(*mut pollfd, nfds_t, c_int, size_t) -> c_int;
    ppoll: unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    select: unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect:
        unsafe extern "C" fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
    epoll_wait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait: unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    recv: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    __recv_chk: unsafe extern "C" fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t;
    recvfrom: unsafe extern "C" fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    recvmsg: unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> ssize_t;

    prctl: unsafe extern "C" fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    fork: unsafe extern "C" fn() -> pid_t;
    _Fork: unsafe extern "C" fn() -> pid_t;
    vfork: unsafe extern "C" fn() -> pid_t;
    execve: ExecFn;
    execvpe: ExecFn;
    fexecve: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
    posix_spawn: SpawnFn;
    posix_spawnp: SpawnFn;
    pthread_create:
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Option<Start>, *mut c_void) -> c_int;
    _exit: ExitFn;
    _Exit: ExitFn;
    exit: ExitFn;
    syscall: unsafe extern "C" fn(c_long, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong, c_ulong) -> c_long;
}
