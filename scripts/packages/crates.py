"""Which outside code is in the binary: the crates, the C code inside them, and what the compiler and the linker add."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path

from . import tools
from .base import ROOT, TARGET, Failed, output

# Beginnings of the names of files with licences, in capital letters.
LICENCE_FILES = ("LICEN", "COPY", "NOTICE", "UNLICENSE")
UPLOT = ROOT / "crates/report/src/html/assets"


@dataclasses.dataclass(frozen=True)
class Component:
    """One piece of outside code."""

    name: str
    version: str
    purl: str
    licence: str
    description: str = ""
    sha256: str = ""
    repository: str = ""
    texts: tuple = ()
    needs: tuple = ()
    """The purls of what it depends on."""


@cache
def metadata(manifest):
    options = ["--locked", "--format-version", "1", "--filter-platform", TARGET]
    return json.loads(output("cargo", "metadata", *options, "--manifest-path", manifest))


@cache
def checksums():
    """SHA-256 of the archive of each crate, by name and version."""
    found = {}
    for lock in [ROOT / "Cargo.lock", ROOT / "crates/audit/preload/Cargo.lock"]:
        for block in lock.read_text().split("[[package]]")[1:]:
            fields = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', block, re.M))
            found[fields["name"], fields["version"]] = fields.get("checksum", "")
    return found


def reached(manifest, root):
    """Crates that become part of the program: no tools of the build and of tests. Returns {id: [ids it needs]}."""
    nodes = {node["id"]: node for node in metadata(manifest)["resolve"]["nodes"]}
    found, open_ends = {}, [root]
    while open_ends:
        node = open_ends.pop()
        if node not in found:
            linked = [
                one["pkg"] for one in nodes[node]["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])
            ]
            found[node] = linked
            open_ends += linked
    return found


def of_program(manifest, name):
    """The crates below one crate, which is the first of the list."""
    packages = {package["id"]: package for package in metadata(manifest)["packages"]}
    [root] = [key for key, package in packages.items() if package["name"] == name and package["source"] is None]
    graph = reached(manifest, root)
    order = [
        root,
        *sorted(
            (key for key in graph if key != root), key=lambda key: (packages[key]["name"], packages[key]["version"])
        ),
    ]
    return [crate(packages[key], [packages[one] for one in graph[key]]) for key in order]


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def crate(package, needs):
    folder = Path(package["manifest_path"]).parent
    outside = package["source"] is not None
    return Component(
        name=package["name"],
        version=package["version"],
        purl=purl(package),
        licence=expression(package["license"]),
        description=" ".join((package["description"] or "").split()),
        sha256=checksums().get((package["name"], package["version"]), ""),
        repository=package["repository"] or "",
        texts=tuple(licence_files(folder)) if outside else (),
        needs=tuple(sorted({purl(one) for one in needs})),
    )


def expression(text):
    """An SPDX expression; crates of the past wrote `/` for OR."""
    return re.sub(r"\s*/\s*", " OR ", text or "")


def licence_files(folder):
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.name.upper().startswith(LICENCE_FILES))
    if not found:
        raise Failed(f"{folder} has no licence text: add it to scripts/packages/crates.py")
    return found


def source_of(name):
    """The folder with the source of a crate of the workspace's lock file."""
    [package] = [one for one in metadata(ROOT / "Cargo.toml")["packages"] if one["name"] == name]
    return package["version"], Path(package["manifest_path"]).parent


def all_components():
    """feedline's own crates, outside crates, and the rest."""
    program = of_program(ROOT / "Cargo.toml", "feedline")
    preload = of_program(ROOT / "crates/audit/preload/Cargo.toml", "feedline-preload")
    known = {one.purl for one in program}
    return program + [one for one in preload if one.purl not in known] + bundled()


def bundled():
    """Code that is no crate of its own."""
    zstd_version, zstd = source_of("zstd-sys")
    if "+zstd." not in zstd_version:
        raise Failed(f"zstd-sys {zstd_version} does not name the version of zstd")
    native = zstd_version.split("+zstd.")[1]
    ring_version, ring = source_of("ring")
    uplot = re.search(r"uPlot \(v([0-9.]+)\)", (UPLOT / "uplot.js").read_text(errors="replace")[:200])
    if not uplot:
        raise Failed("uplot.js does not name its version")
    compiler = output("rustc", "--version").split()[1]
    documents = Path(output("rustc", "--print", "sysroot")) / "share/doc/rust/licenses"
    zig_version, zig = output(tools.python(), "-m", "ziglang", "version"), tools.zig_folder()
    cryptography = sorted(ring.glob("third_party/*/LICENSE*"))
    return [
        Component(
            "zstd",
            native,
            f"pkg:github/facebook/zstd@v{native}",
            "BSD-3-Clause",
            "The C library in zstd-sys",
            texts=(zstd / "zstd/LICENSE",),
        ),
        Component(
            "BoringSSL",
            f"in ring {ring_version}",
            "pkg:github/google/boringssl",
            "ISC AND OpenSSL AND MIT",
            "C and assembler code in ring",
            texts=(ring / "LICENSE-BoringSSL", ring / "LICENSE-other-bits", *cryptography),
        ),
        Component(
            "uplot",
            uplot[1],
            f"pkg:npm/uplot@{uplot[1]}",
            "MIT",
            "Plots in the pages of results",
            texts=(UPLOT / "uplot-LICENSE",),
        ),
        Component(
            "rust-std",
            compiler,
            f"pkg:github/rust-lang/rust@{compiler}",
            "MIT OR Apache-2.0",
            "The standard library of Rust",
            texts=tuple(documents / name for name in ["MIT.txt", "Apache-2.0.txt"]),
        ),
        Component(
            "zig",
            zig_version,
            f"pkg:pypi/ziglang@{zig_version}",
            "MIT",
            "compiler_rt, the functions that compiled code calls",
            texts=(zig / "LICENSE",),
        ),
        Component(
            "libunwind",
            f"in zig {zig_version}",
            "pkg:github/llvm/llvm-project#libunwind",
            "Apache-2.0 WITH LLVM-exception",
            "Unwinding of the stack",
            texts=(zig / "lib/libunwind/LICENSE.TXT",),
        ),
        Component(
            "glibc",
            "2.17",
            "pkg:generic/glibc@2.17",
            "LGPL-2.1-or-later",
            "Start files of programs, whose licence permits linking without conditions",
            texts=(zig / "lib/libc/glibc/LICENSES",),
        ),
    ]
