"""Builds the binary for old C libraries, checks it, and lets it write its manual pages and completions."""

import os
import zipfile
from pathlib import Path

from . import tools
from .base import GLIBC, OUT, ROOT, TARGET, Failed, Heading, fresh, needed_glibc, needed_libraries, output, run, say

STAGE = OUT / ".stage"
# Where each shell looks for completions, below the prefix. elvish and PowerShell have no such folder.
COMPLETIONS = {
    "bash": "bash-completion/completions/feedline",
    "zsh": "zsh/site-functions/_feedline",
    "fish": "fish/vendor_completions.d/feedline.fish",
    "elvish": "doc/feedline/completions/feedline.elv",
    "powershell": "doc/feedline/completions/feedline.ps1",
}
# Libraries of glibc 2.17, all in the package libc6.
LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "ld-linux-x86-64.so.2",
}


def build(release, profile):
    """The binary, taken out of a wheel: maturin calls cargo with zig as the linker."""
    Heading(f"binary, profile {profile}")
    stage = fresh(STAGE / "binary")
    wheel = maturin(stage, project(release), release, profile)
    with zipfile.ZipFile(wheel) as archive:
        [member] = [name for name in archive.namelist() if name.endswith(".data/scripts/feedline")]
        program = stage / "feedline"
        program.write_bytes(archive.read(member))
    program.chmod(0o755)
    return program


def project(release, files="", data=""):
    """The pyproject.toml of the wheel `feedline`: with what it says about files that are next to it."""
    text = (ROOT / "packaging/wheel.toml").read_text()
    values = {
        "@VERSION@": release.version,
        "@CRATE@": str(ROOT / "crates/feedline/Cargo.toml"),
        "@FILES@": files,
        "@DATA@": data,
    }
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def maturin(stage, project, release, profile):
    """Makes a wheel in `stage` and returns its path. A second call for the same sources compiles nothing."""
    (stage / "pyproject.toml").write_text(project)
    # Messages of panics name source files: relative to the project and to the registry of crates, not to this machine.
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    renamed = [(folder, "crates.io") for folder in sorted(registry.iterdir())]
    flags = " ".join(f"--remap-path-prefix={old}={new}" for old, new in [*renamed, (ROOT, "feedline")])
    flags_of_c = " ".join(f"-ffile-prefix-map={old}={new}" for old, new in renamed)
    options = ["--profile", profile, "--zig", "--compatibility", "manylinux_2_17", "--target", TARGET, "--locked"]
    environment = {**release.environment(), "PATH": tools.path(), "CARGO_TARGET_DIR": str(ROOT / "target")}
    environment |= {"RUSTFLAGS": flags, "CFLAGS": flags_of_c}
    run(tools.VENV / "bin/maturin", "build", *options, "--out", stage / "out", cwd=stage, env=environment)
    [wheel] = (stage / "out").glob("*.whl")
    return wheel


def check(program):
    """The binary and the library inside it load wherever glibc 2.17 does."""
    check_loads(program)
    check_loads(preload_library(program))


def check_loads(path):
    newest, libraries = needed_glibc(path), needed_libraries(path)
    say(f"{path.name}: {path.stat().st_size:,} bytes, needs glibc {'.'.join(map(str, newest))}, {' '.join(libraries)}")
    if newest > GLIBC:
        raise Failed(f"{path} needs glibc {'.'.join(map(str, newest))}, newer than {'.'.join(map(str, GLIBC))}")
    other = set(libraries) - LIBRARIES
    if other:
        raise Failed(f"{path} needs libraries that libc6 does not have: {' '.join(sorted(other))}")


def preload_library(program):
    """The library that `feedline audit` loads into jobs, cut out of the binary: it is the ELF file inside the file."""
    content = program.read_bytes()
    name, at = b"\0feedline_mark\0", 0
    while (at := content.find(b"\x7fELF\x02\x01\x01", at + 1)) > 0:
        # The section headers are the end of a shared library.
        table = int.from_bytes(content[at + 40 : at + 48], "little")
        size, number = (int.from_bytes(content[at + start : at + start + 2], "little") for start in (58, 60))
        library = content[at : at + table + size * number]
        if 0 < table < len(content) - at and name in library:
            path = OUT / ".stage/libfeedline_preload.so"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(library)
            return path
    raise Failed(f"{program} does not contain the library of `feedline audit`: was it built for another system?")


def write_documents(program, release):
    """The folder `share` with manual pages and completions, written by the program itself."""
    share = fresh(STAGE / "share")
    write_pages(program, share / "man/man1", release)
    for shell, place in COMPLETIONS.items():
        path = share / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output(program, "completions", shell) + "\n")
    return share


def write_pages(program, folder, release):
    folder.mkdir(parents=True)
    if "docs" not in commands(program):
        raise Failed(f"{program} has no command `docs`, which writes the manual pages")
    run(program, "docs", "--man", folder, env=release.environment(), capture_output=True, text=True)
    if not (folder / "feedline.1").is_file():
        raise Failed("feedline docs --man wrote no feedline.1")


def commands(program):
    """The names of the commands, from the help."""
    lines = output(program, "--help", env={"COLUMNS": "100"}).split("Commands:\n", 1)[-1].split("\n\n")[0].splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    return [name for name in names if name != "help"]
