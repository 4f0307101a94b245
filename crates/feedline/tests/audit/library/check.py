"""Checks of the preload library and of the marks in Python without feedline: what real programs leave in the shared memory,
and what they print against what they print alone. `check.py NAME...` runs these checks; `library.rs` runs each of them.

FEEDLINE_CHECK_LIBRARY and FEEDLINE_CHECK_MARKS are the library and the folder of the marks. FEEDLINE_CHECK_PYTHON is a Python
with TensorFlow.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import traceback

import ring

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "..", "programs")
LIBRARY = os.environ["FEEDLINE_CHECK_LIBRARY"]
MARKS = os.environ["FEEDLINE_CHECK_MARKS"]
TORCH_PYTHON = "/usr/bin/python3"
OTHER_PYTHON = os.environ["FEEDLINE_CHECK_PYTHON"]
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
        return self.run(python, os.path.join(HERE, name), self.data, *arguments, **options)

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

    def compare(self, processes, own_seeks=0):
        """Both must agree in every process; `processes` is the number of those that use the data. `own_seeks`: how often
        the library itself asks for the position of a descriptor that is shared."""
        recorded, traced = self.recorded(), self.traced()
        for one in traced.values():
            one["lseek"] -= own_seeks
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


@check
def plain_python(bench):
    bench.files(20)
    equal(bench.job("plain.py", traced=True), bench.alone(sys.executable, os.path.join(HERE, "plain.py"), bench.data),
          "output")
    # Two reads of each file by a descriptor that was duplicated.
    bench.compare(1, own_seeks=40)
    slot = bench.one()
    equal((slot.data["Map"][0], len(slot.of("Unmap"))), (20, 20), "mappings")
    starts = {event.offset for event in slot.of("Read") if event.file in bench.inodes() and event.result == 50}
    equal(starts, {300, 350}, "offsets of reads by two descriptors of one file")


@check
def half_read_file_of_a_process_that_starts_others(bench):
    bench.files(1, 100_000)
    program = """
import os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 1000)
for _ in range(3):
    # Starts by vfork: the child closes and duplicates descriptors in the memory of its parent.
    subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, close_fds=True)
    subprocess.run(["/bin/true"], stdin=fd, close_fds=True)
    os.read(fd, 1000)
print(os.lseek(fd, 0, os.SEEK_CUR))
"""
    equal(bench.run(sys.executable, "-c", program, os.path.join(bench.data, "00000.bin")), "4000\n", "output")
    slot = [slot for slot in bench.ring.slots() if "-c" in slot.command][0]
    reads = [event for event in slot.of("Read") if event.file in bench.inodes()]
    equal([event.offset for event in reads], [0, 1000, 2000, 3000], "offsets")
    equal({event.kind for event in reads}, {ring.REGULAR}, "kinds")
    equal(len(slot.of("Spawn")), 6, "programs started")
    equal(sorted({text for _, text in slot.text("Program")}), ["/bin/true"], "their names")
    equal(len([slot for slot in bench.ring.slots() if slot.command == ["/bin/true"]]), 6, "processes of them")


@check
def inherited_descriptor_is_flagged(bench):
    bench.files(1, 100_000)
    program = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.read(fd, 1000)
if os.fork() == 0:
    os.lseek(fd, 5000, os.SEEK_SET)
    os.read(fd, 1000)
    os._exit(0)
os.wait()
os.read(fd, 1000)
"""
    bench.run(sys.executable, "-c", program, os.path.join(bench.data, "00000.bin"))
    found = {}
    for slot in bench.ring.slots():
        of_data = [event for event in slot.of("Read") if event.file in bench.inodes()]
        found[slot.executed] = [(event.offset, event.flags & ring.INHERITED) for event in of_data]
    equal(found[0], [(5000, ring.INHERITED)], "reads of the child")
    equal(found[1][0], (0, 0), "reads of the parent")


@check
def child_with_an_empty_environment(bench):
    bench.files(1)
    inner = "open(%r, 'rb').read()" % os.path.join(bench.data, "00000.bin")
    program = """
import os, subprocess, sys
command = [sys.executable, "-c", sys.argv[1]]
subprocess.run(command, env={}, check=True)
pid = os.posix_spawn(command[0], command, {})
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
if os.fork() == 0:
    os.execve(command[0], command, {})
os.wait()
"""
    bench.run(sys.executable, "-c", program, inner)
    seen = [slot for slot in bench.ring.slots() if slot.command[-1] == inner and slot.executed]
    children = [slot for slot in seen if slot.data["Read"][0]]
    equal(len(children), 3, "children that are observed")


@check
def silent_without_feedline(bench):
    bench.files(5)
    program = os.path.join(HERE, "plain.py")
    alone = bench.alone(sys.executable, program, bench.data)
    for change in ({"FEEDLINE_AUDIT_RING": ""}, {"FEEDLINE_AUDIT_RING": "/nowhere"},
                   {"FEEDLINE_AUDIT_RING": program}, {"FEEDLINE_AUDIT_RING": "/dev/null"}):
        variables = dict(os.environ, **dict(bench.ring.variables(), **change))
        done = subprocess.run([sys.executable, program, bench.data], env=variables, capture_output=True, text=True)
        equal((done.returncode, done.stdout, done.stderr), (0, alone, ""), "result with %s" % change)
    older = ring.Ring(bench.library, MARKS, version=ring.VERSION + 1)
    done = older.run([sys.executable, program, bench.data], capture_output=True, text=True)
    equal((done.returncode, done.stdout, done.stderr), (0, alone, ""), "result with another version")
    equal((older.slots(), bench.ring.slots()), ([], []), "processes observed")
    older.close()


def marks_of(bench, name):
    return [mark for slot in bench.ring.slots() for mark in slot.marks(name)]


@check
def marks_of_torch_loaders(bench):
    """For each kind of job: epochs begun and ended, batches, and what the loader is."""
    none = 2 ** 64 - 1
    for kind, workers, method, persistent, loaders, begun, ended, batches in (
            ("map", 0, "fork", 0, 1, 3, 3, 48), ("map", 2, "fork", 0, 1, 3, 3, 48), ("map", 2, "fork", 1, 1, 3, 3, 48),
            ("map", 2, "spawn", 0, 1, 3, 3, 48), ("map", 2, "forkserver", 1, 1, 3, 3, 48),
            ("iterable", 2, "fork", 0, 1, 3, 3, 48), ("iterable", 0, "fork", 0, 1, 3, 3, 48),
            ("iterable", 2, "fork", 1, 1, 3, 3, 48), ("subclass", 2, "fork", 0, 1, 3, 3, 48),
            ("subclass", 2, "fork", 1, 1, 3, 3, 48), ("abandoned", 2, "fork", 0, 1, 3, 0, 6),
            ("two", 2, "fork", 0, 2, 6, 6, 72), ("endless", 2, "fork", 0, 1, 3, 3, 48), ("save", 0, "fork", 0, 1, 3, 3, 48)):
        what = "%s with %d workers by %s, persistent %d" % (kind, workers, method, persistent)
        one = Bench(bench.library)
        try:
            one.files(64, 100)
            arguments = (method, str(workers), str(persistent), kind, "3")
            alone = one.alone(TORCH_PYTHON, os.path.join(HERE, "loader.py"), one.data, *arguments)
            equal(one.job("loader.py", *arguments), alone, "output of " + what)
            main = [slot for slot in one.ring.slots() if slot.marks("EpochBegin")]
            equal(len(main), 1, "processes with epochs in " + what)
            main = main[0]
            found = [len(main.marks(name)) for name in ("Loader", "EpochBegin", "EpochEnd")]
            taken = [wait for wait in main.marks("WaitEnd") if wait[1] >= 0]
            equal(found + [len(taken)], [loaders, begun, ended, batches], "marks of " + what)
            equal({wait[2] for wait in taken} <= {4, 8}, True, "samples in a batch of " + what)
            about = main.marks("Loader")[0][1]
            number = dict(fork=0, spawn=1, forkserver=2)[method]
            wanted = workers | persistent << 16 | (kind == "iterable") << 17 | number << 18 | 1 << 24
            equal(about, wanted, "description of " + what)
            epochs = [mark[1] for mark in main.marks("EpochBegin") if mark[0] == 0]
            equal(epochs, [0, 1, 2], "numbers of epochs of " + what)
            served = {wait[2] for wait in main.marks("WaitBegin") if wait[0] == 0 and wait[2] != none}
            equal(served, set(range(workers)), "workers that are waited for in " + what)
            starts = 3 if workers and not persistent and kind != "endless" else 1
            equal(sorted(mark[:2] for mark in marks_of(one, "Worker")),
                  sorted([(number, workers) for number in range(workers)] * starts), "workers of " + what)
            fetched = sum(mark[0] for mark in marks_of(one, "FetchEnd"))
            if kind not in ("abandoned", "endless"):
                equal(fetched, 64 * begun, "samples fetched by " + what)
            equal(len(main.marks("Checkpoint")), 2 if kind == "save" else 0, "checkpoints of " + what)
            equal({mark[1] for mark in marks_of(one, "Prepared")}, {1}, "modules prepared by " + what)
            sites = [text for slot in one.ring.slots() for _, text in slot.text("Site")]
            equal(any(text.endswith("in __getitem__") for text in sites), True, "call sites of " + what)
        finally:
            one.close()


@check
def marks_of_tensorflow(bench):
    bench.files(64, 100)
    # 2 epochs of 8 steps in `fit`, and a loop over 8 batches.
    equal(bench.job("keras_fit.py", python=OTHER_PYTHON), "2 8\n", "output")
    main = [slot for slot in bench.ring.slots() if slot.marks("EpochBegin")][0]
    frameworks = {mark[0]: mark[1] >> 24 for mark in main.marks("Loader")}
    equal(sorted(frameworks.values()), [2, 3], "frameworks")
    of = {framework: number for number, framework in frameworks.items()}
    begun = [mark for mark in main.marks("EpochBegin") if mark[0] == of[3]]
    equal([mark[1] for mark in begun], [0, 1], "epochs of Keras")
    steps = [mark for mark in main.marks("Step")]
    equal((steps[0], len([mark for mark in steps if mark[2] == 1])), ((of[3], 0, 1), len(steps) // 2), "steps")
    equal(len(steps) // 2 in (16, 17), True, "%d steps of Keras" % len(steps))
    taken = [mark for mark in main.marks("WaitEnd") if mark[1] >= 0]
    equal([mark[2] for mark in taken], [8] * 8, "batches of the loop")
    equal(len(main.marks("Checkpoint")), 2, "checkpoints")
    equal({mark[1] for mark in main.marks("Prepared")}, {1}, "modules prepared")


def main():
    failed = []
    for name in sys.argv[1:]:
        bench = Bench(LIBRARY)
        try:
            [one for one in CHECKS if one.__name__ == name][0](bench)
        except Exception:
            failed.append(name)
            print("FAILED  %s\n%s" % (name, traceback.format_exc()), flush=True)
        finally:
            bench.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
