"""Power failures: file systems on loop devices that are shut down without writing their log or their caches."""

import fcntl
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import time

from . import INVALID, NotTried, OK, Running, case, check

# FS_IOC_SHUTDOWN, and its flag that does not write the log.
SHUTDOWN, WITHOUT_LOG = 0x8004587D, struct.pack("I", 2)

WORKLOAD = """
framework: pytorch
dataset: {{format: npz, data_folder: data, num_files_train: {files}, num_samples_per_file: 1,
  record_length_bytes: {bytes}, compression: {compression}, compressible: 0.3}}
reader: {{data_loader: pytorch, batch_size: 2, read_threads: 2}}
train: {{epochs: 1, computation_time: 0}}
"""


class Disk:
    """A file system with simulated power failures."""

    def __init__(self, attack, kind):
        self.attack, self.kind = attack, kind
        self.device = attack.loop_device(pathlib.Path(tempfile.mkdtemp(dir=attack.scratch)) / "image", 400 << 20)
        attack.command(f"mkfs.{kind}", "-q", self.device)
        self.folder = attack.mount(self.device)

    def flush_something_else(self):
        """Another program flushes a file of its own, which writes the log to the disk but not feedline's data."""
        with open(self.folder / "another", "w") as file:
            file.write("x")
            os.fsync(file.fileno())

    def cut(self):
        """Simulates a power failure. Processes with open files there end first."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, WITHOUT_LOG)
        finally:
            os.close(folder)
        self.mount_again()
        # After a power failure the host has a new boot ID.
        manifest = self.folder / "data/.feedline/dataset.json"
        if manifest.exists() and "boot_id" in (text := manifest.read_text()):
            manifest.write_text(json.dumps({**json.loads(text), "boot_id": "another"}) + "\n")
            os.sync()

    def mount_again(self):
        """Waits until no other mount namespace keeps the file system alive."""
        for _ in range(60):
            self.attack.command("umount", self.folder)
            self.attack.command("mount", self.device, self.folder)
            try:
                (self.folder / "alive").write_text("")
                return
            except OSError:
                time.sleep(0.5)
        raise NotTried("another mount namespace keeps the file system")

    def feedline(self, *arguments, **options):
        return self.attack.feedline(*arguments, cwd=self.folder, **options)


def workload(disk, files=24, size=4096, compression="none"):
    (disk.folder / "w.yaml").write_text(WORKLOAD.format(files=files, bytes=size, compression=compression))
    subprocess.run(["sync", "-f", disk.folder], check=True)


def succeeds(done, what):
    check(done.returncode == OK, f"{what}: exit code {done.returncode}: {done.stderr.strip()}")
    return done


@case("the power fails after generate has ended")
def generated(attack):
    for kind in "xfs", "ext4":
        disk = Disk(attack, kind)
        for number in range(10 if attack.is_long else 2):
            workload(disk)
            succeeds(disk.feedline("generate", "w.yaml", "--quiet"), "generate")
            disk.flush_something_else()
            disk.cut()
            for name in ".feedline/dataset.json", ".mlps-datagen-manifest.json":
                text = (disk.folder / "data" / name).read_text()
                check(text.endswith("}\n"), f"{kind}, cut {number}: {name} has {len(text)} bytes")
            again = succeeds(disk.feedline("generate", "w.yaml", "--verify", "--json", "--quiet"), kind)
            check(json.loads(again.stdout)["files_written"] == 0, f"{kind}: files had to be written again")
            subprocess.run(["rm", "-r", disk.folder / "data"], check=True)
    return "manifests and files are complete"


@case("the power fails during generate")
def generating(attack):
    chance, cuts = random.Random(14), 0
    sets = [(kind, *shape) for kind in ("xfs", "ext4") for shape in [(200, 20_000, "none"), (6, 13_000_000, "zip")]]
    for kind, files, size, compression in sets:
        disk = Disk(attack, kind)
        for number in range(12 if attack.is_long else 2):
            workload(disk, files, size, compression)
            flags = ["--overwrite"] if number % 2 else []
            running = Running(disk.folder, "generate", "w.yaml", "--quiet", *flags)
            time.sleep(chance.uniform(0.01, 0.25 if compression == "none" else 2))
            disk.flush_something_else()
            running.kill()
            disk.cut()
            cuts += 1
            again = disk.feedline("generate", "w.yaml", "--verify", "--quiet", *flags)
            succeeds(again, f"{kind}, {compression}, cut {number}: generate goes on")
            if number % 2:
                subprocess.run(["rm", "-r", disk.folder / "data"], check=True)
    return f"{cuts} cuts; generate resumed and every byte was right"


@case("the power fails after run, catalog and sweep have ended")
def published(attack):
    for kind in "xfs", "ext4":
        disk = Disk(attack, kind)
        workload(disk)
        (disk.folder / "foreign").mkdir()
        (disk.folder / "foreign/a.jpg").write_text("x")
        os.sync()
        run = ["run", "w.yaml", "--quiet", "--store", "null", "--no-calibration"]
        succeeds(disk.feedline(*run, "--results-dir", "some/where"), "run")
        succeeds(disk.feedline("catalog", "foreign", "--quiet"), "catalog")
        over = ["--over", "reader.read_threads=1,2", "--repeat", "1", "--output", "deep/sweep"]
        succeeds(disk.feedline("sweep", "w.yaml", "--quiet", "--store", "null", "--no-calibration", *over), "sweep")
        disk.cut()
        succeeds(disk.feedline("validate", "some/where/w"), f"{kind}: the result")
        succeeds(disk.feedline("catalog", "foreign", "--check"), f"{kind}: the catalog")
        check(json.loads((disk.folder / "deep/sweep/sweep.json").read_text()), f"{kind}: sweep.json")
        lines = (disk.folder / "deep/sweep/cells.jsonl").read_text().splitlines()
        check(len(lines) == 3, f"{kind}: the journal has {len(lines)} lines")
    return "results, catalogs, journals and their folders are complete"


@case("the power fails between the runs of a sweep")
def sweeping(attack):
    disk = Disk(attack, "xfs")
    workload(disk)
    arguments = ["sweep", "w.yaml", "--quiet", "--store", "null", "--no-calibration", "--output", "sweep"]
    arguments += ["--over", "reader.read_threads=1,2", "--repeat", "30", "--set", "train.computation_time=0.001"]
    running = Running(disk.folder, *arguments)
    journal = disk.folder / "sweep/cells.jsonl"
    done = 0
    while done < 6 and running.process.poll() is None:
        time.sleep(0.01)
        done = len(journal.read_text().splitlines()) - 2 if journal.exists() else 0
    running.kill()
    disk.cut()
    check(journal.exists(), "the journal is gone")
    kept = len(journal.read_text().splitlines()) - 1
    check(kept >= done, f"{done} runs were reported as done and {kept} are in the journal")
    again = disk.feedline(*arguments)
    check(again.returncode in (OK, INVALID), f"the sweep does not resume: {again.stderr.strip()}")
    return f"{kept} runs were kept"
