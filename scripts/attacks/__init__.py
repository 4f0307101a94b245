"""Shared by the attacks: the registry of cases, the binary, scratch folders, temporary mounts.

A topic is a module in this folder. Each of its cases is a function with `@case("what is tried")`, which takes an
`Attack` and returns a short description of the outcome. It raises `Failed` (or any other exception) if feedline reported a
wrong result, did not end or changed another program's file, and `NotTried` if this machine cannot run it.
"""

import contextlib
import importlib
import json
import os
import pathlib
import pkgutil
import shutil
import subprocess
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FEEDLINE = pathlib.Path(os.environ.get("FEEDLINE", ROOT / "target/release/feedline")).resolve()
# feedline's exit codes (`feedline --help`).
OK, USAGE, REFUSED, INCOMPLETE, INVALID = 0, 2, 3, 4, 5
NOBODY = 65534

# The start of a workload that only saves and restores checkpoints of a few MB.
TINY_MODEL = """
framework: pytorch
model:
  name: tiny
  type: transformer
  num_layers: 2
  parallelism: {zero_stage: 3}
  transformer: {vocab_size: 1000, hidden_size: 128, ffn_hidden_size: 256, num_attention_heads: 8, num_kv_heads: 8}
workflow: {train: false, checkpoint: true}
"""


class Failed(Exception):
    """The attack succeeded."""


class NotTried(Exception):
    """This machine cannot run the case."""


def case(what, long_only=False):
    """Marks a function as a case of its topic."""

    def mark(function):
        function.what, function.long_only = what, long_only
        return function

    return mark


def check(held, message):
    if not held:
        raise Failed(message)


class Running:
    """A command that a case kills, with its output in a pipe."""

    def __init__(self, folder, *arguments):
        command = [FEEDLINE, *map(str, arguments)]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def kill(self):
        """Kills it and says whether it was still running. Its worker dies a moment later, which closes the pipe."""
        self.process.kill()
        self.process.communicate()
        return self.process.returncode < 0


class Attack:
    """The environment of a case: an empty scratch folder on the disk, and clean-up when the case ends."""

    def __init__(self, scratch, is_long, stack):
        self.scratch, self.is_long, self._stack = scratch, is_long, stack

    def defer(self, function, *arguments):
        """Calls this when the case ends, however it ends; last in, first out."""
        self._stack.callback(function, *arguments)

    def feedline(self, *arguments, timeout=120, **options):
        """Runs feedline in the scratch folder and returns the finished process, with its output as text."""
        options = {"cwd": self.scratch, "capture_output": True, "text": True, **options}
        return subprocess.run([FEEDLINE, *map(str, arguments)], timeout=timeout, **options)

    def command(self, *arguments, **options):
        """Runs a program that the case needs; if it is missing or fails, the case is not tried."""
        try:
            return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True, **options)
        except FileNotFoundError:
            raise NotTried(f"{arguments[0]} is not installed")
        except subprocess.CalledProcessError as error:
            raise NotTried(f"{' '.join(map(str, arguments))}: {error.stderr.strip()}")

    def mount(self, *arguments):
        """Mounts something on a new folder, which is unmounted when the case ends."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.scratch, prefix="mount-"))
        self.command("mount", *arguments, folder)
        self.defer(lambda: subprocess.run(["umount", "--lazy", folder], check=False))
        return folder

    def loop_device(self, backing, size):
        """A loop device on a new sparse file `backing`."""
        with open(backing, "xb") as file:
            file.truncate(size)
        device = self.command("losetup", "--find", "--show", backing).stdout.strip()
        self.defer(lambda: subprocess.run(["losetup", "--detach", device], check=False))
        return device

    def verdict(self, *arguments, **options):
        """Runs `feedline run ... --json` and returns its verdict and the finished process.

        A run that is refused because another process reads the files between eviction and count is repeated: the
        refusal is correct, but there is no verdict.
        """
        for _ in range(100):
            done = self.feedline("run", *arguments, "--json", "--quiet", **options)
            if done.returncode != REFUSED or "pages stay in memory" not in done.stderr:
                break
        check(done.stdout.startswith("{"), f"no result (exit code {done.returncode}): {done.stderr.strip()}")
        return json.loads(done.stdout)["feedline"]["verdict"], done


def topics():
    """The modules of this folder, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def cases(module):
    return [value for value in vars(module).values() if hasattr(value, "long_only")]


def show(chosen):
    for name, module in chosen.items():
        print(f"{name}: {module.__doc__.splitlines()[0]}")
        for function in cases(module):
            print(f"  {function.what}{' (long form only)' if function.long_only else ''}")


def run(chosen, is_long):
    """Runs the cases one after the other; returns the exit code."""
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    held = failed = not_tried = 0
    for name, module in chosen.items():
        print(f"\n{name}: {module.__doc__.splitlines()[0]}", flush=True)
        for function in cases(module):
            if function.long_only and not is_long:
                continue
            begin = time.monotonic()
            outcome, words = attempt(function, is_long)
            print(f"  {outcome:<9} {function.what}: {words} ({time.monotonic() - begin:.0f} s)", flush=True)
            held, failed, not_tried = (
                held + (outcome == "held"), failed + (outcome == "FAILED"), not_tried + (outcome == "not tried")
            )
    print(f"\n{held} held, {failed} failed, {not_tried} not tried", flush=True)
    return 1 if failed else 0


def attempt(function, is_long):
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="feedline-attack-", dir="/var/tmp"))
    try:
        with contextlib.ExitStack() as stack:
            return "held", function(Attack(scratch, is_long, stack)) or "as documented"
    except NotTried as error:
        return "not tried", str(error)
    except Failed as error:
        return "FAILED", str(error)
    except Exception:  # Every error in a case is reported, and the others still run.
        return "FAILED", traceback.format_exc()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
