"""Bytes from memory that look like bytes from storage."""

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from . import FEEDLINE, INVALID, NOBODY, OK, NotTried, case, check

WORKLOAD = """
model: {{name: attack}}
framework: pytorch
workflow: {{train: True}}
dataset: {{data_folder: data, format: {format}, num_files_train: {files}, num_samples_per_file: {samples}, record_length_bytes: {bytes}}}
reader: {{data_loader: pytorch, batch_size: 8, read_threads: 2, file_shuffle: seed, sample_shuffle: seed, access: {access}}}
train: {{epochs: 2, computation_time: 0.005}}
"""
MANY = dict(format="hdf5", files=48, samples=64, bytes=16384, access="extent")
ONE = dict(format="jpeg", files=600, samples=1, bytes=65536, access="extent")
NOT_VALID = ["fail", "not-checkable"]


def generated(attack, folder, workload):
    """Writes a workload file and its data set, and returns the folder of the files."""
    (attack.scratch / "w.yaml").write_text(WORKLOAD.format(**workload))
    done = attack.feedline("generate", "./w.yaml", "--data-dir", folder, "--quiet")
    check(done.returncode == OK, done.stderr)
    os.sync()
    return pathlib.Path(folder) / "train"


def cache_rule(attack, folder, *flags, **options):
    """Runs the workload and returns the outcome of the rule `cache`, and its evidence."""
    verdict, done = attack.verdict("./w.yaml", "--data-dir", folder, *flags, **options)
    rule = next(rule for rule in verdict["rules"] if rule["rule"] == "cache")
    if rule["outcome"] == "fail":
        check(done.returncode == INVALID, f"exit code {done.returncode} although the rule failed")
    return rule["outcome"], rule["evidence"]


def expect(found, outcomes, *words):
    outcome, evidence = found
    check(outcome in outcomes, f"cache: {outcome} ({evidence})")
    missing = [word for word in words if word not in evidence]
    check(not missing, f"the evidence does not say '{missing[0] if missing else ''}': {evidence}")
    return f"{outcome}: {evidence}"


class Reader:
    """Another process that reads files again and again."""

    LOOP = """
import sys
while True:
    for path in sys.argv[1:]:
        with open(path, "rb") as file:
            while file.read(1 << 20):
                pass
"""

    def __init__(self, attack, files):
        self.process = subprocess.Popen([sys.executable, "-c", self.LOOP, *map(str, files)])
        attack.defer(self.stop)

    def stop(self):
        self.process.kill()
        self.process.wait()


@case("another process reads the files right after each eviction, several samples per file")
def loaded_by_another_process(attack):
    files = sorted(generated(attack, attack.scratch / "data", MANY).iterdir())
    Reader(attack, files)
    found = [cache_rule(attack, "data")]
    if attack.is_long:
        found += [cache_rule(attack, "data", "--store", store) for store in ("uring", "mmap")]
        found += [cache_rule(attack, "data", "--cache-proof", "sample")]
    return [expect(each, ["fail"]) for each in found][0]


@case("the same for half of the files, while read-ahead hides the missing bytes")
def half_loaded_by_another_process(attack):
    files = sorted(generated(attack, attack.scratch / "data", MANY | dict(access="framework")).iterdir())
    Reader(attack, files[::2])
    return expect(cache_rule(attack, "data"), ["fail"])


@case("the same, one sample per file")
def loaded_single_samples(attack):
    files = sorted(generated(attack, attack.scratch / "data", ONE).iterdir())
    Reader(attack, files[::2])
    return expect(cache_rule(attack, "data"), ["fail"])


def punched(attack, folder, share):
    """Punches holes into this share of the files."""
    files = sorted(generated(attack, folder, ONE).iterdir())
    for path in files[: int(share * len(files))]:
        attack.command("fallocate", "--punch-hole", "--offset", 4096, "--length", 57344, path)
    os.sync()


def file_system(attack, kind, *options, size=1 << 30, backing=None, direct=True):
    """A new file system of this kind on a loop device, mounted."""
    device = attack.loop_device(backing or attack.scratch / "image", size)
    if direct:
        attack.command("losetup", "--direct-io=on", device)
    force = {"ext4": "-qF", "xfs": "-qf", "btrfs": "-qf"}[kind]
    attack.command(f"mkfs.{kind}", force, device)
    return attack.mount(*options, device)


@case("sparse files on btrfs, where only pages are counted")
def sparse_btrfs(attack):
    folder = file_system(attack, "btrfs") / "data"
    punched(attack, folder, 1)
    found = cache_rule(attack, folder, "--verify", "none")
    return expect(found, NOT_VALID, "holes")


@case("sparse files on the disk, a fifth of them, also with O_DIRECT")
def sparse_disk(attack):
    punched(attack, attack.scratch / "data", 0.2)
    expect(cache_rule(attack, "data", "--verify", "none", "--store", "direct"), ["fail"])
    return expect(cache_rule(attack, "data", "--verify", "none"), ["fail"])


@case("files that btrfs compresses")
def compressed_btrfs(attack):
    folder = file_system(attack, "btrfs", "-o", "compress-force=zstd") / "data"
    for path in generated(attack, folder, ONE).iterdir():
        path.write_bytes(b"compressible ".ljust(path.stat().st_size, b"x"))
    os.sync()
    return expect(cache_rule(attack, folder, "--verify", "none"), NOT_VALID, "compressed")


@case("files small enough for btrfs to keep them in its metadata")
def inline_btrfs(attack):
    folder = file_system(attack, "btrfs") / "data"
    generated(attack, folder, ONE | dict(format="npy", bytes=1024))
    return expect(cache_rule(attack, folder), NOT_VALID, "metadata")


@case("ext4 on a loop device whose file is in tmpfs, buffered and with O_DIRECT")
def loop_on_tmpfs(attack):
    memory = attack.mount("-t", "tmpfs", "-o", "size=600m", "tmpfs")
    folder = file_system(attack, "ext4", size=400 << 20, backing=memory / "image", direct=False) / "data"
    generated(attack, folder, ONE)
    expect(cache_rule(attack, folder, "--store", "direct"), NOT_VALID, "tmpfs keeps files in memory")
    return expect(cache_rule(attack, folder), NOT_VALID, "tmpfs keeps files in memory")


@case("ext4 on a loop device whose file is in the page cache")
def loop_through_page_cache(attack):
    folder = file_system(attack, "ext4", direct=False) / "data"
    generated(attack, folder, ONE)
    expect(cache_rule(attack, folder, "--store", "direct"), NOT_VALID, "through the page cache")
    return expect(cache_rule(attack, folder), NOT_VALID, "through the page cache")


def remove_zram(control, number):
    """Removes a zram device. After a lazy unmount the device stays busy for as long as something still uses its files."""
    for _ in range(300):
        try:
            return (control / "hot_remove").write_text(number)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            time.sleep(0.1)
    raise OSError(errno.EBUSY, f"zram{number} is still busy 30 s after its file system was unmounted")


@case("ext4 on zram")
def zram(attack):
    control = pathlib.Path("/sys/class/zram-control")
    if not control.exists():
        raise NotTried("this kernel has no zram")
    number = (control / "hot_add").read_text().strip()
    attack.defer(remove_zram, control, number)
    pathlib.Path(f"/sys/block/zram{number}/disksize").write_text(str(400 << 20))
    device = f"/dev/zram{number}"
    attack.command("mkfs.ext4", "-qF", device)
    folder = attack.mount(device) / "data"
    generated(attack, folder, ONE)
    return expect(cache_rule(attack, folder, "--store", "direct"), NOT_VALID, f"zram{number}", "in memory")


@case("files that are links to tmpfs, all but the first one")
def links_to_memory(attack):
    memory = attack.mount("-t", "tmpfs", "-o", "size=200m", "tmpfs")
    for path in sorted(generated(attack, attack.scratch / "data", ONE).iterdir())[1:]:
        shutil.move(path, memory / path.name)
        path.symlink_to(memory / path.name)
    return expect(cache_rule(attack, "data"), NOT_VALID)


@case("files of another user, whose pages the kernel does not show")
def files_of_another_user(attack):
    train = generated(attack, attack.scratch / "data", ONE)
    attack.scratch.chmod(0o755)
    (attack.scratch / "results").mkdir(mode=0o777)
    (attack.scratch / "results").chmod(0o777)
    # The binary may be in a folder that the other user cannot enter.
    binary = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp")) / "feedline"
    attack.defer(shutil.rmtree, binary.parent)
    binary.parent.chmod(0o755)
    shutil.copy(FEEDLINE, binary)
    arguments = [binary, "run", "./w.yaml", "--data-dir", "data", "--json", "--quiet", "--results-dir", "results"]

    def rule(*flags):
        done = subprocess.run(
            [*arguments, *flags], cwd=attack.scratch, capture_output=True, text=True, user=NOBODY, group=NOBODY,
            extra_groups=[], timeout=120,
        )
        check(done.stdout.startswith("{"), done.stderr)
        rules = json.loads(done.stdout)["feedline"]["verdict"]["rules"]
        return next((rule["outcome"], rule["evidence"]) for rule in rules if rule["rule"] == "cache")

    cold = expect(rule(), ["pass", "not-checkable"])
    check("6.5" not in cold, f"the wrong cause: {cold}")
    for path in train.iterdir():
        path.read_bytes()
    expect(rule("--cache", "as-is"), NOT_VALID)
    return cold


STORES = ("posix", "direct", "mmap", "uring")
REAL = (ONE, MANY, MANY | dict(access="framework"))


@case("no false alarm: real content on ext4, xfs and btrfs")
def real_content(attack):
    tried = 0
    for kind in ("ext4", "xfs", "btrfs"):
        folder = file_system(attack, kind, backing=attack.scratch / kind) / "data"
        for i, workload in enumerate(REAL):
            generated(attack, folder, workload)
            for store in STORES[i : i + 2]:
                expect(cache_rule(attack, folder, "--store", store), ["pass"])
                tried += 1
            shutil.rmtree(folder)
    return f"{tried} runs of {tried}"


@case("no false alarm: the demo, and every backend on ext4, xfs and btrfs, 20 runs of each (on a quiet machine)", long_only=True)
def stays_valid(attack):
    results = [attack.verdict(timeout=300)[0]["status"] for _ in range(20)]
    for kind in ("ext4", "xfs", "btrfs"):
        folder = file_system(attack, kind, backing=attack.scratch / kind) / "data"
        for workload in REAL:
            generated(attack, folder, workload)
            for store in STORES:
                runs = (attack.verdict("./w.yaml", "--data-dir", folder, "--store", store)[0] for _ in range(7))
                results += [verdict["status"] for verdict in runs]
            shutil.rmtree(folder)
    invalid = len(results) - results.count("valid")
    check(not invalid, f"{invalid} of {len(results)} runs were not valid")
    return f"{len(results)} runs of {len(results)}"
