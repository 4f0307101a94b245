"""SIGKILL at any moment: what is complete stays complete, and nothing else looks complete."""

import json
import random
import shutil
import time

from . import INVALID, OK, REFUSED, USAGE, Running, case, check, TINY_MODEL

WORKLOAD = """
model: {name: attack}
framework: pytorch
workflow: {train: True}
dataset: {data_folder: data, format: npz, num_files_train: 200, num_samples_per_file: 1, record_length_bytes: 20000}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 2, file_shuffle: seed}
train: {epochs: 2, computation_time: 0.001}
"""
CHECKPOINTS = TINY_MODEL + """
checkpoint: {checkpoint_folder: last, num_checkpoints_write: 3, num_checkpoints_read: 1, time_between_checkpoints: 0, keep_last: 2, fsync: true}
"""


class Killer:
    """Kills a command at times spread over its duration, which is measured first."""

    def __init__(self, attack):
        self.attack, self.chance, self.span, self.killed = attack, random.Random(14), 0.2, 0
        self.times = 200 if attack.is_long else 25

    def kill(self, *arguments):
        running = Running(self.attack.scratch, *arguments)
        time.sleep(self.chance.random() * self.span)
        was_killed = running.kill()
        self.killed += was_killed
        self.span *= 1.05 if was_killed else 0.8

    def held(self, words):
        check(self.killed >= self.times / 4, f"only {self.killed} of {self.times} kills came in time")
        return f"{self.killed} kills: {words}"


def complete(attack, *arguments):
    done = attack.feedline(*arguments)
    check(done.returncode in (OK, INVALID), f"exit code {done.returncode}: {done.stderr}")
    return done


@case("generate")
def generate(attack):
    (attack.scratch / "w.yaml").write_text(WORKLOAD)
    killer, refused = Killer(attack), 0
    for number in range(killer.times):
        killer.kill("generate", "./w.yaml", "--quiet")
        done = attack.feedline("run", "./w.yaml", "--quiet", "--json", "--verify", "full", "--no-calibration")
        check(done.returncode in (OK, INVALID, REFUSED), f"exit code {done.returncode}: {done.stderr}")
        refused += done.returncode == REFUSED
        if number % 3 == 2:
            complete(attack, "generate", "./w.yaml", "--quiet", "--verify")
            shutil.rmtree(attack.scratch / "data")
    return killer.held(f"{refused} runs refused, the others read every byte as it was written")


@case("run, and the results it leaves")
def run(attack):
    (attack.scratch / "w.yaml").write_text(WORKLOAD)
    complete(attack, "generate", "./w.yaml", "--quiet")
    killer = Killer(attack)
    for _ in range(killer.times):
        killer.kill("run", "./w.yaml", "--quiet", "--no-calibration")
    folder = attack.scratch / "feedline-results/w"
    results = sorted(folder.iterdir()) if folder.exists() else []
    named = [result for result in results if not result.name.startswith(".")]
    for result in named:
        done = attack.feedline("validate", result)
        check(done.returncode in (OK, INVALID), f"{result.name}: {done.stderr}")
    for result in set(results) - set(named):
        done = attack.feedline("validate", result)
        check(done.returncode in (USAGE, REFUSED), f"{result.name} is unfinished but accepted: {done.stdout}")
    complete(attack, "run", "./w.yaml", "--quiet", "--no-calibration")
    return killer.held(f"{len(named)} results, each of them whole")


@case("catalog")
def catalog(attack):
    (attack.scratch / "w.yaml").write_text(WORKLOAD)
    complete(attack, "generate", "./w.yaml", "--quiet")
    (attack.scratch / "files").mkdir()
    shutil.move(attack.scratch / "data/train", attack.scratch / "files/train")
    killer = Killer(attack)
    killer.span = 0.02
    for _ in range(killer.times):
        killer.kill("catalog", "files", "--quiet")
    done = complete(attack, "catalog", "files")
    check("200 files" in done.stdout, done.stdout)
    return f"{killer.killed} kills: the next listing is complete"


@case("checkpoints, in all three save modes")
def checkpoints(attack):
    (attack.scratch / "w.yaml").write_text(CHECKPOINTS)
    killed = 0
    for mode in ("direct", "async", "burst-buffer"):
        killer = Killer(attack)
        flags = ["./w.yaml", "--ranks", 4, "--save", mode, "--quiet"]
        if mode == "burst-buffer":
            flags += ["--set", "checkpoint.burst_folder=fast"]
        complete(attack, "run", *flags)
        for _ in range(killer.times):
            killer.kill("run", *flags)
            done = complete(attack, "run", *flags, "--json", "--set", "checkpoint.num_checkpoints_write=0")
            restore = json.loads(done.stdout)["feedline"]["checkpoint"]["restores"][0]
            check(restore["failure"] is None, f"{mode}: {restore['failure']}")
        killed += killer.killed
    check(killed >= 3 * killer.times / 4, f"only {killed} kills came in time")
    return f"{killed} kills: the newest complete checkpoint was restored, every byte compared"
