"""Files of other programs: links, pipes and folders planted at the names that feedline writes and removes."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import threading

from . import FEEDLINE, REFUSED, case, check, NOBODY, TINY_MODEL

DATA = """
framework: pytorch
dataset: {format: npz, data_folder: data, num_files_train: 24, num_samples_per_file: 1, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 2, read_threads: 2}
train: {epochs: 1, computation_time: 0}
"""
CHECKPOINTS = TINY_MODEL + """
checkpoint: {checkpoint_folder: last, burst_folder: fast, num_checkpoints_write: 2, num_checkpoints_read: 0,
  time_between_checkpoints: 0, keep_last: 1}
"""


def prepare(attack, text):
    """A workload, and another user's folder with two files."""
    (attack.scratch / "w.yaml").write_text(text)
    theirs = attack.scratch / "theirs"
    (theirs / "folder").mkdir(parents=True)
    (theirs / "precious").write_text("work of years")
    (theirs / "folder/precious").write_text("more of it")
    return theirs


def snapshot(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def plant(path, kind, theirs):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link to a file":
        path.symlink_to(theirs / "precious")
    elif kind == "link to a folder":
        path.symlink_to(theirs / "folder")
    elif kind == "link to nothing":
        path.symlink_to(theirs / "new")
    elif kind == "hard link":
        path.hardlink_to(theirs / "precious")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / "precious").write_text("theirs")
    elif kind == "file of another user":
        path.write_text("theirs")
        os.chown(path, NOBODY, NOBODY)


KINDS = ["link to a file", "link to a folder", "link to nothing", "hard link", "pipe", "folder", "file of another user"]
RESERVED = {
    "generate": [
        "data/.feedline/dataset.json.partial", "data/.mlps-datagen-manifest.json.partial",
        "data/train/img_03_of_24.npz.partial",
    ],
    "catalog": ["data/.feedline/catalog.partial", "data/.feedline/catalog.new", "data/.feedline/catalog"],
    "sweep": ["out/cells.jsonl", "out/sweep.csv.partial", "out/sweep.json.partial", "out/sweep.svg"],
    "save": [
        f"{tier}/global_epoch1_step1{name}" for tier in ("last", "fast") for name in
        ("", ".replaced", "/checkpoint.draft", "/checkpoint.draft.partial", "/checkpoint.json.partial")
    ],
}
COMMANDS = {
    "generate": ["generate", "w.yaml", "--quiet"],
    "catalog": ["catalog", "data", "--quiet"],
    "sweep": ["sweep", "w.yaml", "--quiet", "--store", "null", "--no-calibration", "--repeat", "1", "--output", "out",
              "--over", "reader.read_threads=1,2"],
    "save": ["run", "w.yaml", "--ranks", "2", "--quiet", "--save", "burst-buffer"],
}


@case("an object is planted at every name that is reserved for feedline")
def planted(attack):
    cases = [(command, name, kind) for command, names in RESERVED.items() for name in names for kind in KINDS]
    # The long form tries all of them, as crates/feedline/tests/links.rs does; the short one tries every fifth.
    for command, name, kind in cases if attack.is_long else cases[::5]:
        shutil.rmtree(attack.scratch, ignore_errors=True)
        attack.scratch.mkdir()
        theirs = prepare(attack, CHECKPOINTS if command == "save" else DATA)
        path = attack.scratch / name
        if command == "catalog":
            (attack.scratch / "data").mkdir()
            (attack.scratch / "data/a.jpg").write_text("x")
        plant(path, kind, theirs)
        before, identity = snapshot(theirs), os.lstat(path)
        done = attack.feedline(*COMMANDS[command], timeout=60)
        what = f"{kind} at {name}"
        check(snapshot(theirs) == before, f"{what}: another user's files were changed")
        replaced = not os.path.lexists(path) or os.lstat(path).st_ino != identity.st_ino
        check(not replaced, f"{what}: it was replaced or removed")
        if done.returncode == REFUSED:
            check(name.split("/")[-1] in done.stderr or "train/ holds" in done.stderr, f"{what}: {done.stderr}")
    return "nothing was changed, and errors name it"


@case("a world-writable folder contains links planted by another user")
def sticky(attack):
    theirs = prepare(attack, DATA)
    os.chmod(attack.scratch, 0o755)
    shared = attack.scratch / "shared"
    shared.mkdir()
    os.chmod(shared, 0o1777)
    program = attack.scratch / "feedline"
    shutil.copy(FEEDLINE, program)
    hidden = shared / ".feedline"
    hidden.mkdir()
    os.chmod(hidden, 0o1777)
    os.chmod(theirs / "precious", 0o666)
    (hidden / "dataset.json.partial").symlink_to(theirs / "precious")
    (theirs / "empty").mkdir()
    os.chmod(theirs / "empty", 0o777)
    (shared / "train").symlink_to(theirs / "empty")
    before = snapshot(theirs)
    command = [program, "generate", "w.yaml", "--quiet", "--data-dir", "shared"]
    for name in hidden / "dataset.json.partial", shared / "train":
        done = subprocess.run(command, cwd=attack.scratch, user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True, timeout=60)
        check(snapshot(theirs) == before, "the files that the links lead to were changed")
        check(done.returncode == REFUSED and name.name in done.stderr, f"{name}: {done.stderr}")
        name.unlink()
    done = subprocess.run(command, cwd=attack.scratch, user=NOBODY, group=NOBODY, extra_groups=[],
                          capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, f"without the links: {done.stderr}")
    return "links are refused, and without them the data set is generated"


@case("a symbolic link in the checkpoint folder leads to another checkpoint, and keep_last is 1")
def linked_checkpoint(attack):
    theirs = prepare(attack, CHECKPOINTS)
    save = ["run", "w.yaml", "--ranks", "2", "--quiet"]
    attack.feedline(*save)
    other = theirs / "global_epoch1_step2"
    shutil.move(attack.scratch / "last/global_epoch1_step2", other)
    (attack.scratch / "last/global_epoch1_step2").symlink_to(other)
    before = snapshot(theirs)
    attack.feedline(*save, "--set", "checkpoint.num_checkpoints_write=1")
    gone = len(before) - len(snapshot(theirs))
    check(snapshot(theirs) == before, f"{gone} files in the other folder were deleted")
    return f"{len(before)} files in the other folder are untouched"


class Swap(threading.Thread):
    """Swaps a folder for a link to another user's folder and back, until the block ends."""

    def __init__(self, folder, theirs):
        super().__init__()
        self.folder, self.theirs, self.over = pathlib.Path(folder), theirs, False

    def run(self):
        away = self.folder.with_name("away")
        while not self.over:
            # feedline may have removed or replaced the folder.
            with contextlib.suppress(OSError):
                os.rename(self.folder, away)
                with contextlib.suppress(OSError):
                    os.symlink(self.theirs, self.folder)
                    os.unlink(self.folder)
                os.rename(away, self.folder)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.over = True
        self.join()


@case("folders are swapped for links while files are written and removed")
def swapped(attack):
    rounds = 100 if attack.is_long else 8
    for number in range(rounds):
        for command in "generate", "remove":
            shutil.rmtree(attack.scratch, ignore_errors=True)
            attack.scratch.mkdir()
            theirs = prepare(attack, DATA if command == "generate" else CHECKPOINTS)
            if command == "generate":
                folder = attack.scratch / "data/train"
                folder.mkdir(parents=True)
                arguments = ["generate", "w.yaml", "--quiet", "--set", "dataset.num_files_train=500"]
            else:
                save = ["run", "w.yaml", "--ranks", "2", "--quiet"]
                attack.feedline(*save, "--set", "checkpoint.keep_last=2")
                folder = attack.scratch / "last/global_epoch1_step1"
                shutil.copytree(folder, theirs, dirs_exist_ok=True)
                arguments = [*save, "--set", "checkpoint.num_checkpoints_write=1"]
            before = snapshot(theirs)
            with Swap(folder, theirs):
                attack.feedline(*arguments, timeout=60)
            check(snapshot(theirs) == before, f"{command}, round {number}: another user's files were changed")
    return f"{2 * rounds} rounds, and nothing was changed"


@case("a named pipe has the name of the catalog, and of the data set's manifest")
def pipes(attack):
    for name in "catalog", "dataset.json":
        shutil.rmtree(attack.scratch, ignore_errors=True)
        attack.scratch.mkdir()
        prepare(attack, DATA)
        (attack.scratch / "data/.feedline").mkdir(parents=True)
        (attack.scratch / "data/a.npz").write_text("x")
        os.mkfifo(attack.scratch / "data/.feedline" / name)
        for arguments in ["catalog", "data", "--check"], ["catalog", "data"], ["generate", "w.yaml"], ["run", "w.yaml"]:
            try:
                attack.feedline(*arguments, "--quiet", timeout=15)
            except subprocess.TimeoutExpired:
                check(False, f"{' '.join(arguments)} does not end with a pipe at {name}")
    return "every command ends"
