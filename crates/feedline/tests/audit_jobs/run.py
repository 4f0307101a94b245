"""Draws jobs of this folder, audits each, and compares the first fault that was named with the one that was planted.

    python3 run.py --feedline BIN --jobs all|NAME,.. --draws N --seed S --out FILE [--healthy] [--variants fault,healthy]
        [--busy]

Prints a table: for each job the draws, how often the planted fault was named first and named at all, and false alarms
in healthy draws. `--out` gets a line of JSON for each draw. Exit code 1 if a planted fault was named first in less than
90 % of the draws of its job, or if a healthy draw has a false alarm.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
NO_JOBS = {"draw", "run"}
PYTHON = os.environ.get("FEEDLINE_AUDIT_PYTHON", "/usr/bin/python3")
# With TensorFlow and pyarrow, for the jobs that use these.
OTHER_PYTHON = os.environ.get("FEEDLINE_TEST_PYTHON")
OTHER_JOBS = ("tf_", "arrow_")
NOTES = ["not-input-bound", "served-from-page-cache", "wrong-storage"]
# What other programs on the machine can cause: no false alarms with --busy.
OF_TIME = [
    "checkpoint-blocks", "convoy", "decode-bound", "import-storm", "metadata-bound", "no-overlap", "serialised-reads",
    "storage-bound", "straggler-rank", "too-few-in-flight", "workers-restarted",
]
NAMED_FIRST = 0.9
TIME_LIMIT = 120


def all_jobs():
    found = [*FOLDER.glob("*.py"), *FOLDER.glob("*/*.py")]
    found = [path for path in found if path.stem not in NO_JOBS]
    if not OTHER_PYTHON:
        found = [path for path in found if not path.stem.startswith(OTHER_JOBS)]
    return {path.stem: path for path in sorted(found)}


def command(path, folder, seed, variant, *more):
    python = OTHER_PYTHON if path.stem.startswith(OTHER_JOBS) else PYTHON
    return [python, "-B", str(path), "--dir", str(folder), "--seed", str(seed), "--variant", variant, *more]


def called(arguments, env):
    """Runs a command. Its output goes to files: a process that it leaves behind would hold a pipe open."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        done = subprocess.run(arguments, stdout=out, stderr=err, env=env, timeout=TIME_LIMIT)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, done.returncode, out.read(), err.read())


def audit(feedline, path, seed, variant):
    """One draw: its truth, what was found, and whether the job ended as it should."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="feedline-audit-"))
    # Jobs in folders import from the folder above.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))}
    try:
        truth = called(command(path, folder / "data", seed, variant, "--truth"), env)
        if truth.returncode:
            raise RuntimeError(f"{path.name} --truth: {truth.stderr}")
        prepared = called(command(path, folder / "data", seed, variant, "--prepare"), env)
        if prepared.returncode:
            raise RuntimeError(f"{path.name} --prepare: {prepared.stderr}")
        options = ["--results", str(folder / "results"), "--name", "draw"]
        job = command(path, folder / "data", seed, variant)
        row = {"job": path.stem, "seed": seed, "variant": variant, **json.loads(truth.stdout)}
        try:
            done = called([*row["within"], feedline, "audit", *options, "--", *job], env)
        except subprocess.TimeoutExpired:
            return {**row, "error": f"the audit did not end within {TIME_LIMIT} s"}
        row["code"] = done.returncode
        found = sorted((folder / "results").glob("**/findings.json"))
        if len(found) != 1:
            row["error"] = f"{len(found)} files findings.json; {done.stderr[-2000:]}"
            return row
        findings = json.loads(found[0].read_text())["findings"]
        row["faults"] = [finding["name"] for finding in findings if finding["severity"] != "note"]
        row["notes"] = [finding["name"] for finding in findings if finding["severity"] == "note"]
        row["evidence"] = {finding["name"]: finding["evidence"] for finding in findings}
        return row
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judged(row, busy):
    """Adds whether the planted fault is first, is anywhere, and which names are false alarms."""
    if "error" in row:
        return {**row, "first": False, "anywhere": False, "alarms": ["no result"]}
    planted, named = row["finding"], row["faults"] + row["notes"]
    # These are never more than notes: they are first when no fault is named. Other notes are faults that cost little.
    is_note = planted in NOTES and planted in row["notes"]
    true = [*row["also_ok"], *(OF_TIME if busy else [])]
    others = [name for name in row["faults"] if name != planted and name not in true]
    listed = [name for name in named if name not in NOTES]
    first = not others if is_note else listed[:1] == [planted]
    alarms = [] if planted else others
    return {**row, "first": bool(planted) and first, "anywhere": planted in named, "alarms": alarms}


def table(rows):
    print(f"{'job':<28} {'draws':>6} {'first':>6} {'anywhere':>9} {'healthy':>8} {'false alarms':>13}")
    passed = True
    for job in sorted({row["job"] for row in rows}):
        planted = [row for row in rows if row["job"] == job and row["finding"]]
        healthy = [row for row in rows if row["job"] == job and not row["finding"]]
        first = sum(row["first"] for row in planted)
        anywhere = sum(row["anywhere"] for row in planted)
        alarmed = sum(bool(row["alarms"]) for row in healthy)
        bad = first < NAMED_FIRST * len(planted) or alarmed > 0
        passed = passed and not bad
        counts = f"{len(planted):>6} {first:>6} {anywhere:>9} {len(healthy):>8} {alarmed:>13}"
        print(f"{job:<28} {counts}{'   FAILED' if bad else ''}")
    for row in rows:
        if row["alarms"] or (row["finding"] and not row["first"]):
            named = row.get("error") or ", ".join(row["faults"]) or "no fault"
            print(f"{row['job']} --seed {row['seed']} --variant {row['variant']}: {row['finding']} planted, found {named}")
    return passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--feedline", required=True)
    parser.add_argument("--jobs", default="all")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the first draw; the others follow")
    parser.add_argument("--out")
    parser.add_argument("--healthy", action="store_true", help="healthy variants, too")
    parser.add_argument("--variants", help="instead: a list of fault, healthy")
    parser.add_argument("--busy", action="store_true", help="the machine is busy: faults of time are no false alarms")
    args = parser.parse_args()
    known = all_jobs()
    names = list(known) if args.jobs == "all" else args.jobs.split(",")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such job: {', '.join(unknown)}")
    variants = args.variants.split(",") if args.variants else ["fault", "healthy"] if args.healthy else ["fault"]
    rows = []
    out = open(args.out, "w") if args.out else None
    for name in names:
        for seed in range(args.seed, args.seed + args.draws):
            # An ordinary healthy job has no fault to plant.
            for variant in ["healthy"] if name.startswith("healthy_") else variants:
                rows.append(judged(audit(args.feedline, known[name], seed, variant), args.busy))
                if out:
                    print(json.dumps(rows[-1]), file=out, flush=True)
    sys.exit(0 if table(rows) else 1)


if __name__ == "__main__":
    main()
