//! A job ends under audit as it does alone: the same output, the same exit code. What was not seen is named.

use std::path::Path;

use serde_json::Value;

use super::{PYTHON, audit, is_named, observed, read_by, same};
use crate::util::Dir;

fn python(dir: &Dir, program: &str) -> Value {
    same(dir, &[PYTHON, "-c", program], &[])
}

#[test]
fn exit_codes_are_kept() {
    let seen = python(&Dir::new(), "import sys; print('out'); sys.exit(7)");
    assert_eq!(seen["exit"]["code"], 7);
}

#[test]
fn threads_that_fork() {
    let program = "import os, threading
def work():
    for _ in range(10):
        child = os.fork()
        if child == 0:
            open('x').read()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
open('x', 'w').write('text')
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print('done')";
    let seen = python(&Dir::new(), program);
    assert_eq!(seen["processes"].as_array().unwrap().len(), 41);
    assert_eq!(read_by(&seen, "python"), (41, 160));
}

#[test]
fn five_thousand_open_files() {
    let program = "import os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
open('x', 'w').write('abc')
fds = [os.open('x', os.O_RDONLY) for _ in range(5000)]
print(sum(len(os.pread(fd, 3, 0)) for fd in fds))";
    let seen = python(&Dir::new(), program);
    assert_eq!(read_by(&seen, "python"), (5001, 15_000));
    assert_eq!(seen["coverage"]["untracked_calls"], 0);
}

#[test]
fn own_sitecustomize() {
    for (options, runs) in [(&[][..], true), (&["-S"], false), (&["-I"], false)] {
        let dir = Dir::new();
        dir.write("mine/sitecustomize.py", "print('mine')\n");
        dir.write("x", "text");
        let path = dir.path("mine");
        let job = [&[PYTHON], options, &["-c", "print(open('x').read())"]].concat();
        let seen = same(&dir, &job, &[("PYTHONPATH", path.to_str().unwrap())]);
        assert_eq!(read_by(&seen, "python"), (1, 4));
        let out = dir.command(job[0].as_ref(), &job[1..]).env("PYTHONPATH", &path).run().stdout;
        assert_eq!(out.contains("mine"), runs, "{options:?}");
    }
}

#[test]
fn children_without_environment_are_observed() {
    let dir = Dir::new();
    dir.write("x", "text");
    let program = "import subprocess
print(subprocess.run(['/bin/cat', 'x'], env={}, capture_output=True, text=True).stdout)";
    assert_eq!(read_by(&python(&dir, program), "/bin/cat"), (1, 4));
}

#[test]
fn another_user_and_another_pid_namespace_are_named() {
    if !super::is_root() {
        return;
    }
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "1"];
    let namespace = ["unshare", "-pf", "--mount-proc", "sleep", "1"];
    for (job, reason) in [(&user[..], "another user"), (&namespace[..], "PID namespace")] {
        is_named(&same(&Dir::new(), job, &[]), "sleep 1", reason);
    }
}

#[test]
fn a_process_that_changes_its_user_stays_observed() {
    if !super::is_root() {
        return;
    }
    let dir = Dir::new();
    dir.write("x", "text");
    let program = "import os
os.setuid(65534)
print(open('x').read())
if os.fork() == 0:
    open('x').read()
    os._exit(0)
print(os.wait()[1])";
    let seen = python(&dir, program);
    assert_eq!(read_by(&seen, "python"), (1, 4));
    // Its child has no access to the memory of feedline.
    is_named(&seen, "1 process", "no access");
}

/// A shell that changes mounts for the job and feedline, and the results on a mount that is not changed.
fn with_mounts(dir: &Dir, mounts: &str, job: &str) -> Value {
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let results = dir.path("results");
    let namespace = if super::is_root() { "-m" } else { "-rm" };
    let audited = format!(
        "{mounts} && exec {feedline} audit --results {} --name job -- {job}",
        results.to_str().unwrap()
    );
    let command = dir.command("unshare".as_ref(), &[namespace, "sh", "-c", &audited]);
    let done = command.env("PYTHONDONTWRITEBYTECODE", "1").run();
    let alone = dir.command("sh".as_ref(), &["-c", &format!("exec {job}")]).run();
    assert_eq!((done.code(), &done.stdout), (alone.code(), &alone.stdout), "{}", done.stderr);
    observed(dir, &done)
}

/// Mount options change for one mount namespace only.
fn without_exec(folder: &str) -> String {
    format!("mount --bind {folder} {folder} && mount -o remount,bind,noexec {folder}")
}

#[test]
fn folders_without_exec() {
    for folders in [&["/tmp", "/dev/shm"][..], &["/tmp", "/dev/shm", "/var/tmp"][..]] {
        let dir = Dir::new();
        dir.write("x", "text");
        let mounts: Vec<String> = folders.iter().map(|folder| without_exec(folder)).collect();
        // feedline itself may have been built in one of them.
        let programs = Path::new(env!("CARGO_BIN_EXE_feedline")).parent().unwrap().display();
        let mounts = format!(
            "mount --bind {programs} /mnt && {} && mount --bind /mnt {programs}",
            mounts.join(" && ")
        );
        let seen = with_mounts(&dir, &mounts, "cat x");
        assert_eq!(read_by(&seen, "cat"), (1, 4), "{folders:?}");
    }
}

#[test]
fn a_tiny_shared_memory_is_left_to_the_job() {
    let dir = Dir::new();
    dir.write("x", "text");
    // The job fills all of it.
    let job =
        "sh -c 'cat x; head -c 1048576 /dev/zero > /dev/shm/all && wc -c < /dev/shm/all; rm /dev/shm/all'";
    let seen = with_mounts(&dir, "mount -t tmpfs -o size=1m tmpfs /dev/shm", job);
    assert_eq!(read_by(&seen, "cat"), (1, 4));
}

/// Two ranks by `torchrun`: Debian's version of PyTorch does not know how Python 3.11 treats flags.
const LAUNCHER: &str = "import torch.distributed.run as run
from torch.distributed.elastic.multiprocessing import Std
Std.from_str = classmethod(lambda cls, text: cls.NONE)
run.main(['--standalone', '--nproc_per_node', '2', 'rank.py'])";

#[test]
fn ranks_of_torchrun() {
    let dir = Dir::new();
    dir.write("x", "text");
    // Ranks write to one stream at the same time.
    let rank = "import os, torch.distributed as d
d.init_process_group('gloo')
open('x').read()
d.barrier()
os.write(1, b'done\\n')";
    dir.write("rank.py", rank);
    dir.write("launcher.py", LAUNCHER);
    let seen = same(&dir, &[PYTHON, "launcher.py"], &[]);
    assert_eq!(read_by(&seen, "rank.py"), (2, 8));
}

#[test]
fn stdin_is_passed_on() {
    let dir = Dir::new();
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let shell = format!("printf 'a\\nb\\n' | {feedline} audit --results results -- wc -l");
    let done = dir.command("sh".as_ref(), &["-c", &shell]).run().exits(0);
    assert_eq!(done.stdout, "2\n");
}

#[test]
fn all_descriptors_closed() {
    let dir = Dir::new();
    dir.write("x", "text");
    let program = "import os
keep = os.dup(1)
os.closerange(0, keep); os.closerange(keep + 1, 70000)
os.open('x', os.O_RDONLY); os.read(0, 10)
child = os.fork()
if child == 0:
    os.read(os.open('x', os.O_RDONLY), 10)
    os._exit(3)
os.write(keep, b'%d' % os.waitpid(child, 0)[1])
os._exit(4)";
    let seen = python(&dir, program);
    assert_eq!(read_by(&seen, "python"), (2, 8));
}

#[test]
fn a_program_that_executes_itself() {
    let dir = Dir::new();
    dir.write("x", "text");
    dir.write(
        "again.py",
        "import os, sys
number = int(sys.argv[1])
open('x').read()
if number:
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(number - 1)])
print('last', end='')
sys.exit(6)
",
    );
    let seen = same(&dir, &[PYTHON, "again.py", "20"], &[]);
    assert_eq!(read_by(&seen, "again.py"), (21, 84));
}

#[test]
fn a_set_uid_program_is_named() {
    if !super::is_root() {
        return;
    }
    let dir = Dir::new();
    dir.set_mode("", 0o777);
    std::fs::copy("/bin/sleep", dir.path("other-sleep")).unwrap();
    dir.set_mode("other-sleep", 0o4755);
    let job = ["sh", "-c", "./other-sleep 1; echo $?"];
    let flags = ["audit", "--results", "results", "--name", "job", "--"];
    let done = dir.feedline_unprivileged(&flags).args(&job).run().exits(0);
    assert_eq!(done.stdout, "0\n");
    is_named(&observed(&dir, &done), "other-sleep", "another user");
}

#[test]
fn what_the_job_inherits_is_the_same() {
    let dir = Dir::new();
    let state = super::script("audit/programs/state.py");
    let run = |job: &[&str]| dir.command(PYTHON.as_ref(), &["-B", &state]).args(job).run().exits(0);
    let alone = run(&[PYTHON, "-B", &state]);
    let feedline = env!("CARGO_BIN_EXE_feedline");
    let done = run(&[feedline, "audit", "--results", "results", "--", PYTHON, "-B", &state]);
    assert_eq!(done.stdout, alone.stdout);
}

#[test]
fn a_job_is_not_started_if_its_result_cannot_be_written() {
    let dir = Dir::new();
    dir.write("results", "a file");
    let done = audit(&dir, &["touch", "started"]).run().exits(2);
    assert!(!dir.path("started").exists(), "{}", done.stderr);
}
