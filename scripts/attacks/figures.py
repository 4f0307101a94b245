"""Misleading figures: windows that prefetch filled, folders of killed runs."""

import json

from . import FEEDLINE, INCOMPLETE, REFUSED, check, case

SMALL = """
framework: pytorch
dataset: {format: npz, num_files_train: 24, record_length_bytes: 4096}
reader: {data_loader: pytorch, batch_size: 2}
train: {epochs: 2, computation_time: 0.001}
"""


@case("a run killed between its checksums and the renaming of its folder")
def killed_before_publication(attack):
    (attack.scratch / "w.yaml").write_text(SMALL)
    run = [FEEDLINE, "run", "w.yaml", "--store", "null", "--quiet", "--no-calibration", "--results-dir", "r"]
    inject = "inject=rename,renameat,renameat2:signal=KILL:error=EIO"
    # strace returns the exit code of the program, whose parent process reports that its child was killed.
    shell = 'strace -f -o trace -e trace=rename,renameat,renameat2 -e "$0" "$@"; code=$?; test $code = 4 -o $code = 137'
    attack.command("bash", "-c", shell, inject, *run, cwd=attack.scratch)
    (partial,) = (attack.scratch / "r").glob("*/.partial-*")
    check((partial / "SHA256SUMS").exists(), "the run was killed too early for this case")
    for command in (["validate", partial], ["compare", partial, partial]):
        done = attack.feedline(*command)
        check(done.returncode == REFUSED, f"{command[0]}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        check("not a result" in done.stderr, f"{command[0]} gives a different reason: {done.stderr}")
    return "refused by validate and compare"


@case("13 steps on a disk, with 8 batches per rank ready in advance")
def short_window(attack):
    arguments = ["retinanet_b200", "--set", "dataset.num_files_train=936", "--set", "train.epochs=1", "--ranks", 3]
    arguments += ["--data-dir", "data"]
    done = attack.feedline("generate", *arguments[:3], "--data-dir", "data", "--quiet")
    check(done.returncode == 0, done.stderr)
    done = attack.feedline("run", *arguments, "--json", "--quiet")
    check(done.returncode != INCOMPLETE, done.stderr)
    own = json.loads(done.stdout)["feedline"]
    (epoch,) = own["epochs"]
    rate, clock = epoch["mib_per_second"], epoch.get("clock_mib_per_second")
    said = f"{rate:.0f} MiB/s in the window, by the clock {clock and round(clock)}: {own['verdict']['status']}"
    check(clock is not None, f"no rate by the clock: {said}")
    rules = {rule["rule"]: rule["outcome"] for rule in own["verdict"]["rules"]}
    check(clock >= 0.9 * rate or rules["window-long-enough"] != "pass", said)
    check(abs(clock / rate - 1) < 0.04 or own["clock_difference"], f"the difference is not explained: {said}")
    return said
