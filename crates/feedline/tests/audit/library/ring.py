"""Reads the memory that the preload library writes to: a second reading of layout.rs, for the checks of the library."""

import collections
import os
import re
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..", "..", "..", "audit", "preload", "src", "layout.rs")
SLOTS, EVENTS, CONTROL_BYTES, HEADER_BYTES, EVENT_BYTES, TEXT_BYTES = 4096, 65536, 32 << 10, 8 << 10, 64, 60
SLOT_BYTES = HEADER_BYTES + EVENTS * EVENT_BYTES
RING_BYTES = CONTROL_BYTES + SLOTS * SLOT_BYTES
EVENT = struct.Struct("<IBBHIiQQqQqII")
INHERITED, CODE, POSITIONED = 1, 2, 4
REGULAR = 1

Event = collections.namedtuple("Event", "seq op kind flags tid fd start file offset asked result duration device")


def numbers(enum):
    """The values of an enumeration in layout.rs."""
    text = open(SOURCE).read()
    body = re.search(r"pub enum %s \{(.*?)\n\}" % enum, text, re.S).group(1)
    return {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+),", body, re.M)}


OP, MARK, TEXT = numbers("Op"), numbers("Mark"), numbers("TextKind")
NAME = {number: name for name, number in OP.items()}
OPS = len(OP)
VERSION = int(re.search(r"VERSION: u32 = (\d+)", open(SOURCE).read()).group(1))


class Slot:
    """What one process left behind."""

    def __init__(self, memory):
        header = os.pread(memory[0], HEADER_BYTES, memory[1])
        (self.pid, self.parent, self.started, self.executed, command, self.rank, self.ranks, self.head, self.tail,
         self.dropped, self.untracked) = struct.unpack_from("<IIQIIqqQQQQ", header)
        at = struct.calcsize("<IIQIIqqQQQQ")
        both = struct.unpack_from("<%dQ" % (8 * OPS), header, at)
        rows = [both[i * 4:i * 4 + 4] for i in range(2 * OPS)]
        self.totals = {name: rows[number] for name, number in OP.items()}
        self.data = {name: rows[OPS + number] for name, number in OP.items()}
        at += 64 * OPS
        self.command = header[at:at + command].rstrip(b"\0").decode(errors="replace").split("\0")
        self.events, self.texts = [], []
        raw = os.pread(memory[0], min(self.head, EVENTS) * EVENT_BYTES, memory[1] + HEADER_BYTES)
        position = 0
        while position < min(self.head, EVENTS):
            event = Event(*EVENT.unpack_from(raw, position * EVENT_BYTES))
            position += 1
            if event.seq != position:
                continue
            if event.op == OP["Text"]:
                parts = -(-event.asked // TEXT_BYTES)
                starts = [(position + part) * EVENT_BYTES + 4 for part in range(parts)]
                whole = b"".join(raw[start:start + TEXT_BYTES] for start in starts)
                self.texts.append((event.kind, event.file, whole[:event.asked].decode(errors="replace")))
                position += parts
            self.events.append(event)

    def of(self, *names):
        wanted = [OP[name] for name in names]
        return [event for event in self.events if event.op in wanted]

    def marks(self, name):
        return [(event.file, event.offset, event.asked) for event in self.of("Mark") if event.kind == MARK[name]]

    def text(self, name):
        return [(number, text) for kind, number, text in self.texts if kind == TEXT[name]]


class Ring:
    """The memory, and the environment that leads to it."""

    def __init__(self, library, python=None, version=VERSION):
        self.fd = os.memfd_create("feedline-audit")
        os.ftruncate(self.fd, RING_BYTES)
        # Version, bits of the sample, wake-ups, processes refused, slots, filters of system calls.
        os.pwrite(self.fd, b"feedline" + struct.pack("<6I", version, 0, 0, 0, SLOTS, 1000), 0)
        self.library = library
        self.preload = library
        self.python = python

    def variables(self):
        variables = {
            "FEEDLINE_AUDIT_RING": "/proc/%d/fd/%d" % (os.getpid(), self.fd),
            "FEEDLINE_AUDIT_LIBRARY": self.library,
            "LD_PRELOAD": self.preload,
            "ASAN_OPTIONS": "verify_asan_link_order=0",
        }
        if self.python:
            variables.update(FEEDLINE_AUDIT_PYTHON=self.python, PYTHONPATH=self.python)
        return variables

    def run(self, command, strace=None, **options):
        """Runs a program, below strace if `strace` is the prefix for one output file per thread."""
        variables = self.variables()
        if strace:
            calls = "open,openat,read,pread64,readv,preadv,preadv2,lseek,close"
            prefix = ["strace", "-ff", "-qq", "-y", "-s", "0", "-o", strace, "-e", "trace=" + calls]
            prefix += [part for name, value in variables.items() for part in ("-E", name + "=" + value)]
            return subprocess.run(prefix + command, **options)
        return subprocess.run(command, env=dict(os.environ, **variables), **options)

    def slots(self):
        states = struct.unpack("<%dI" % SLOTS, os.pread(self.fd, 4 * SLOTS, 32))
        at = [CONTROL_BYTES + number * SLOT_BYTES for number, state in enumerate(states) if state]
        return [Slot((self.fd, offset)) for offset in at]

    def close(self):
        os.close(self.fd)


LINE = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|\?|0x[0-9a-f]+)(?:<(.*?)>)?")


def strace_counts(prefix, folder):
    """By thread and call, from the output of strace: number and bytes of calls on files below `folder`."""
    counts = collections.defaultdict(lambda: [0, 0])
    for name in os.listdir(os.path.dirname(prefix)):
        path = os.path.join(os.path.dirname(prefix), name)
        if not path.startswith(prefix + "."):
            continue
        tid = int(name.rsplit(".", 1)[1])
        for line in open(path, errors="replace"):
            found = LINE.match(line)
            if not found or found.group(3) in ("?", "-1"):
                continue
            call, arguments, result, opened = found.groups()
            first = re.match(r"\d+<([^>]*)>", arguments)
            file = opened if call in ("open", "openat") else (first.group(1) if first else "")
            if not file or not file.startswith(folder + "/"):
                continue
            one = counts[tid, call]
            one[0] += 1
            if call in ("read", "pread64", "readv", "preadv", "preadv2"):
                one[1] += int(result)
    return counts
