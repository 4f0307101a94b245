"""Signals and limits of the shell: each ends with a message and a documented exit code, never by a signal."""

import contextlib
import json
import pathlib
import signal
import subprocess
import time

from . import FEEDLINE, INCOMPLETE, INVALID, OK, REFUSED, NotTried, case, check
from .hangs import end_of, prepare, results, start, until

# Long enough to be interrupted: a step takes 0.2 s.
LONG_RUN = ("run", "w.yaml", "--quiet", "--set", "train.computation_time=0.2")


def worker_of(process):
    """The worker process of the started process, if there is one."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(") ")[2].split()[1]) == process.pid:
                return int(folder.name)
    return None


def has_thread(process, name):
    """Whether a thread of that name is running."""
    for number in (process.pid, worker_of(process)):
        for comm in pathlib.Path(f"/proc/{number}/task").glob("*/comm"):
            with contextlib.suppress(OSError):
                if comm.read_text().strip() == name:
                    return True
    return False


def reading(attack, folder, command=LONG_RUN):
    """A run that is reading."""
    process = start([FEEDLINE, *command], folder)
    until(lambda: has_thread(process, "reader"), process, folder)
    return process


@case("SIGINT, SIGTERM, SIGHUP and SIGXCPU during a run")
def one_signal(attack):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):
        folder = prepare(attack, attack.scratch / number.name)
        before = results(folder)
        process = reading(attack, folder)
        time.sleep(0.5)
        process.send_signal(number)
        code, said = end_of(process, folder, limit=6)
        check(code == INCOMPLETE, f"{number.name}: exit code {code}: {said}")
        new = [path for path in results(folder) if path not in before]
        check(len(new) == 1, f"{number.name}: {len(new)} results: {said}")
        verdict = json.loads((new[0] / "summary.json").read_text())["feedline"]["verdict"]["status"]
        check(verdict == "incomplete", f"{number.name}: the verdict is {verdict}")
    return "exit code 4 and an incomplete result each time"


@case("a second signal ends the run immediately")
def two_signals(attack):
    folder = prepare(attack, attack.scratch / "twice")
    # A hanging read delays the end of the run by three seconds after the first signal. On a busy machine that signal can
    # arrive before the first read; the run then ends at once, and the case is tried again.
    for _ in range(10):
        process = reading(attack, folder, ("run", "w.yaml", "--quiet", "--store", "fault:posix,kind=hang"))
        process.send_signal(signal.SIGTERM)
        # Sooner it would be taken for the same request.
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        code, said = end_of(process, folder, limit=5)
        check(code == INCOMPLETE, f"exit code {code}: {said}")
        if "second signal" in said:
            return "exit code 4 and a message"
    check(False, f"no run met the second signal: {said}")


@case("timeout(1) sends its signal to the process and to its group")
def two_signals_at_once(attack):
    folder, tries = prepare(attack, attack.scratch / "timeout"), 50 if attack.is_long else 10
    before = len(results(folder))
    for _ in range(tries):
        command = ["timeout", "--signal=INT", "1", FEEDLINE, "run", "w.yaml", "--quiet", "--no-calibration"]
        subprocess.run([*command, "--set", "train.computation_time=0.1"], cwd=folder, capture_output=True)
    kept = len(results(folder)) - before
    check(kept == tries, f"{tries - kept} of {tries} incomplete results were lost")
    return f"{kept} incomplete results of {tries}"


@case("a signal before anything was measured, to read-only commands")
def early_signals(attack):
    folder = prepare(attack, attack.scratch / "early")
    pipe = folder / "pipe.yaml"
    subprocess.run(["mkfifo", pipe], check=True)
    for command in (("plan", pipe), ("generate", pipe), ("run", pipe)):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = start([FEEDLINE, *command], folder)
            time.sleep(0.3)
            process.send_signal(number)
            code, said = end_of(process, folder, limit=6)
            check(code == INCOMPLETE and "interrupted" in said, f"{command[0]}, {number.name}: exit code {code}: {said}")
    return "exit code 4 and a message each time"


@case("a run under nohup outlives SIGHUP")
def nohup(attack):
    folder = prepare(attack, attack.scratch / "nohup")
    process = start(["nohup", FEEDLINE, *LONG_RUN], folder)
    until(lambda: has_thread(process, "reader"), process, folder)
    process.send_signal(signal.SIGHUP)
    code, said = end_of(process, folder, limit=60)
    check(code in (OK, INVALID), f"exit code {code}: {said}")
    return "it finished"


@case("the worker process is killed; the waiting process is killed")
def killed(attack):
    folder = prepare(attack, attack.scratch / "killed")
    process = reading(attack, folder)
    worker = worker_of(process)
    check(worker is not None, "there is only one process, which a hung thread would keep alive")
    subprocess.run(["kill", "-KILL", str(worker)], check=True)
    code, said = end_of(process, folder, limit=5)
    check(code == INCOMPLETE and "killed by SIGKILL" in said, f"exit code {code}: {said}")
    process = reading(attack, folder)
    worker = pathlib.Path(f"/proc/{worker_of(process)}")
    process.kill()
    process.wait()
    for _ in range(100):
        if not worker.exists():
            return "neither outlives the other"
        time.sleep(0.02)
    check(False, "the worker outlives the process that was started")


@case("a file that grows beyond ulimit -f is an error (SIGXFSZ)")
def file_size_limit(attack):
    folder = prepare(attack, attack.scratch / "fsize")
    # In blocks of 512 or 1024 bytes, by shell.
    for command, blocks in ((("generate", "w.yaml", "--overwrite", "--quiet", "--data-dir", "new"), 1), (("run", "w.yaml", "--quiet"), 8)):
        words = " ".join(map(str, (FEEDLINE, *command)))
        done = subprocess.run(["bash", "-c", f"ulimit -f {blocks}; exec {words}"], cwd=folder, capture_output=True, text=True, timeout=60)
        check(done.returncode in (INCOMPLETE, REFUSED), f"{words}: exit code {done.returncode}: {done.stderr}")
        check("File too large" in done.stderr, f"{words}: {done.stderr}")
    return "an error that names the file"


@case("a closed stdout (SIGPIPE)")
def closed_pipe(attack):
    folder = prepare(attack, attack.scratch / "pipe")
    words = f"{FEEDLINE} run w.yaml --quiet | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], cwd=folder, capture_output=True, text=True, timeout=60)
    check(done.returncode in (OK, INVALID), f"exit code {done.returncode}: {done.stderr}")
    return "the result is written, and the exit code is the verdict's"


@contextlib.contextmanager
def process_limit(limit):
    """A control group with this limit on the number of threads."""
    group = pathlib.Path("/sys/fs/cgroup/pids/feedline-attack")
    if not group.parent.exists():
        raise NotTried("no pids control group")
    group.mkdir(exist_ok=True)
    try:
        (group / "pids.max").write_text(str(limit))
        yield group / "cgroup.procs"
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def is_graceful(done, what):
    """Checks for a documented exit code, a message on failure, and no crash."""
    check(done.returncode in (OK, REFUSED, INCOMPLETE, INVALID), f"{what}: exit code {done.returncode}: {done.stderr}")
    check(done.returncode in (OK, INVALID) or "error: " in done.stderr, f"{what}: no message")
    # Rust's standard library panics where a new thread gets no memory for its signal stack, before any code of ours.
    is_ours = "panicked" in done.stderr and "failed to allocate an alternative stack" not in done.stderr
    check(not is_ours, f"{what}: {done.stderr}")


@case("no thread can be started (EAGAIN), for every thread")
def no_threads(attack):
    folder = prepare(attack, attack.scratch / "threads")
    save = ("--set", "workflow.checkpoint=true", "--set", "checkpoint.checkpoint_folder=saved")
    commands = [
        ("run", "w.yaml", "--ranks", "2"),
        ("run", "w.yaml", *save),
        ("generate", "w.yaml", "--overwrite", "--data-dir", "new"),
        ("catalog", "data"),
        ("catalog", "data", "--check"),
        ("validate", "feedline-results/w"),
    ]
    refused = 0
    for command in commands if attack.is_long else commands[:4]:
        for limit in range(1, 24 if attack.is_long else 16):
            with process_limit(limit) as members:
                words = " ".join(map(str, (FEEDLINE, *command)))
                shell = ["bash", "-c", f"echo $$ > {members}; exec {words}"]
                done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=60)
            is_graceful(done, f"{command[0]} with {limit} threads")
            refused += done.returncode in (REFUSED, INCOMPLETE)
    check(refused > 0, "no limit was low enough")
    return f"{refused} commands were refused or incomplete, none crashed"


@case("memory that cannot be allocated (ulimit -v)")
def no_memory(attack):
    folder = prepare(attack, attack.scratch / "memory")
    large = ("--set", "dataset.record_length_bytes=8388608", "--set", "dataset.num_files_train=24")
    attack.feedline("generate", "w.yaml", *large, "--data-dir", "large", cwd=folder)
    commands = [("run", "w.yaml", *large, "--data-dir", "large", "--ranks", "2"), ("validate", "feedline-results/w")]
    ends = {}
    for command in commands:
        for mebibytes in (*range(8, 64, 4), *range(64, 512, 16 if attack.is_long else 48)):
            limit = f"ulimit -v {mebibytes << 10}; exec {FEEDLINE}"
            # With too little memory the program cannot be loaded.
            if subprocess.run(["bash", "-c", f"{limit} --version"], capture_output=True).returncode != OK:
                continue
            shell = ["bash", "-c", f"{limit} {' '.join(map(str, command))}"]
            done = subprocess.run(shell, cwd=folder, capture_output=True, text=True, timeout=60)
            is_graceful(done, f"{command[0]} with {mebibytes} MiB")
            ends[done.returncode] = ends.get(done.returncode, 0) + 1
    return f"exit codes and how often: {ends}"
