"""The topic `audit` of scripts/bench: drawn jobs with one planted fault each, healthy jobs, overhead, many files.

Overhead is printed twice: as calls x calibrated cost, which the result itself has, and as the ratio of wall times of
interleaved runs with and without the audit.
"""

import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOBS = ROOT / "crates/feedline/tests/audit_jobs"
PYTHON = "/usr/bin/python3"
DRAWS = 10
# Healthy jobs are drawn this many times more often: 220 draws, in addition to those of all jobs.
HEALTHY_FACTOR = 2
REPEATS = 7
FILES = 1_000_000

# A job that opens, reads and closes each file once.
READ_ALL = """
import os, sys
for folder in os.scandir(sys.argv[1]):
    for entry in os.scandir(folder.path):
        fd = os.open(entry.path, os.O_RDONLY)
        os.read(fd, 4096)
        os.close(fd)
"""

# A job with as many page faults as it can have: of its own memory, and with `both` also of a mapped file.
STORM = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
kept = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
zeros = bytes(len(kept) // 4096)
for _ in range(40):
    own = mmap.mmap(-1, len(kept))
    own[::4096] = zeros
    own.close()
    if sys.argv[2] == "both":
        file = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        file[::4096]
        file.close()
"""


def run(bench, folder, words):
    """`words` choose parts: draws, overhead, faults, files. A number is that of the draws of each job."""
    numbers = [int(word) for word in words if word.isdecimal()]
    parts = {
        "draws": lambda: draws(bench, folder, *(numbers or [DRAWS])[-1:]),
        "overhead": lambda: overheads(bench, folder),
        "faults": lambda: fault_storms(bench, folder),
        "files": lambda: many_files(bench, folder),
    }
    chosen = [word for word in words if not word.isdecimal()]
    if unknown := set(chosen) - set(parts):
        sys.exit(f"unknown part {unknown.pop()}; the parts are {', '.join(parts)}")
    bench.build()
    for name in chosen or parts:
        parts[name]()


def overheads(bench, folder):
    for job, most in [("healthy_images", 1.03), ("healthy_ranges", 1.03), ("metadata_bound", 1.15), ("tiny_reads", 1.15)]:
        overhead(bench, folder, job, most)


def draws(bench, folder, draws_of_each):
    """Every job in both variants, and more draws of the healthy jobs."""
    healthy = ",".join(sorted(path.stem for path in JOBS.glob("**/healthy_*.py")))
    for name, count in [("all", draws_of_each), (healthy, HEALTHY_FACTOR * draws_of_each)]:
        out = folder / "draws.jsonl"
        flags = ["--jobs", name, "--draws", str(count), "--seed", "1000", "--healthy", "--out", out]
        subprocess.run([PYTHON, "-B", JOBS / "run.py", "--feedline", bench.FEEDLINE, *flags])
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        planted = [row for row in rows if row["finding"]]
        if planted:
            share = 100 * sum(row["first"] for row in planted) / len(planted)
            bench.figure(f"planted fault named first, {len(planted)} draws", share, "%", at_least=90)
        sound = [row for row in rows if not row["finding"]]
        alarms = sum(bool(row["alarms"]) for row in sound)
        bench.figure(f"false alarms in {len(sound)} healthy draws", alarms, "draws", at_most=0)


def wall(command):
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def overhead(bench, folder, job, most):
    data, results = folder / f"data-{job}", folder / f"results-{job}"
    plain = [PYTHON, "-B", JOBS / f"{job}.py", "--dir", data, "--seed", "7"]
    subprocess.run([*plain, "--prepare"], check=True)
    audited = [bench.FEEDLINE, "audit", "--results", results, "--name", job, "--", *plain]
    times = [(wall(plain), wall(audited)) for _ in range(REPEATS)]
    ratio = statistics.median(t[1] for t in times) / statistics.median(t[0] for t in times)
    bench.figure(f"{job}: wall with audit / without, median of {REPEATS}", ratio, "", at_most=most)
    for path in sorted(results.glob("**/ledger.json"))[-1:]:
        seen = json.loads(path.read_text())["observed"]["overhead"]
        bench.figure(f"{job}: calls x cost", 100 * seen["share"], "%", at_most=100 * (most - 1))
        bench.note("  calls", seen["calls"] + seen["opens"], "")


def fault_storms(bench, folder):
    """Page faults are recorded for a part of the time only if there are too many of them."""
    data = folder / "mapped"
    data.write_bytes(b"x" * (256 << 20))
    for kind in ["own", "both"]:
        results = folder / f"results-storm-{kind}"
        plain = [PYTHON, "-c", STORM, data, kind]
        audited = [bench.FEEDLINE, "audit", "--results", results, "--name", kind, "--", *plain]
        times = [(wall(plain), wall(audited)) for _ in range(REPEATS)]
        ratio = statistics.median(t[1] for t in times) / statistics.median(t[0] for t in times)
        bench.figure(f"page faults ({kind}): wall with audit / without, median of {REPEATS}", ratio, "", at_most=1.1)
        seen = json.loads(sorted(results.glob("**/ledger.json"))[-1].read_text())["observed"]
        wall_ns, files = seen["wall_ns"], seen["epochs"][0]["files"]
        bench.note("  recorded in mapped files", files["faults"], "faults")
        bench.note("  lost", files["faults_lost"], "faults")
        bench.note("  time without minor faults", 100 * files["faults_blind_ns"] / wall_ns, "%")
        bench.note("  CPU time of feedline", 100 * seen["overhead"]["own_cpu_ns"] / wall_ns, "% of the wall time")


def many_files(bench, folder):
    data, results = folder / "many", folder / "results-many"
    for number in range(FILES):
        if number % 1000 == 0:
            parent = data / f"{number // 1000:04}"
            parent.mkdir(parents=True)
        (parent / f"{number:07}").write_bytes(b"x" * 100)
    job = [PYTHON, "-c", READ_ALL, data]
    subprocess.run([bench.FEEDLINE, "audit", "--results", results, "--name", "many", "--", *job], check=True)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    bench.figure("largest process, the audit or a job", memory / 1024, "MiB", at_most=256)
    seen = json.loads(next(results.glob("**/ledger.json")).read_text())["observed"]
    reads = sum(process["data"]["reads"]["count"] for process in seen["processes"])
    bench.near(f"reads of {FILES:,} files", reads, "", FILES, 0)
    bench.near("files, by the sample", seen["files"]["estimated"], "", FILES, 2)
