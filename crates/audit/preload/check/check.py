#!/usr/bin/env python3
"""Checks the preload library and the marks on real programs: what they leave in the ring against what strace sees, and what
the programs print against what they print alone. Run it with names of checks, or without for all of them.

It needs gcc, strace, cargo, and Python with PyTorch; FEEDLINE_CHECK_PYTHON is another Python with TensorFlow and pyarrow.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import ring

HERE = os.path.dirname(os.path.abspath(__file__))
CRATE = os.path.dirname(HERE)
ROOT = os.path.abspath(os.path.join(CRATE, "..", "..", ".."))
MARKS = os.path.join(CRATE, "..", "python")
PROGRAMS = os.path.join(HERE, "programs")
TORCH_PYTHON = "/usr/bin/python3"
OTHER_PYTHON = os.environ.get("FEEDLINE_CHECK_PYTHON", os.path.join(ROOT, ".venv", "bin", "python"))
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError("%s: got %r, wanted %r" % (what, got, wanted))


class Bench:
    """A folder for one check, with a ring."""

    def __init__(self, library):
        self.library = library
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="preload-check-"))
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.ring = ring.Ring(library, MARKS)

    def close(self):
        self.ring.close()
        shutil.rmtree(self.folder)

    def files(self, number, size=10_000, end=".bin"):
        for index in range(number):
            with open(os.path.join(self.data, "%05d%s" % (index, end)), "wb") as file:
                file.write(bytes([index % 251]) * (size + index))

    def compiled(self, name, *flags):
        path = os.path.join(self.folder, name)
        source = os.path.join(PROGRAMS, name + ".c")
        subprocess.run(["gcc", "-O2", "-g0", "-w", "-o", path, source, "-lpthread", *flags], check=True)
        return path

    def run(self, *command, traced=False, status=0, **options):
        """Runs a program that is observed, and returns what it prints. It must print nothing to stderr."""
        prefix = os.path.join(self.folder, "strace") if traced else None
        done = self.ring.run(list(command), prefix, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                             timeout=300, **options)
        equal((done.returncode, done.stderr), (status, ""), "status and stderr of %s" % " ".join(command))
        return done.stdout

    def alone(self, *command, **options):
        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True, timeout=300,
                              **options).stdout

    def job(self, name, *arguments, python=TORCH_PYTHON, **options):
        return self.run(python, os.path.join(PROGRAMS, name), self.data, *arguments, **options)

    def one(self):
        """The only process."""
        slots = self.ring.slots()
        equal(len(slots), 1, "processes")
        return slots[0]

    def inodes(self):
        return {os.stat(os.path.join(at, name)).st_ino for at, _, names in os.walk(self.data) for name in names}

    def recorded(self):
        """By process: what its events say about files in the data folder."""
        inodes = self.inodes()
        counts = {}
        for slot in self.ring.slots():
            equal(slot.dropped, 0, "events dropped")
            one = counts.setdefault(slot.pid, dict.fromkeys(("open", "read", "bytes", "lseek", "close"), 0))
            for event in slot.of("Open", "Read", "Seek", "Close"):
                if event.file not in inodes or event.result < 0 or event.kind != ring.REGULAR:
                    continue
                name = {"Open": "open", "Read": "read", "Seek": "lseek", "Close": "close"}[ring.NAME[event.op]]
                one[name] += 1
                if name == "read":
                    one["bytes"] += event.result
        return {pid: one for pid, one in counts.items() if any(one.values())}

    def traced(self):
        """The same, from strace."""
        process = {}
        for slot in self.ring.slots():
            process.update({event.tid: slot.pid for event in slot.events})
        names = {"open": "open", "openat": "open", "read": "read", "pread64": "read", "readv": "read", "preadv": "read",
                 "preadv2": "read", "lseek": "lseek", "close": "close"}
        counts = {}
        for (tid, call), (number, size) in ring.strace_counts(os.path.join(self.folder, "strace"), self.data).items():
            if call not in names:
                continue
            pid = process.get(tid, tid)
            one = counts.setdefault(pid, dict.fromkeys(("open", "read", "bytes", "lseek", "close"), 0))
            one[names[call]] += number
            if names[call] == "read":
                one["bytes"] += size
        return counts

    def compare(self, processes):
        """Both must agree in every process; `processes` is the number of those that use the data."""
        recorded, traced = self.recorded(), self.traced()
        equal(recorded, traced, "recorded against strace")
        equal(len(recorded), processes, "processes that use data")
        for slot in self.ring.slots():
            self.totals_match(slot)

    def totals_match(self, slot):
        """The totals of the header are the sums of the events."""
        for name in ("Open", "Read", "Seek", "Close", "BufferedRead", "Map"):
            events = [event for event in slot.of(name) if event.kind == ring.REGULAR and not event.flags & ring.CODE]
            moved = sum(max(event.result, 0) for event in events) if "Read" in name else 0
            equal(slot.data[name][:2], (len(events), moved), "totals of %s in %s" % (name, slot.command))


def build():
    """Builds the library, and checks that no code in it can panic."""
    target = os.path.join(ROOT, "target", "preload")
    subprocess.run(["cargo", "build", "--release", "--quiet", "--locked", "--target-dir", target,
                    "--manifest-path", os.path.join(CRATE, "Cargo.toml")], check=True)
    library = os.path.join(target, "release", "libfeedline_preload.so")
    with open(library, "rb") as file:
        if b"feedline-preload panicked" in file.read():
            raise AssertionError("some code in the library can panic")
    return library


@check
def every_function_returns_what_it_does_alone(bench):
    program = bench.compiled("calls")

    def prepare():
        with open(os.path.join(bench.data, "data"), "wb") as file:
            file.write((b"x" * 999 + b"\n") * 100)

    prepare()
    alone = bench.alone(program, bench.data)
    prepare()
    equal(bench.run(program, bench.data), alone, "output")
    slot = [slot for slot in bench.ring.slots() if slot.executed and slot.command[0] == program][0]
    calls = {name: total[0] for name, total in slot.totals.items()}
    errors = {name: total[3] for name, total in slot.totals.items()}
    wanted = dict(Stat=10, List=4, Map=2, Unmap=1, Advise=3, Sync=2, Poll=7, Receive=3, Rename=2, Unlink=4, Fork=2,
                  Thread=1, Move=4, Uring=1, BufferedRead=6, Seek=7, Exit=1, Write=3)
    equal({name: calls[name] for name in wanted}, wanted, "calls")
    wanted = dict(Stat=2, List=1, Map=1, Unlink=2, Uring=1, Open=2, Read=1, Close=2)
    equal({name: errors[name] for name in wanted}, wanted, "errors")
    reads = [(event.offset, event.result) for event in slot.of("Read") if event.kind == ring.REGULAR]
    equal(reads, [(0, 1000), (500, 300), (99500, 500), (10, 300), (800, 300)], "offsets of reads")
    buffered = [(event.offset, event.result) for event in slot.of("BufferedRead") if event.kind == ring.REGULAR]
    equal(buffered, [(0, 300), (1000, 49), (1049, 951), (99990, 10), (0, 7)], "offsets in streams")
    moves = [(event.offset, event.result) for event in slot.of("Move") if event.kind == ring.REGULAR]
    equal(moves, [(100, 1000), (0, 1000), (1000, 1000), (2000, 1000)], "offsets of moves")
    opens, closes = slot.data["Open"], slot.data["Close"]
    equal((opens[0] - opens[3], closes[0]), (7, 7), "opens and closes of data")
    bench.totals_match(slot)


def main():
    wanted = sys.argv[1:]
    library = build()
    failed = []
    for one in CHECKS:
        if wanted and one.__name__ not in wanted:
            continue
        bench = Bench(library)
        try:
            one(bench)
            print("ok      %s" % one.__name__, flush=True)
        except Exception:
            failed.append(one.__name__)
            print("FAILED  %s\n%s" % (one.__name__, traceback.format_exc()), flush=True)
        finally:
            bench.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
