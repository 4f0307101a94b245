"""What all modules of scripts/package share: places, facts about the release, commands, and the error."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "target/packages"
TARGET = "x86_64-unknown-linux-gnu"
# The C library of CentOS 7, and the oldest one that Rust supports.
GLIBC = (2, 17)
MAINTAINER = "feedline maintainers <maintainers@feedline.invalid>"
SUMMARY = "Benchmark for the storage that feeds deep-learning accelerators"
# mlpstorage requires the distribution dlio-benchmark without a version. This is the version of DLIO whose command line
# and results feedline reproduces; the local label says whose program it is.
DLIO_VERSION = "3.0.2"
SIZE_LIMIT = 15 * 1000 * 1000


class Failed(Exception):
    """A package could not be made, or a check failed. The text says why."""


def Heading(text):
    print(f"\n== {text}", flush=True)


@dataclasses.dataclass(frozen=True)
class Release:
    """What is released: the version, and the commit of the sources with its date in seconds."""

    version: str
    commit: str
    date: int

    @property
    def dlio_version(self):
        return f"{DLIO_VERSION}+feedline.{self.version}"

    def environment(self):
        """For programs that would otherwise write the current time."""
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.date), "FEEDLINE_COMMIT": self.commit}


def release():
    """From Cargo.toml and git; in a source archive from FEEDLINE_COMMIT and SOURCE_DATE_EPOCH."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    commit, date = os.environ.get("FEEDLINE_COMMIT"), os.environ.get("SOURCE_DATE_EPOCH")
    if (ROOT / ".git").exists():
        commit = commit or output("git", "rev-parse", "--short=12", "HEAD") + (
            "-dirty" if output("git", "status", "--porcelain") else ""
        )
        date = date or output("git", "log", "-1", "--format=%ct")
    if not commit or not date:
        raise Failed(
            "no git repository: set FEEDLINE_COMMIT and SOURCE_DATE_EPOCH to the commit and its date in seconds"
        )
    return Release(version, commit, int(date))


def run(*command, **options):
    """Runs a command that must succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, **{"cwd": ROOT, **options})
    if done.returncode != 0:
        said = "".join(text for text in (done.stdout, done.stderr) if isinstance(text, str))
        raise Failed(f"exit code {done.returncode}: {' '.join(words)}\n{said}".rstrip())
    return done


def output(*command, **options):
    """The standard output of a command that must succeed."""
    done = run(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)
    return done.stdout.strip()


def fresh(folder):
    """An empty folder of this name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def needed_glibc(program):
    """The newest version of the C library whose symbols this ELF file needs."""
    table = output("objdump", "-T", program)
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", table)]
    if not versions:
        raise Failed(f"{program} needs no symbol of the C library")
    return max(versions)


def needed_libraries(program):
    return re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", program))


def say(text):
    print(text, flush=True)


def warn(text):
    print(f"warning: {text}", file=sys.stderr, flush=True)
