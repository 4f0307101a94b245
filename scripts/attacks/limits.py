"""Limits on memory and CPU: feedline plans within the limits, refuses what does not fit, and is never OOM-killed.

Control groups of version 1 are created here; version 2 differs only in the files that are parsed, which unit tests cover.
"""

import itertools
import json
import os
import pathlib
import resource
import time

from . import INVALID, OK, REFUSED, NotTried, case, check

GROUPS = pathlib.Path("/sys/fs/cgroup")
MIB = 1 << 20
NUMBERS = itertools.count()

# 400 files of 1 MiB: more than a group of 128 MiB can keep in the page cache.
WORKLOAD = """
framework: pytorch
dataset: {format: npy, data_folder: data, num_files_train: 400, record_length_bytes: 1048576}
reader: {data_loader: pytorch, batch_size: 4, read_threads: 4, file_shuffle: seed}
train: {epochs: 2, computation_time: 0}
"""


def workload(attack):
    (attack.scratch / "w.yaml").write_text(WORKLOAD)


def data_set(attack):
    workload(attack)
    attack.feedline("generate", "w.yaml", "--quiet")


def group(attack, controller, below=None, **settings):
    """A new control group with these settings, which is removed when the case ends."""
    parent = below or GROUPS / controller
    if not (parent / "cgroup.procs").exists():
        raise NotTried(f"there is no control group {parent} (version 1)")
    folder = parent / f"feedline-attack-{os.getpid()}-{next(NUMBERS)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NotTried(f"cannot make a control group: {error}")
    attack.defer(remove, folder)
    for name, value in settings.items():
        (folder / f"{controller}.{name}").write_text(str(value))
    return folder


def small_group(attack):
    return group(attack, "memory", limit_in_bytes=128 * MIB)


def remove(folder):
    # The kernel may hold a group for a moment after its last process has ended.
    for _ in range(100):
        try:
            return folder.rmdir()
        except OSError:
            time.sleep(0.05)
    folder.rmdir()


def within(*folders):
    """Options of a process that runs in these groups."""

    def enter():
        for folder in folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    return {"preexec_fn": enter}


def refused(done, *words):
    check(done.returncode == REFUSED, f"exit code {done.returncode}, not {REFUSED}: {done.stderr.strip()[-500:]}")
    for word in words:
        check(word in done.stderr, f"'{word}' is missing in: {done.stderr.strip()}")


def ended(done):
    """A finished run, whatever its verdict."""
    check(done.returncode in (OK, INVALID), f"exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def limits(summary):
    """The limits that a result names."""
    return summary["feedline"].get("limits", [])


RUN = ["run", "w.yaml", "--quiet", "--json", "--no-calibration"]
# About 300 MiB of buffers and batches.
TOO_LARGE = ["--ranks", 16, "--set", "reader.retain=batch"]


@case("a run that needs more memory than its group of 128 MiB has")
def too_large_for_the_group(attack):
    data_set(attack)
    limited = small_group(attack)
    refused(attack.feedline(*RUN, *TOO_LARGE, **within(limited)), "128.0 MiB", str(limited), "--ranks")
    return "refused with exit code 3, with the group and its limit"


@case("the same with the limit at the group above")
def too_large_for_the_group_above(attack):
    data_set(attack)
    above = small_group(attack)
    below = group(attack, "memory", below=above)
    refused(attack.feedline(*RUN, *TOO_LARGE, **within(below)), "128.0 MiB", str(above))
    plan = json.loads(attack.feedline("plan", "w.yaml", "--json", **within(below)).stdout)
    check(plan["host_memory_bytes"] == 128 * MIB, f"the plan uses {plan['host_memory_bytes']} bytes")
    check(str(above) in plan["host_memory_limit"], f"the plan names {plan['host_memory_limit']}")
    return "refused; the plan uses the smallest limit and names its group"


@case("data sets that are larger than the group, generated and read inside it")
def larger_data(attack):
    workload(attack)
    limited = small_group(attack)
    done = attack.feedline("generate", "w.yaml", "--quiet", **within(limited))
    check(done.returncode == OK, f"generate: exit code {done.returncode}: {done.stderr.strip()}")
    for store in ["posix", "direct", "mmap", "uring"]:
        summary = ended(attack.feedline(*RUN, "--store", store, **within(limited)))
        seen = limits(summary)
        check(any(str(limited) in limit for limit in seen), f"{store}: the result names {seen}")
        check(abs(summary["host_memory_GB"][0] - 0.125) < 1e-9, f"{store}: {summary['host_memory_GB']} GiB")
    return "400 MiB written, and read twice by each of four backends, in 128 MiB"


@case("the largest run that is not refused")
def just_fits(attack):
    data_set(attack)
    limited = small_group(attack)
    for ranks in range(12, 0, -1):
        size = ["--ranks", ranks, "--set", "reader.retain=batch"]
        done = attack.feedline(*RUN, *size, **within(limited))
        if done.returncode != REFUSED:
            planned = ended(done)["feedline"]["memory"]["planned_bytes"]
            return f"{ranks} ranks that take {planned / MIB:.0f} MiB finished"
    raise AssertionError("even one rank was refused")


@case("a warm page cache that does not fit into the group")
def warm(attack):
    data_set(attack)
    limited = small_group(attack)
    refused(attack.feedline(*RUN, "--cache", "warm", **within(limited)), "cannot be made warm", str(limited))
    return "refused with exit code 3"


@case("checkpoints that need more memory than the group has")
def checkpoints(attack):
    limited = small_group(attack)
    settings = ["--set", "checkpoint.mode_of_save=async", "--scale", "1/1000", "--ranks", 8]
    refused(attack.feedline("run", "llama3_8b", "--quiet", *settings, **within(limited)), str(limited))
    return "refused with exit code 3"


@case("a quota of half a core, and one of one and a half")
def quota(attack):
    data_set(attack)
    for cores in ["0.50", "1.50"]:
        limited = group(attack, "cpu", cfs_period_us=100_000, cfs_quota_us=round(float(cores) * 100_000))
        summary = ended(attack.feedline(*RUN, "--store", "uring", **within(limited)))
        check(summary["host_cpu_count"] == [1], f"{summary['host_cpu_count']} cores with a quota of {cores}")
        seen = limits(summary)
        check(any(f"CPU time {cores} cores" in limit for limit in seen), f"the result names {seen}")
        ledger = json.loads(next(attack.scratch.glob("feedline-results/w/*/ledger.json")).read_text())
        node = ledger["nodes"][0]["seen"]
        check(node["cpu_ns"] <= node["core_ns"] * 1.5, "more CPU time than the quota allows")
        for result in attack.scratch.glob("feedline-results/w/*"):
            attack.command("rm", "-r", result)
    return "both quotas are in the result, and are what CPU time is compared with"


@case("a cpuset of one core")
def cpuset(attack):
    workload(attack)
    online = os.cpu_count()
    if online < 2:
        raise NotTried("this machine has one core")
    limited = group(attack, "cpuset", cpus=0, mems=(GROUPS / "cpuset/cpuset.mems").read_text().strip())
    plan = json.loads(attack.feedline("plan", "w.yaml", "--json", "--store", "uring", **within(limited)).stdout)
    check(plan["loader"]["threads"] == 1, f"{plan['loader']['threads']} threads for one core")
    attack.feedline("generate", "w.yaml", "--quiet")
    seen = limits(ended(attack.feedline(*RUN, **within(limited))))
    check(any(f"1 of {online} cores" in limit for limit in seen), f"the result names {seen}")
    return "one thread is planned, and the result names the limit"


@case("a run that needs more than ulimit -v or ulimit -d allows")
def address_space(attack):
    data_set(attack)
    most = 256 * MIB
    for limit, word in [(resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")]:
        limited = {"preexec_fn": lambda: resource.setrlimit(limit, (most, most))}
        refused(attack.feedline(*RUN, *TOO_LARGE, **limited), "256.0 MiB", word)
    return "refused with exit code 3"
