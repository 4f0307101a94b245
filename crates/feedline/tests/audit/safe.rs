//! A job ends under audit as it does alone: the same output, the same exit code. What was not seen is named.

use serde_json::Value;

use super::{PYTHON, audit, observed};
use crate::util::Dir;

/// Runs a job alone and under audit, and returns what was observed.
#[track_caller]
fn same(dir: &Dir, job: &[&str], env: &[(&str, &str)]) -> Value {
    let with = |command| env.iter().fold(command, |command: crate::util::Cmd<'_>, (k, v)| command.env(k, v));
    let alone = with(dir.command(job[0].as_ref(), &job[1..])).run();
    let done = with(audit(dir, job)).run();
    assert_eq!(done.code(), alone.code(), "{}", done.stderr);
    assert_eq!(done.stdout, alone.stdout);
    assert!(done.stderr.starts_with(&alone.stderr), "{}\nalone: {}", done.stderr, alone.stderr);
    observed(dir, &done)
}

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
            open('/etc/hostname').read()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print('done')";
    python(&Dir::new(), program);
}

#[test]
fn five_thousand_open_files() {
    let program = "import os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
open('x', 'w').write('abc')
fds = [os.open('x', os.O_RDONLY) for _ in range(5000)]
print(sum(len(os.pread(fd, 3, 0)) for fd in fds))";
    python(&Dir::new(), program);
}

#[test]
fn own_sitecustomize() {
    let dir = Dir::new();
    dir.write("mine/sitecustomize.py", "print('mine')\n");
    let path = dir.path("mine");
    let seen = same(
        &dir,
        &[PYTHON, "-c", "print(open('/etc/hostname').read())"],
        &[("PYTHONPATH", path.to_str().unwrap())],
    );
    assert_eq!(seen["coverage"]["processes_seen"], 1);
}

#[test]
fn children_without_environment_are_seen_or_named() {
    let program = "import subprocess
print(subprocess.run(['/bin/cat', '/etc/hostname'], env={}, capture_output=True, text=True).stdout)";
    seen_or_named(&python(&Dir::new(), program), 2);
}

#[test]
fn another_user_and_a_pid_namespace_are_seen_or_named() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", "/etc/hostname"];
    let namespace = ["unshare", "-pf", "cat", "/etc/hostname"];
    for job in [&user[..], &namespace[..]] {
        let dir = Dir::new();
        let alone = dir.command(job[0].as_ref(), &job[1..]).run().exits(0);
        let done = audit(&dir, job).run().exits(0);
        assert_eq!(done.stdout, alone.stdout);
        seen_or_named(&observed(&dir, &done), 1);
    }
}

/// Every process was either seen or is named as unseen.
#[track_caller]
fn seen_or_named(seen: &Value, processes: u64) {
    let coverage = &seen["coverage"];
    let unseen = coverage["unseen"].as_array().unwrap().len() as u64;
    assert!(coverage["processes_seen"].as_u64().unwrap() + unseen >= processes, "{coverage}");
}
