"""Writes the packages from one binary and one set of documents. Equal sources give equal files: names are sorted, and all
times are that of the commit."""

import dataclasses
import datetime
import gzip
import hashlib
import io
import shutil
import tarfile
import time
import zipfile
from base64 import urlsafe_b64encode
from email.utils import format_datetime
from pathlib import Path

from . import binary
from .base import DLIO_VERSION, GLIBC, MAINTAINER, OUT, ROOT, SUMMARY, TARGET, Failed, Release, fresh, run

# Two names of the same systems: pip before 20.3 knows only the first.
PLATFORMS = ["manylinux2014_x86_64", "manylinux_2_17_x86_64"]
WHEEL_TAG = f"py3-none-{'.'.join(PLATFORMS)}"
DEPENDS = f"libc6 (>= {'.'.join(map(str, GLIBC))})"
DESCRIPTION = [
    "feedline generates a data set, reads it as a training job would, emulates",
    "the accelerators, and reports how busy the storage kept them and whether",
    "that number can be trusted. It runs the workloads of DLIO and of MLPerf",
    "Storage, measures checkpoints, and observes training jobs.",
]
# DLIO's other programs. A wheel has no links, so these start the binary under another name.
DLIO_PROGRAMS = ["dlio_benchmark_query", "dlio_postprocessor"]
LAUNCHER = """#!python
import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dlio_benchmark")
os.execv(program, ["@NAME@", *sys.argv[1:]])
"""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the packages are made of."""

    release: Release
    program: Path
    share: Path
    licences: Path
    sbom: Path
    profile: str = "dist"
    built: bool = True
    """Whether the sources were built by this call, as opposed to a binary that was given."""
    out: Path = OUT
    quick: bool = False
    """Little compression, for packages that are only checked and then removed."""

    @property
    def level(self):
        return 1 if self.quick else 9

    def documents(self):
        """Files for share/doc/feedline."""
        return [ROOT / name for name in ["README.md", "LICENSE", "CHANGELOG.md"]] + [self.licences, self.sbom]


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


# Wheels.


def wheel(parts):
    """`feedline`, made by maturin; of a binary that was built before, by the writer below."""
    stage = fresh(binary.STAGE / "wheel")
    share = stage / "feedline.data/data/share"
    shutil.copytree(parts.share, share)
    shutil.copy(parts.sbom, stage)
    for path in [ROOT / "README.md", ROOT / "LICENSE", parts.licences]:
        shutil.copy(path, stage)
    files = f'readme = "README.md"\nlicense-files = ["LICENSE", "{parts.licences.name}"]'
    data = f'data = "feedline.data"\n\n[tool.maturin.sbom]\nrust = false\ninclude = ["{parts.sbom.name}"]'
    project = binary.project(parts.release, files, data)
    name = f"feedline-{parts.release.version}-{WHEEL_TAG}.whl"
    if parts.built:
        made = binary.maturin(stage, project, parts.release, parts.profile)
        if made.name != name:
            raise Failed(f"maturin made {made.name}, expected {name}")
        return Path(shutil.copy(made, parts.out / name))
    members = {f"share/{path.relative_to(share)}": path for path in files_below(share)}
    text = (stage / "README.md").read_text()
    meta = core_metadata("feedline", parts.release.version, SUMMARY, text)
    return write_wheel(
        parts, "feedline", parts.release.version, meta, {"feedline": parts.program.read_bytes()}, members
    )


def dlio_wheel(parts):
    """The same binary as the distribution that mlpstorage requires."""
    text = (
        f"This package takes the place of dlio-benchmark {DLIO_VERSION}. Its programs dlio_benchmark, dlio_benchmark_query and\n"
        f"dlio_postprocessor are feedline {parts.release.version}, which takes DLIO's command lines and writes DLIO's result\n"
        "folders. docs/guides/dlio.md of feedline lists the differences.\n"
    )
    version = parts.release.dlio_version
    meta = core_metadata("dlio-benchmark", version, "feedline under the name of DLIO", text)
    # mlpstorage's own scripts import mpi4py, which comes with the original DLIO only.
    meta = meta.replace("\n\n", '\nProvides-Extra: mpi4py\nRequires-Dist: mpi4py>=3.1 ; extra == "mpi4py"\n\n', 1)
    programs = {"dlio_benchmark": parts.program.read_bytes()}
    programs |= {name: LAUNCHER.replace("@NAME@", name).encode() for name in DLIO_PROGRAMS}
    return write_wheel(parts, "dlio_benchmark", version, meta, programs, {})


def core_metadata(name, version, summary, text):
    return (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {summary}\nLicense-Expression: Apache-2.0\n"
        "License-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES.txt\n"
        f"Description-Content-Type: text/markdown\n\n{text}"
    )


def write_wheel(parts, name, version, metadata, programs, data):
    """A wheel of programs and data files, after the specification of binary distributions."""
    about, placed = f"{name}-{version}.dist-info", f"{name}-{version}.data"
    members = {f"{placed}/scripts/{program}": (content, 0o755) for program, content in programs.items()}
    members |= {f"{placed}/data/{place}": (path.read_bytes(), 0o644) for place, path in data.items()}
    tag = "Wheel-Version: 1.0\nGenerator: feedline (scripts/package)\nRoot-Is-Purelib: false\n"
    tag += "".join(f"Tag: py3-none-{platform}\n" for platform in PLATFORMS)
    members |= {
        f"{about}/METADATA": (metadata.encode(), 0o644),
        f"{about}/WHEEL": (tag.encode(), 0o644),
        f"{about}/licenses/LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
        f"{about}/licenses/{parts.licences.name}": (parts.licences.read_bytes(), 0o644),
        f"{about}/sboms/{parts.sbom.name}": (parts.sbom.read_bytes(), 0o644),
    }
    target = parts.out / f"{name}-{version}-{WHEEL_TAG}.whl"
    pack_wheel(target, members, f"{about}/RECORD", parts)
    return target


def pack_wheel(target, members, record, parts):
    """Writes the archive with its list of files, which is the last member."""
    rows = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, (content, mode) in members.items():
            digest = urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{member},sha256={digest},{len(content)}\n")
            archive.writestr(zip_entry(member, mode, parts.release.date), content, compresslevel=parts.level)
        rows.append(f"{record},,\n")
        archive.writestr(zip_entry(record, 0o644, parts.release.date), "".join(rows), compresslevel=parts.level)


def zip_entry(name, mode, date):
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


# The archive and the Debian package.


def tarball(parts):
    """A folder with bin and share, which can be unpacked over any prefix."""
    name = f"feedline-{parts.release.version}-{TARGET}"
    members = {"bin/feedline": (parts.program.read_bytes(), 0o755)}
    members |= {
        f"share/{path.relative_to(parts.share)}": (path.read_bytes(), 0o644) for path in files_below(parts.share)
    }
    members |= {f"share/doc/feedline/{path.name}": (path.read_bytes(), 0o644) for path in parts.documents()}
    target = parts.out / f"{name}.tar.gz"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for member, (data, mode) in sorted(members.items()):
            entry = tarfile.TarInfo(f"{name}/{member}")
            entry.size, entry.mode, entry.mtime, entry.uname, entry.gname = (
                len(data),
                mode,
                parts.release.date,
                "root",
                "root",
            )
            archive.addfile(entry, io.BytesIO(data))
    target.write_bytes(gzip.compress(content.getvalue(), parts.level, mtime=parts.release.date))
    return target


def deb(parts):
    stage = fresh(binary.STAGE / "deb")
    release, doc = parts.release, stage / "usr/share/doc/feedline"
    put(stage / "usr/bin/feedline", parts.program.read_bytes(), 0o755)
    for path in files_below(parts.share):
        place = str(path.relative_to(parts.share)).replace("zsh/site-functions", "zsh/vendor-completions")
        content = path.read_bytes()
        if place.startswith("man/"):
            place, content = f"{place}.gz", gzip.compress(content, 9, mtime=0)
        put(stage / "usr/share" / place, content)
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", parts.licences]:
        put(doc / f"{path.name}.gz", gzip.compress(path.read_bytes(), 9, mtime=0))
    put(doc / parts.sbom.name, parts.sbom.read_bytes())
    put(doc / "copyright", (ROOT / "packaging/copyright").read_bytes())
    put(doc / "changelog.gz", gzip.compress(debian_changelog(release).encode(), 9, mtime=0))
    put(stage / "usr/share/lintian/overrides/feedline", (ROOT / "packaging/lintian-overrides").read_bytes())
    put(stage / "DEBIAN/md5sums", md5sums(stage).encode())
    put(stage / "DEBIAN/control", control(release, stage).encode())
    target = parts.out / f"feedline_{release.version}_amd64.deb"
    # SOURCE_DATE_EPOCH limits the times of files; -Zxz is what all releases of Debian and Ubuntu unpack.
    run(
        "dpkg-deb",
        "--root-owner-group",
        *(["-Zgzip", "-z1"] if parts.quick else ["-Zxz"]),
        "--build",
        stage,
        target,
        env=release.environment(),
        capture_output=True,
        text=True,
    )
    return target


def put(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def md5sums(stage):
    paths = [path for path in files_below(stage) if "DEBIAN" not in path.parts]
    return "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(stage)}\n" for path in paths)


def control(release, stage):
    size = sum(-(-path.stat().st_size // 1024) for path in files_below(stage))
    lines = [
        "Package: feedline",
        f"Version: {release.version}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        f"Installed-Size: {size}",
        f"Depends: {DEPENDS}",
        "Recommends: ca-certificates",
        "Suggests: openmpi-bin | mpich",
        "Section: utils",
        "Priority: optional",
        f"Description: {SUMMARY[0].lower()}{SUMMARY[1:]}",
    ]
    return "\n".join(lines + [f" {line}" for line in DESCRIPTION]) + "\n"


def debian_changelog(release):
    date = format_datetime(datetime.datetime.fromtimestamp(release.date, datetime.timezone.utc))
    return (
        f"feedline ({release.version}) stable; urgency=medium\n\n"
        f"  * Version {release.version}; CHANGELOG.md.gz lists the changes.\n\n -- {MAINTAINER}  {date}\n"
    )


def sums(paths, out):
    """SHA256SUMS of these files, for `sha256sum --check`."""
    target = out / "SHA256SUMS"
    rows = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(paths)]
    target.write_text("".join(rows))
    return target
