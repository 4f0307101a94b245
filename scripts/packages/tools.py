"""The tools that make and check packages: Debian's programs, and Python packages of pinned versions in a folder of
their own."""

import os
import shutil
import subprocess
import sys

from .base import OUT, Failed, Heading, run

# Program and Debian package. The wheels and the SBOM are made by the Python packages below, all else by Python itself.
PROGRAMS = {
    "git": "git",
    "objdump": "binutils",
    "dpkg-deb": "dpkg",
    "lintian": "lintian",
    "man": "man-db",
}
TRIAL_PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "mount": "mount", "chroot": "coreutils"}
# maturin makes wheels of Rust programs, zig links them for old C libraries, and cyclonedx has the schemas of SBOMs.
PYTHON_PACKAGES = ["maturin==1.16.0", "ziglang==0.17.0", "cyclonedx-python-lib[json-validation]==11.12.0"]
VENV = OUT / ".tools/venv"


def install(with_trials):
    install_programs({**PROGRAMS, **(TRIAL_PROGRAMS if with_trials else {})})
    if shutil.which("cargo") is None:
        raise Failed("cargo is missing: install Rust 1.95 or newer, https://rustup.rs")
    if with_trials and os.geteuid() != 0:
        raise Failed("the trials need root for chroot and mounts: run as root, or with --no-trial")
    install_python_packages()


def install_programs(programs):
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(f"missing programs: apt-get install {' '.join(missing)}")
    Heading(f"installing {' '.join(missing)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)


def install_python_packages():
    wanted, stamp = "\n".join([sys.version, *PYTHON_PACKAGES]), VENV / "feedline-packages"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    Heading(f"installing {' '.join(PYTHON_PACKAGES)}")
    shutil.rmtree(VENV, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True)
    if made.returncode != 0:
        raise Failed(f"python3 -m venv failed: apt-get install python3-venv\n{made.stdout}{made.stderr}")
    run(VENV / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES)
    stamp.write_text(wanted)


def python():
    return VENV / "bin/python"


def path():
    """PATH with these tools in front."""
    return os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", "")])


def zig_folder():
    """zig's own files, with its licences."""
    found = sorted(VENV.glob("lib/python*/site-packages/ziglang"))
    if len(found) != 1:
        raise Failed(f"no zig in {VENV}")
    return found[0]
