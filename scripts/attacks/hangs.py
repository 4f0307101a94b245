"""Storage that does not answer: calls that do not return, a stopped FUSE daemon, a frozen file system, a slow device."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import time

from . import FEEDLINE, INCOMPLETE, INVALID, OK, NotTried, case, check, TINY_MODEL

# A run must end this long after its storage stopped answering, with `--stall-timeout 3s`.
LIMIT = 15
TIMEOUT = ("--stall-timeout", "3s")

WORKLOAD = """
framework: pytorch
dataset: {format: npz, data_folder: data, num_files_train: 24, num_samples_per_file: 1, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 2, read_threads: 2}
train: {epochs: 2, computation_time: 0}
"""
CHECKPOINTS = TINY_MODEL + """
checkpoint: {checkpoint_folder: saved, num_checkpoints_write: 3, num_checkpoints_read: 0, fsync: true}
"""

RUN = ("run", "w.yaml", "--quiet")
GENERATE = ("generate", "w.yaml", "--overwrite", "--quiet")
SAVE = ("run", "c.yaml", "--quiet")
VALIDATE = ("validate", "feedline-results/w")
COMPARE = ("compare", "feedline-results/w", "feedline-results/w")
INSPECT = ("inspect", "data/train/img_00_of_24.npz")
CATALOG = ("catalog", "data", "--quiet")
PLAN = ("plan", "w.yaml")

SYNC = "fsync,fdatasync,syncfs"
MKDIR, RENAME = "mkdir,mkdirat", "rename,renameat,renameat2"
STAT = "statx"
OPEN = "open,openat,openat2"
# What hangs, in which command, and what the message must name. A path, as the call has it, narrows it to such calls.
SHORT = [
    (RUN, SYNC, None, "sync"),
    (RUN, MKDIR, None, "mkdir"),
    (RUN, RENAME, None, "rename"),
    (RUN, STAT, None, "stat"),
    (GENERATE, SYNC, None, "sync"),
    (SAVE, SYNC, None, "sync"),
    (VALIDATE, "getdents64", None, "getdents"),
    (CATALOG, STAT, None, "stat"),
    (INSPECT, OPEN, "img_00_of_24.npz", "open"),
]
LONG = [
    (RUN, "statfs,fstatfs", None, "statfs"),
    (RUN, OPEN, "./data", "open"),
    (RUN, OPEN, ".feedline/dataset.json", "open"),
    (RUN, OPEN, "train/img_07_of_24.npz", "open"),
    (GENERATE, MKDIR, None, "mkdir"),
    (GENERATE, RENAME, None, "rename"),
    (GENERATE, STAT, None, "stat"),
    (GENERATE, "statfs,fstatfs", None, "statfs"),
    (SAVE, MKDIR, None, "mkdir"),
    (SAVE, RENAME, None, "rename"),
    (SAVE, STAT, None, "stat"),
    (SAVE, "flock", None, "flock"),
    (VALIDATE, STAT, None, "stat"),
    (COMPARE, STAT, None, "stat"),
    (COMPARE, "getdents64", None, "getdents"),
    (CATALOG, "getdents64", None, "getdents"),
    (CATALOG, SYNC, None, "sync"),
    (CATALOG, RENAME, None, "rename"),
    (PLAN, STAT, None, "stat"),
    (PLAN, OPEN, "w.yaml", "open"),
]


def prepare(attack, folder):
    """A folder with two workloads, a data set and a result."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "w.yaml").write_text(WORKLOAD)
    (folder / "c.yaml").write_text(CHECKPOINTS)
    for command in (("generate", "w.yaml", "--quiet"), ("run", "w.yaml", "--quiet", "--no-calibration")):
        attack.feedline(*command, cwd=folder)
    return folder


def results(folder):
    """The results that look complete."""
    return sorted(path.parent for path in folder.glob("feedline-results/*/*/summary.json") if path.parent.name[0] != ".")


def start(command, folder, name="output"):
    """Starts a command with its output in a file: a process that hangs would keep a pipe open."""
    with open(folder / name, "wb") as output:
        return subprocess.Popen(list(map(str, command)), cwd=folder, stdout=output, stderr=output)


def end_of(process, folder, name="output", limit=LIMIT):
    """Waits for the end, and returns the exit code and the output."""
    try:
        code = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        check(False, f"did not end within {limit} s: {process.args}")
    return code, (folder / name).read_text()


def is_reported(process, folder, words, name="output"):
    """Checks that a command ends in time, with exit code 4 and a message that has all of these words."""
    code, said = end_of(process, folder, name)
    command = " ".join(map(str, process.args[-4:]))
    check(code == INCOMPLETE, f"{command}: exit code {code}: {said}")
    check(all(word in said for word in words), f"{command}: the report lacks one of {words}: {said}")


def hang(attack, number, row):
    """One row of the table, in a folder of its own."""
    command, calls, path, word = row
    folder = prepare(attack, attack.scratch / f"hang-{number}")
    before = results(folder)
    # As a grandchild (-D) the tracer blocks only itself: it does not release a call that it delays.
    tracer = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    tracer += ["-e", f"inject={calls}:delay_enter=20s" + ("" if path else ":when=1")]
    tracer += ["-P", path] if path else []
    process = start([*tracer, FEEDLINE, *command, *TIMEOUT], folder)
    try:
        is_reported(process, folder, [word, "no progress for"])
    except Exception as error:
        raise type(error)(f"{' '.join(command)} with {calls} {path or ''}: {error}") from None
    check(results(folder) == before, f"{command} left a result that looks complete")


@case("a system call does not return: sync, mkdir, rename, stat, list, open, in every command")
def calls_that_do_not_return(attack):
    attack.command("strace", "--version")
    rows = SHORT + (LONG if attack.is_long else [])
    with concurrent.futures.ThreadPoolExecutor(max_workers=6) as pool:
        # Dirty data of other processes would count as progress of a flush.
        os.sync()
        done = [pool.submit(hang, attack, number, row) for number, row in enumerate(rows)]
        for one in done:
            one.result()
    # The tracers finally release the delayed calls, and the traced processes end.
    time.sleep(20)
    return f"{len(rows)} cases ended within {LIMIT} s with exit code {INCOMPLETE} and a report"


@contextlib.contextmanager
def fuse(attack, name):
    """A FUSE mount, the folder below it, and a function that stops its daemon, which is continued at the end."""
    below, mount = attack.scratch / f"{name}-below", attack.scratch / f"{name}-mount"
    below.mkdir()
    mount.mkdir()
    with open(attack.scratch / f"{name}-log", "wb") as log:
        try:
            daemon = subprocess.Popen(["bindfs", "-f", below, mount], stdout=log, stderr=log)
        except FileNotFoundError:
            raise NotTried("bindfs is not installed")
    try:
        for _ in range(100):
            if os.path.ismount(mount):
                break
            time.sleep(0.05)
        else:
            raise NotTried(f"no FUSE mount: {(attack.scratch / f'{name}-log').read_text()}")
        yield below, mount, lambda: daemon.send_signal(signal.SIGSTOP)
    finally:
        daemon.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        subprocess.run(["umount", "--lazy", mount], check=False)
        daemon.wait(timeout=10)


@case("the FUSE daemon below data or results is stopped before the command begins")
def stopped_before(attack):
    commands = [RUN, GENERATE, VALIDATE, COMPARE, INSPECT, CATALOG]
    with fuse(attack, "all") as (below, mount, stop):
        prepare(attack, below)
        # Outside the mount, so that the command itself can start.
        outside = attack.scratch / "outside"
        outside.mkdir()
        (outside / "w.yaml").write_text(WORKLOAD)
        for name in ("data", "feedline-results"):
            (outside / name).symlink_to(mount / name)
        stop()
        started = [start([FEEDLINE, *command, *TIMEOUT], outside, f"output-{at}") for at, command in enumerate(commands)]
        for at, process in enumerate(started):
            is_reported(process, outside, ["no progress for", str(outside)], f"output-{at}")
    return f"{len(commands)} commands ended within {LIMIT} s"


@case("the FUSE daemon below a burst buffer, or below the last tier, is stopped during a save")
def stopped_burst_buffer(attack):
    for stopped in ("fast", "last"):
        folder = attack.scratch / f"save-{stopped}"
        folder.mkdir()
        (folder / "c.yaml").write_text(CHECKPOINTS)
        with fuse(attack, stopped) as (below, mount, stop):
            tiers = {"fast": folder / "fast", "last": folder / "last", stopped: mount / "tier"}
            process = start([
                FEEDLINE, *SAVE, *TIMEOUT, "--save", "burst-buffer", "--checkpoint-dir", tiers["last"],
                "--set", f"checkpoint.burst_folder={tiers['fast']}", "--set", "checkpoint.num_checkpoints_write=500",
            ], folder)
            until(lambda: any(below.rglob("*.pt")), process, folder)
            stop()
            is_reported(process, folder, ["no progress for"])
    return f"both ended within {LIMIT} s"


def until(seen, process, folder):
    while not seen():
        check(process.poll() is None, f"ended too early: {(folder / 'output').read_text()}")
        time.sleep(0.005)


@contextlib.contextmanager
def frozen(folder):
    """Freezes the file system below a folder: writers block and cannot be killed."""
    subprocess.run(["fsfreeze", "--freeze", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", folder], check=True)


@case("the file system is frozen: data, results, checkpoints; ext4 and xfs")
def frozen_file_system(attack):
    for kind in ("ext4", "xfs"):
        device = attack.loop_device(attack.scratch / f"{kind}.img", 512 << 20)
        attack.command(f"mkfs.{kind}", "-q", device)
        mount = attack.mount(device)
        folder = prepare(attack, attack.scratch / kind)
        commands = [
            (*GENERATE, "--data-dir", mount / "data"),
            (*RUN, "--results-dir", mount / "results"),
            (*SAVE, "--checkpoint-dir", mount / "saved"),
        ]
        with frozen(mount):
            started = [start([FEEDLINE, *command, *TIMEOUT], folder, f"o{at}") for at, command in enumerate(commands)]
            for at, process in enumerate(started):
                is_reported(process, folder, ["no progress for", str(mount), "cannot be terminated"], f"o{at}")
            # Without a timeout, a signal ends it.
            process = start([FEEDLINE, *commands[0], "--stall-timeout", "off"], folder)
            time.sleep(1)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            code, said = end_of(process, folder, limit=10)
            check(time.monotonic() - begin < 6, f"ended {time.monotonic() - begin:.1f} s after SIGINT")
            check(code == INCOMPLETE and "interrupted" in said, f"exit code {code}: {said}")
        time.sleep(0.5)
    return f"every command ended within {LIMIT} s although its threads could not be terminated"


@contextlib.contextmanager
def slow_device(attack, rate):
    """ext4 on a device that writes this many bytes per second."""
    throttle = pathlib.Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    if not throttle.exists():
        raise NotTried("no blkio control group")
    lower = attack.loop_device(attack.scratch / "slow.img", 768 << 20)
    # Without a journal, whose flushes would block everything for seconds.
    attack.command("mkfs.ext4", "-q", "-O", "^has_journal", lower)
    # A second loop device above it splits requests; the limit alone would delay one request of many MiB until all of it
    # is allowed.
    backing = attack.mount(lower) / "upper.img"
    upper = attack.loop_device(backing, 512 << 20)
    attack.command("losetup", "--direct-io=on", upper)
    pathlib.Path("/sys/class/block", pathlib.Path(upper).name, "queue/max_sectors_kb").write_text("64")
    attack.command("mkfs.ext4", "-q", upper)
    mount = attack.mount("-o", "nobarrier", upper)
    attack.command("sync", "--file-system", mount)
    number = pathlib.Path("/sys/class/block", pathlib.Path(lower).name, "dev").read_text().strip()
    throttle.write_text(f"{number} {rate}")
    try:
        yield mount
    finally:
        throttle.write_text(f"{number} 0")


@case("a flush takes longer than the timeout and makes progress: generate, cold cache, save")
def slow_flush(attack):
    folder = prepare(attack, attack.scratch / "slow")
    with slow_device(attack, 1 << 20) as mount:
        # 24 files of 0.4 MiB: about 10 s.
        data = ("--set", "dataset.record_length_bytes=409600", "--data-dir", mount / "data")
        done = attack.feedline(*GENERATE, *TIMEOUT, *data, cwd=folder)
        check(done.returncode == OK, f"generate: exit code {done.returncode}: {done.stderr}")
        # Another process has written much: before a cold epoch all of it goes to the device.
        (mount / "other").write_bytes(bytes(8 << 20))
        done = attack.feedline(*RUN, *TIMEOUT, *data, cwd=folder)
        check(done.returncode in (OK, INVALID), f"run: exit code {done.returncode}: {done.stderr}")
        (mount / "other").write_bytes(bytes(8 << 20))
        one = ("--checkpoint-dir", mount / "saved", "--set", "checkpoint.num_checkpoints_write=1")
        done = attack.feedline(*SAVE, *TIMEOUT, *one, cwd=folder)
        check(done.returncode in (OK, INVALID), f"save: exit code {done.returncode}: {done.stderr}")
    return "each finished"
