"""Clean Debian roots, without Rust and without network. All have one template, the lower layer of an overlay file system,
and keep their changes in a layer of their own, so that each trial starts with the same files."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

from .base import OUT, Failed, Heading, fresh, run

RELEASE = "bookworm"
# The oldest and the newest Debian of the mirror, with little more than the package manager.
OTHERS = ["bullseye", "trixie"]
MIRROR = "http://deb.debian.org/debian"
# What users of the packages have: Python for wheels, the viewer of manual pages, shells with their completions.
INCLUDED = ["python3", "python3-venv", "pipx", "man-db", "bash-completion", "zsh", "fish", "ca-certificates", "procps"]
USER, USER_ID = "tester", 1000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Mounts and namespaces of one command. The network namespace has no interface that is up.
ENTER = 'mount -t proc proc "$1/proc" && mount -t sysfs -o ro sysfs "$1/sys" && mount -t tmpfs tmpfs "$1/dev/shm" && shift && exec "$@"'
# Where feedline keeps data in a root: a folder on a file system of the host, whose page cache can be counted.
DATA = "srv/data"


def template(release):
    """The folder with the files of a clean root, made once."""
    folder, stamp = OUT / f".root/{release}", OUT / f".root/{release}.packages"
    included = INCLUDED if release == RELEASE else ["python3-venv"]
    wanted = " ".join([release, MIRROR, *included])
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    Heading(f"making a clean root of {wanted}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh(folder)
    options = ["--variant=minbase", f"--include={','.join(included)}"]
    run("debootstrap", *options, release, folder, MIRROR, stdout=subprocess.DEVNULL)
    run("chroot", folder, "useradd", "--create-home", "--shell", "/bin/bash", "--uid", USER_ID, USER)
    (folder / DATA).mkdir()
    if "man-db" in included:
        # Documents that man-db has not indexed yet would appear as changes of the trial.
        run("chroot", folder, "mandb", "--quiet", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stamp.write_text(wanted)
    return folder


class CleanRoot:
    """`with CleanRoot(name) as root`: the files of the template. The changes vanish at the end."""

    def __init__(self, name, release=RELEASE):
        self.lower = template(release)
        self.folder = OUT / f".roots/{name}"
        self.path = self.folder / "root"
        self.data = self.folder / "data"

    def __enter__(self):
        self.remove()
        for name in ["upper", "work", "root", "data"]:
            (self.folder / name).mkdir(parents=True)
        os.chown(self.data, USER_ID, USER_ID)
        layers = f"lowerdir={self.lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, self.path)
        try:
            run("mount", "--bind", self.data, self.path / DATA)
            for program in ["cargo", "rustc", "feedline"]:
                if shutil.which(program, path=":".join(f"{self.path}{one}" for one in PATH.split(":"))):
                    raise Failed(f"the root for trials is not clean: it has {program}")
        except Failed:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        """Removes the root, also one that an interrupted call left."""
        for mounted in [self.path / DATA, self.path]:
            if os.path.ismount(mounted):
                run("umount", mounted)
        shutil.rmtree(self.folder, ignore_errors=True)

    def put(self, file):
        """Copies a package into the root and returns its path there."""
        target = self.data / file.name
        if not target.exists():
            shutil.copy(file, target)
        return f"/{DATA}/{file.name}"

    def call(self, script, user=USER, network=False, folder=None, timeout=300, **variables):
        """Runs a script of bash in the root. Returns exit code, standard output, and standard output with errors."""
        home = "/root" if user == "root" else os.path.join("/home", user)
        environment = {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb", "COLUMNS": "120", **variables}
        spaces = ["--mount", "--pid", "--fork", "--kill-child"] + ([] if network else ["--net"])
        words = ["unshare", *spaces, "sh", "-c", ENTER, "sh", self.path]
        words += [
            "chroot",
            f"--userspec={user}:{user}",
            self.path,
            "env",
            "-i",
            *(f"{key}={value}" for key, value in environment.items()),
        ]
        words += ["bash", "-c", f"cd {folder or home} && {script}"]
        try:
            done = subprocess.run(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"no end after {timeout} s: {script}\n{late.output or ''}") from late
        return done.returncode, done.stdout, done.stdout + done.stderr

    def ok(self, script, **options):
        """The output of a script that must succeed."""
        code, _, said = self.call(script, **options)
        if code != 0:
            raise Failed(f"exit code {code} in the clean root: {script}\n{said}".rstrip())
        return said

    def files(self):
        """All files, links and folders, with what changes when they are written."""
        found = {}
        for parent, folders, files in os.walk(self.path):
            at = Path(parent)
            folders[:] = [name for name in folders if not os.path.ismount(at / name)]
            for name in [*folders, *files]:
                facts = os.lstat(at / name)
                is_folder = stat.S_ISDIR(facts.st_mode)
                found[str((at / name).relative_to(self.path))] = (
                    facts.st_mode,
                    None if is_folder else (facts.st_size, facts.st_mtime_ns),
                )
        return found
