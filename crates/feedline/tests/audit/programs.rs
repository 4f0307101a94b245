//! Compiled programs end under audit as they do alone: other allocators, sanitizers, other libraries in front, wrong
//! addresses, restricted system calls, other machines and C libraries.

use super::{PYTHON, audit, compiled, is_named, read_by, same, script, unseen};
use crate::util::Dir;

/// A folder with the file `x` of 100,000 bytes.
fn folder() -> Dir {
    let dir = Dir::new();
    dir.write("x", "x".repeat(100_000));
    dir
}

/// The only file with this name that a package of Debian has installed.
fn library(name: &str) -> String {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let paths = folders.map(|folder| folder.path().join(name)).filter(|path| path.is_file());
    paths.map(|path| path.to_str().unwrap().to_owned()).next().unwrap_or_else(|| panic!("{name} is missing"))
}

#[test]
fn jemalloc_in_front() {
    let jemalloc = library("libjemalloc.so.2");
    let dir = folder();
    let plain = script("audit/library/plain.py");
    std::fs::create_dir(dir.path("data")).unwrap();
    (0..20).for_each(|number| dir.write(&format!("data/{number}"), "y".repeat(20_000)));
    let seen = same(&dir, &[PYTHON, &plain, "data"], &[("LD_PRELOAD", &jemalloc)]);
    assert_eq!(read_by(&seen, "plain.py").0, 100);
}

#[test]
fn address_sanitizer() {
    let dir = folder();
    let program = compiled(&dir, "sum.c", "gcc", &["-fsanitize=address"]);
    assert_eq!(read_by(&same(&dir, &[&program, "x"], &[]), "sum-c"), (1, 100_000));
    // Started by another program, with an environment of its own.
    let dir = Dir::new();
    let code = "import subprocess, sys; print(subprocess.run(sys.argv[1:], env={}).returncode)";
    std::fs::write(dir.path("x"), [1; 50_000]).unwrap();
    assert_eq!(read_by(&same(&dir, &[PYTHON, "-c", code, &program, "x"], &[]), "sum-c x").1, 50_000);
    // The sanitizer still finds what it is for; its report has addresses that differ.
    let done = audit(&dir, &[&program]).run();
    assert!(done.stderr.contains("heap-buffer-overflow") && done.code() != Some(0), "{}", done.stderr);
}

#[test]
fn a_preloaded_library_with_another_clock() {
    let dir = folder();
    let other = compiled(&dir, "other_clock.c", "gcc", &["-shared", "-fPIC"]);
    let job = ["sh", "-c", "LD_PRELOAD=\"$1:$LD_PRELOAD\" exec cat x", "sh", &other];
    for (job, env) in [(&["cat", "x"][..], &[("LD_PRELOAD", other.as_str())][..]), (&job, &[])] {
        let dir = folder();
        let seen = same(&dir, job, env);
        assert_eq!(read_by(&seen, "cat"), (1, 100_000));
        assert_eq!(seen["files"]["sampled"], 1, "events have times of the job");
    }
}

#[test]
fn wrong_addresses() {
    let dir = Dir::new();
    let program = compiled(&dir, "wrong_addresses.c", "gcc", &[]);
    assert_eq!(same(&dir, &[&program], &[])["exit"]["code"], 0);
}

#[test]
fn cancelled_threads_and_exceptions_unwind() {
    let dir = Dir::new();
    let program = compiled(&dir, "unwinding.cc", "g++", &["-lpthread"]);
    assert_eq!(same(&dir, &[&program], &[])["exit"]["code"], 0);
}

#[test]
fn a_storm_of_threads_forks_and_signals() {
    let dir = folder();
    let program = compiled(&dir, "storm.c", "gcc", &["-lpthread"]);
    let seen = same(&dir, &[&program, "x"], &[]);
    // 100 forks, 50 programs by vfork, 100 by posix_spawn.
    assert!(seen["processes"].as_array().unwrap().len() > 200);
    assert_eq!(seen["coverage"]["unseen"].as_array().unwrap().len(), 0, "{}", seen["coverage"]);
}

#[test]
fn restricted_system_calls() {
    let dir = Dir::new();
    let program = compiled(&dir, "seccomp.c", "gcc", &[]);
    let run = ["/bin/sh", "-c", "cat /etc/hostname; exit 7"];
    for (kind, code) in [("prctl", 4), ("call", 4), ("strict", 0), ("probe", 4), ("exec", 7)] {
        let dir = Dir::new();
        let more = if kind == "exec" { &run[..] } else { &[] };
        let job = [&[program.as_str(), kind], more].concat();
        let seen = same(&dir, &job, &[]);
        assert_eq!(seen["exit"]["code"], code, "{kind}");
        let notes = seen["coverage"]["notes"].to_string();
        assert_eq!(notes.contains("seccomp"), kind != "probe", "{kind}: {notes}");
    }
}

#[test]
fn programs_of_other_kinds_are_named() {
    let dir = Dir::new();
    for (compiler, options, reason) in
        [("gcc", &["-static"][..], "statically linked"), ("gcc", &["-m32"], "another kind of machine")]
    {
        let program = compiled(&dir, "pause.c", compiler, options);
        let results = Dir::new();
        // The dynamic loader of 32-bit programs warns on stderr.
        let shell = "\"$0\" 2>/dev/null; echo $?";
        let seen = same(&results, &["sh", "-c", shell, &program], &[]);
        is_named(&seen, "pause-c", reason);
    }
    // The loader of musl may accept the library.
    let program = compiled(&dir, "pause.c", "musl-gcc", &[]);
    let seen = same(&Dir::new(), &["sh", "-c", "\"$0\"; echo $?", &program], &[]);
    let is_seen = seen["processes"].to_string().contains("pause-c");
    assert!(is_seen || unseen(&seen).iter().any(|row| row.1.contains("another C library")), "{seen}");
}

#[test]
fn a_changed_root() {
    if !super::is_root() {
        return;
    }
    let dir = Dir::new();
    let program = compiled(&dir, "pause.c", "gcc", &["-static"]);
    std::fs::create_dir(dir.path("root")).unwrap();
    std::fs::copy(program, dir.path("root/pause")).unwrap();
    is_named(&same(&dir, &["chroot", "root", "/pause"], &[]), "pause", "statically linked");
    // The process itself stays observed, and its forks are counted.
    let code = "import os
os.chroot('root')
open('/pause', 'rb').read()
if os.fork() == 0:
    open('/pause', 'rb').read()
    os._exit(5)
print(os.waitstatus_to_exitcode(os.wait()[1]))";
    let dir = Dir::new();
    std::fs::create_dir(dir.path("root")).unwrap();
    dir.write("root/pause", "text");
    let seen = same(&dir, &[PYTHON, "-c", code], &[]);
    assert_eq!(read_by(&seen, "python"), (1, 4));
    is_named(&seen, "1 process", "no access");
}

#[test]
fn errors_of_the_loader_are_those_of_the_program() {
    let code = "import ctypes; print(ctypes.CDLL(None).dlerror())";
    same(&Dir::new(), &[PYTHON, "-c", code], &[]);
}
