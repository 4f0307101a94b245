"""What the jobs of this folder share: arguments, parameters drawn from the seed, data, emulated compute, the truth.

Every job is called as `python3 JOB.py --dir DIR --seed N --variant fault|healthy`: with `--prepare` it makes its data
(and evicts them where the job is to begin cold), with `--truth` it prints what an audit should find, and with neither it
is the job.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore", message="This DataLoader will create")

# Notes and limits that are true of many jobs without being a fault.
NOTES = ["not-input-bound", "served-from-page-cache"]
LIMITS = ["decode-bound", "storage-bound", "convoy"]


class Job:
    """The arguments of a job, and its drawn parameters: the same with `--prepare` and without, and in both variants."""

    def __init__(self, expected, also_ok=(), healthy_ok=(), arguments=()):
        parser = argparse.ArgumentParser()
        parser.add_argument("--dir", required=True)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--variant", choices=["fault", "healthy"], default="fault" if expected else "healthy")
        parser.add_argument("--truth", action="store_true")
        parser.add_argument("--prepare", action="store_true")
        for name, options in arguments:
            parser.add_argument(name, **options)
        self.args = parser.parse_args()
        self.name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
        self.random = random.Random(f"{self.name} {self.args.seed}")
        self.faulty = self.args.variant == "fault"
        self.expected = expected if self.faulty else None
        self.also_ok = list(NOTES) + list(also_ok if self.faulty else healthy_ok)
        self.params = {}
        # A command in front of the audit, which prepares where the job runs.
        self.within = []

    def set(self, name, value):
        self.params[name] = value
        return value

    def draw(self, name, low, high):
        """A whole or a real number in a range, the ends included; log-uniform where the range is wide."""
        if high >= 8 * low > 0:
            value = low * (high / low) ** self.random.random()
        else:
            value = self.random.uniform(low, high)
        return self.set(name, round(value) if isinstance(low, int) else round(value, 6))

    def pick(self, name, *options):
        return self.set(name, self.random.choice(options))

    def loader(self, workers=(1, 4), batch=(4, 16), methods=("fork", "fork", "fork", "spawn", "forkserver"), keep=None):
        """Arguments of a PyTorch DataLoader. `keep`: whether workers are persistent, else drawn where forking."""
        method = self.pick("method", *methods)
        count = self.draw("workers", *workers)
        if method != "fork":
            count = self.set("workers", max(workers[0], min(count, 2)))
        drawn = self.random.random() < 0.7
        persistent = (drawn or method != "fork" or not self.faulty) if keep is None else keep
        self.set("persistent", persistent)
        if not persistent:
            self.also_ok.append("workers-restarted")
        if method != "fork":
            self.also_ok.append("import-storm")  # PyTorch alone is more than 200 module files in each worker.
        return {
            "batch_size": self.draw("batch", *batch),
            "num_workers": count,
            "multiprocessing_context": method,
            "persistent_workers": persistent,
            "prefetch_factor": self.draw("prefetch", 2, 4),
        }

    def compute(self, low, high, slow=8, steps=0, most=1.8):
        """Seconds of compute per step. Two of three healthy jobs compute `slow` times as long and hide the loading.

        `steps`: the steps of the whole job, whose compute is held below `most` seconds.
        """
        seconds = self.draw("compute", low, high)
        slow = max(1, min(slow, most / (seconds * steps or 1)))
        hides = self.random.random() < 0.67
        if not self.faulty and hides:
            return self.set("compute", round(seconds * slow, 6))
        if not self.faulty:
            self.also_ok += LIMITS
        return seconds

    def path(self, *parts):
        return os.path.join(self.args.dir, *parts)

    def begin(self, make):
        """With `--truth` and with `--prepare`: prints the truth, makes the data, and ends.

        `finding`: the fault that is to be named first. `also_ok`: findings that are true of the job, too.
        """
        if self.args.truth:
            truth = {"finding": self.expected, "also_ok": sorted(set(self.also_ok)), "params": self.params}
            print(json.dumps({**truth, "within": self.within}))
            sys.exit(0)
        if self.args.prepare:
            os.makedirs(self.args.dir, exist_ok=True)
            make()
            sys.exit(0)

    def ranks(self, count):
        """Starts this job once per rank, as torchrun does, and returns in the ranks only, with the number of the rank."""
        if "RANK" in os.environ:
            return int(os.environ["RANK"])
        started = []
        for rank in range(count):
            env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
            started.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
        sys.exit(max(abs(child.wait()) for child in started))


def in_namespace(prepare):
    """A command for `within`: runs `prepare` in a mount namespace of its own, and then the audit. Needs root."""
    return ["unshare", "-m", "sh", "-c", f'{prepare} && exec "$@"', "sh"]


def in_group(memory):
    """A command for `within`: a control group with this limit of memory, in bytes. Needs root."""
    group = "$root/feedline-test-$$"
    return ["sh", "-c", f"""
        root=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
        [ -d $root ] || {{ root=/sys/fs/cgroup limit=memory.max; echo +memory > $root/cgroup.subtree_control; }}
        mkdir {group} && echo {memory} > {group}/$limit && echo $$ > {group}/cgroup.procs || exit 99
        "$@"
        code=$?
        echo $$ > $root/cgroup.procs
        rmdir {group}
        exit $code
    """, "sh"]


NOISE = random.Random(0).randbytes(1 << 20)


def noise(size, at=0):
    at %= len(NOISE)
    return (NOISE[at:] + NOISE * (size // len(NOISE) + 1))[:size]


def write_file(path, size, number=0):
    """A file whose contents depend on its number."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for at in range(0, size, 1 << 20):
            file.write(noise(min(1 << 20, size - at), 4099 * (at >> 20) + 7919 * number))


def write_files(folder, sizes, suffix="bin"):
    for number, size in enumerate(sizes):
        write_file(os.path.join(folder, f"{number:05}.{suffix}"), size, number)


def paths(folder):
    return [entry.path for entry in sorted(os.scandir(folder), key=lambda entry: entry.name)]


def evict(files, sync=False):
    """Drops files from the page cache; `sync` first writes what is dirty, which cannot be dropped."""
    if sync:
        os.sync()
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def crop(data, width=2048):
    """The first bytes as a tensor: the part of a sample that training uses."""
    import torch

    return torch.frombuffer(bytearray(data[:width].ljust(width)), dtype=torch.uint8)


def compute(seconds):
    """Forward and backward pass on a device: the CPU is free."""
    time.sleep(seconds)


def train(loader, epochs, seconds, before=None):
    for epoch in range(epochs):
        if before:
            before(epoch)
        for _batch in loader:
            compute(seconds)
