"""The topic `replay` of scripts/bench: jobs are audited and replayed, and faults are left out of replays.

    scripts/bench replay                          everything
    scripts/bench replay whole tfrecord           only these ways of reading
    scripts/bench replay whole cold 2             only these states of the page cache and numbers of workers
    scripts/bench replay tiny_reads               only this fault

A replay runs twice: alone, for its throughput, and with a trace, so that the same code counts reads and reads in flight
of the job and of its replay. Jobs and replays take turns, so that both see the same machine.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEEDLINE = ROOT / "target/release/feedline"
JOB = ROOT / "scripts/replay_job.py"
FAULTS = ROOT / "crates/feedline/tests/audit_jobs"
PYTHON = "/usr/bin/python3"
TENSORFLOW_PYTHON = pathlib.Path(os.environ.get("FEEDLINE_TEST_PYTHON", ROOT / ".venv/bin/python"))
KINDS = ["whole", "ranges", "hdf5", "tfrecord", "tensorflow"]
STATES = ["warm", "cold"]
WORKERS = ["1", "2", "8"]
# Jobs with a planted fault, the finding that is left out, and a seed with which the job without the fault computes as long,
# loads with the same workers, and differs in nothing else.
FIXED = {
    "tiny_reads": ("tiny-reads", 3),
    "files_opened_again": ("files-opened-again", 6),
    "same_bytes_read_again": ("same-bytes-read-again", 24),
    "metadata_bound": ("metadata-bound", 13),
    "serialised_reads": ("serialised-reads", 1),
    "workers_restarted": ("workers-restarted", 1),
    "duplicate_reads": ("duplicate-reads", 1),
}
TURNS = 2
QUANTILES = ["read_bytes_p50", "read_bytes_p90", "read_bytes_p99", "in_flight_p50", "in_flight_p90", "in_flight_p99"]


def run(bench, folder, chosen):
    unknown = [word for word in chosen if word not in [*KINDS, *STATES, *WORKERS, *FIXED]]
    if unknown:
        sys.exit(f"replay: {', '.join(unknown)}: use {', '.join([*KINDS, *STATES, *WORKERS, *FIXED])}")

    def pick(known):
        return [name for name in known if name in chosen] or list(known)

    bench.build()
    only_faults = chosen and not any(word in KINDS + STATES + WORKERS for word in chosen)
    only_kinds = chosen and not any(word in FIXED for word in chosen)
    for kind in [] if only_faults else pick(KINDS):
        if kind == "tensorflow" and not TENSORFLOW_PYTHON.exists():
            print("  tensorflow: not installed; scripts/test installs it, or set FEEDLINE_TEST_PYTHON")
            continue
        for state in pick(STATES):
            for workers in pick(WORKERS):
                replay(bench, folder / f"{kind}-{state}-{workers}", kind, state, workers)
    for name in [] if only_kinds else pick(FIXED):
        without_fault(bench, folder / name, name, *FIXED[name])


def result_below(folder):
    """The only result below a folder."""
    (ledger,) = folder.glob("*/*/ledger.json")
    return ledger.parent


def audit(folder, name, command):
    """Audits a command, and returns the result folder."""
    done = subprocess.run(
        [FEEDLINE, "audit", "--results", folder / name, "--name", "job", "--", *command], cwd=folder, capture_output=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr.decode()[-3000:]}")
    return result_below(folder / name)


def infer(folder, result, name, *flags):
    text = subprocess.run([FEEDLINE, "infer", result, *flags], check=True, capture_output=True, text=True).stdout
    (folder / name).write_text(text)
    return folder / name


def replay_command(folder, name, workload):
    return [FEEDLINE, "run", workload, "--quiet", "--no-calibration", "--results-dir", folder / name]


def replayed(bench, folder, name, workload):
    """Runs a workload, and returns the result folder. A cache state other than that of a benchmark is no failure."""
    done = subprocess.run(replay_command(folder, name, workload), cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, bench.INVALID):
        sys.exit(f"{workload}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return result_below(folder / name)


def figures(one, other):
    compared = subprocess.run([FEEDLINE, "compare", one, other, "--json"], check=True, capture_output=True, text=True)
    return json.loads(compared.stdout)["figures"]


def middle(pairs, side, name="samples_per_second"):
    """The median of a figure over several comparisons."""
    return statistics.median(pair[name][side] for pair in pairs)


def replay(bench, folder, kind, state, workers):
    folder.mkdir()
    python = TENSORFLOW_PYTHON if kind == "tensorflow" else PYTHON
    plain = [python, "-B", JOB, kind, "--dir", folder / "data", "--workers", workers]
    subprocess.run([*plain, "--prepare"], check=True)
    job = [*plain, *(["--cold"] if state == "cold" else [])]
    # The first job also fills the page cache and the disk with what was written.
    os.sync()
    audit(folder, "first", job)
    audits, replays, workload = [], [], None
    for turn in range(TURNS):
        audits.append(audit(folder, f"job-{turn}", job))
        workload = workload or infer(folder, audits[0], "job.yaml")
        replays.append(replayed(bench, folder, f"replay-{turn}", workload))
    seen = reads_of_replay(bench, folder, workload)
    pairs = [figures(one, other) for one, other in zip(audits, replays)]
    name = f"{kind}, {state}, {workers} worker{'' if workers == '1' else 's'}"
    bench.near(f"{name}: samples/s", middle(pairs, "b"), "/s", middle(pairs, "a"), 5)
    job_rates = [pair["samples_per_second"]["a"] for pair in pairs]
    bench.note("  job, slowest / fastest", min(job_rates) / max(job_rates), "")
    quantiles(bench, figures(audits[0], seen))
    shutil.rmtree(folder / "data")
    shutil.rmtree(folder / "replay-data", ignore_errors=True)


def reads_of_replay(bench, folder, workload):
    """The result of an audit of a replay, by its trace: feedline makes system calls that no library sees."""
    trace = folder / "replay.pfw.gz"
    done = subprocess.run([*replay_command(folder, "traced", workload), "--trace", trace], cwd=folder, capture_output=True)
    if done.returncode not in (0, bench.INVALID):
        sys.exit(f"{workload}: exit code {done.returncode}\n{done.stderr.decode()[-3000:]}")
    subprocess.run([FEEDLINE, "audit", "--from", trace, "--results", folder / "seen"], check=True, capture_output=True)
    return result_below(folder / "seen")


def quantiles(bench, compared):
    for name in QUANTILES:
        one, other = compared[name]["a"], compared[name]["b"]
        bench.near(f"  {name}", other if other is not None else float("nan"), "", one, 10)


def without_fault(bench, folder, name, finding, seed):
    """The predicted time of an epoch against that of the job with the fault really removed."""
    folder.mkdir()

    def job(variant, *flags):
        return [PYTHON, "-B", FAULTS / f"{name}.py", "--dir", folder / variant, "--seed", str(seed), "--variant", variant, *flags]

    for variant in ("fault", "healthy"):
        subprocess.run(job(variant, "--prepare"), check=True)
    audit(folder, "first", job("healthy"))
    jobs, predictions = [], []
    found = audit(folder, "fault-result", job("fault"))
    findings = json.loads((found / "findings.json").read_text())["findings"]
    if not any(one["name"] == finding and one["severity"] != "note" for one in findings):
        bench.judge(f"--fixed {finding}", float("nan"), "", "a finding", False)
        return
    workload = infer(folder, found, "fixed.yaml", "--fixed", finding)
    for turn in range(TURNS):
        subprocess.run(job("healthy", "--prepare"), check=True)
        jobs.append(audit(folder, f"healthy-{turn}", job("healthy")))
        predictions.append(replayed(bench, folder, f"fixed-{turn}", workload))
    pairs = [figures(one, other) for one, other in zip(jobs, predictions)]
    faulty = figures(found, predictions[0])["epoch_seconds"]["a"]
    predicted, real = (middle(pairs, side, "epoch_seconds") for side in ("b", "a"))
    bench.near(f"--fixed {finding}: an epoch", predicted, "s", real, 10)
    bench.note("  with the fault", faulty, "s")
