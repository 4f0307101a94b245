"""Checks of the content of packages, without installing them: what must be in each, and that it fits together."""

import csv
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path

from . import archives, binary, sbom
from .base import OUT, ROOT, SIZE_LIMIT, TARGET, Failed, fresh, run, say

LICENCES = "THIRD-PARTY-LICENSES.txt"
# Text that every third-party list must have: a crate, C code inside a crate, JavaScript, the compiler's library.
LICENSED = ["serde ", "zstd ", "BoringSSL ", "uplot ", "rust-std ", "libunwind "]


def check(path, parts):
    """All checks of one package."""
    size = path.stat().st_size
    say(f"{path.name}: {size:,} bytes")
    expect(size < SIZE_LIMIT, f"{path.name} has {size:,} bytes, the limit is {SIZE_LIMIT:,}")
    if path.suffix == ".deb":
        members, programs = read_deb(path, parts), ["bin/feedline"]
        check_documents(path, members, parts)
    elif path.suffix == ".whl":
        members = read_wheel(path, parts)
        programs = sorted(name for name in members if name.startswith("bin/"))
        if path.name.startswith("feedline-"):
            expect(programs == ["bin/feedline"], f"{path.name} has the programs {programs}")
            check_documents(path, members, parts)
        else:
            wanted = ["bin/dlio_benchmark", *(f"bin/{name}" for name in archives.DLIO_PROGRAMS)]
            expect(programs == wanted, f"{path.name} has the programs {programs}")
    else:
        members, programs = read_tarball(path, parts), ["bin/feedline"]
        check_documents(path, members, parts)
    for name in programs:
        expect(members[name][1] == 0o755, f"{path.name}: {name} is not executable: mode {members[name][1]:o}")
    check_program(path, members[programs[0]][0], parts)
    check_common(path, members, parts)


def expect(condition, text):
    if not condition:
        raise Failed(text)


def check_program(path, content, parts):
    """It is the binary that was checked, and names no folder of the machine that made it."""
    expect(content == parts.program.read_bytes(), f"{path.name} has another binary than {parts.program}")
    for private in [str(ROOT), f"{Path.home()}/.", "/.cargo/registry/"]:
        expect(private.encode() not in content, f"the binary contains the path {private}")


def check_documents(path, members, parts):
    """A manual page of the program and of each command, and completions of each shell."""
    pages = {name.rsplit("/", 1)[1] for name in members if name.startswith("share/man/man1/")}
    wanted = {"feedline.1", *(f"feedline-{name}.1" for name in binary.commands(parts.program))}
    expect(wanted <= pages, f"{path.name} lacks the manual pages {sorted(wanted - pages)}")
    for page in sorted(pages):
        check_manual_page(path, page, members[f"share/man/man1/{page}"][0])
    for shell, place in binary.COMPLETIONS.items():
        place = f"share/{place}"
        expect(place in members, f"{path.name} has no completions for {shell}: {place}")
        expect(b"feedline" in members[place][0], f"{path.name}: {place} does not complete feedline")


def check_manual_page(path, page, content):
    is_page = b"\n.TH " in b"\n" + content and b".SH NAME" in content
    expect(is_page, f"{path.name}: {page} is no manual page")
    fault = formatting_fault(content)
    expect(not fault, f"{path.name}: man cannot format {page}: {fault}")


@cache
def formatting_fault(content):
    """What `man` reports about a page: nothing, if it can format it. All packages have the same pages."""
    environment = {"LANG": "C.UTF-8", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["man", "--warnings", "--local-file", "-"], input=content, capture_output=True, env=environment
    )
    said = done.stderr.decode(errors="replace").strip()
    return said or (f"exit code {done.returncode}" if done.returncode else "")


def check_common(path, members, parts):
    """Licences and the list of components."""
    [licences] = by_name(path, members, LICENCES)
    for name in LICENSED:
        expect(f"\n{name}" in licences.decode(), f"{path.name}: {LICENCES} does not name {name.strip()}")
    [bill] = by_name(path, members, f"feedline-{parts.release.version}.cdx.json")
    check_bill(bill)
    document = json.loads(bill)
    version = document["metadata"]["component"]["version"]
    expect(version == parts.release.version, f"{path.name}: the SBOM is that of version {version}")
    expect(len(document["components"]) > 100, f"{path.name}: the SBOM has {len(document['components'])} components")


@cache
def check_bill(content):
    copy = fresh(OUT / ".check") / "sbom.json"
    copy.write_bytes(content)
    sbom.validate(copy)


def by_name(path, members, name):
    found = [content for member, (content, _) in members.items() if member.rsplit("/", 1)[-1] == name]
    expect(len(found) == 1, f"{path.name} has {len(found)} files {name}")
    return found


# Each reader checks the format and returns {place below the prefix: (content, mode)}.


def read_wheel(path, parts):
    name, version = path.name.split("-")[:2]
    about, data = f"{name}-{version}.dist-info/", f"{name}-{version}.data/"
    with zipfile.ZipFile(path) as archive:
        content = {
            info.filename: (archive.read(info), (info.external_attr >> 16) & 0o777)
            for info in archive.infolist()
            if not info.is_dir()
        }
    listed = {row[0]: row[1] for row in csv.reader(io.StringIO(content[f"{about}RECORD"][0].decode()))}
    expect(
        set(listed) == set(content), f"{path.name}: RECORD and the archive differ: {sorted(set(listed) ^ set(content))}"
    )
    for member, (text, _) in content.items():
        digest = "sha256=" + urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        expect(
            listed[member] == digest or member == f"{about}RECORD", f"{path.name}: RECORD has another sum of {member}"
        )
    meta = content[f"{about}METADATA"][0].decode()
    for line in [f"Version: {version}", f"Name: {name.replace('_', '-')}", "License-Expression: Apache-2.0"]:
        expect(f"\n{line}\n" in meta, f"{path.name}: METADATA has no line {line}")
    expect(
        "Requires-Dist" not in meta.replace('Requires-Dist: mpi4py>=3.1 ; extra == "mpi4py"', ""),
        f"{path.name} requires other packages",
    )
    for platform in archives.PLATFORMS:
        tag = f"\nTag: py3-none-{platform}\n"
        expect(tag in content[f"{about}WHEEL"][0].decode() + "\n", f"{path.name}: WHEEL has no {tag.strip()}")
    places = {f"{data}scripts/": "bin/", f"{data}data/": "", about: "about/"}
    found = {}
    for member, value in content.items():
        [(start, prefix)] = [(start, prefix) for start, prefix in places.items() if member.startswith(start)] or [
            (None, None)
        ]
        expect(start, f"{path.name} has an unexpected file {member}")
        found[prefix + member[len(start) :]] = value
    return found


def read_tarball(path, parts):
    top = f"feedline-{parts.release.version}-{TARGET}/"
    with tarfile.open(path) as archive:
        entries = archive.getmembers()
        found = {entry.name.removeprefix(top): (archive.extractfile(entry).read(), entry.mode) for entry in entries}
    names = [entry.name for entry in entries]
    expect(
        all(name.startswith((f"{top}bin/", f"{top}share/")) for name in names),
        f"{path.name} has files outside of {top}bin and share",
    )
    expect(names == sorted(names), f"{path.name} is not sorted")
    expect(
        {(entry.mtime, entry.uid, entry.gid) for entry in entries} == {(parts.release.date, 0, 0)},
        f"{path.name}: times or owners differ",
    )
    for document in parts.documents():
        expect(f"share/doc/feedline/{document.name}" in found, f"{path.name} has no {document.name}")
    return found


def read_deb(path, parts):
    check_lintian(path)
    tree = fresh(OUT / ".check")
    run("dpkg-deb", "--raw-extract", path, tree, capture_output=True)
    fields = dict(re.findall(r"^(\S+): (.*)$", (tree / "DEBIAN/control").read_text(), re.M))
    wanted = {
        "Package": "feedline",
        "Version": parts.release.version,
        "Architecture": "amd64",
        "Depends": archives.DEPENDS,
    }
    for field, value in wanted.items():
        expect(fields.get(field) == value, f"{path.name}: {field} is {fields.get(field)}, not {value}")
    said = subprocess.run(["md5sum", "--check", "--quiet", "DEBIAN/md5sums"], cwd=tree, capture_output=True, text=True)
    expect(said.returncode == 0, f"{path.name}: md5sums differ: {said.stdout.strip()}")
    found = {}
    for file in archives.files_below(tree / "usr"):
        place, content = str(file.relative_to(tree / "usr")), file.read_bytes()
        if place.endswith(".gz"):
            place, content = place.removesuffix(".gz"), gzip.decompress(content)
        found[place.replace("zsh/vendor-completions", "zsh/site-functions")] = (content, file.stat().st_mode & 0o777)
    expect("share/doc/feedline/copyright" in found, f"{path.name} has no copyright")
    return found


def check_lintian(path):
    done = subprocess.run(
        ["lintian", "--fail-on", "error", "--no-tag-display-limit", "--allow-root", str(path)],
        capture_output=True,
        text=True,
    )
    for line in done.stdout.splitlines():
        say(f"  lintian {line}")
    expect(done.returncode == 0, f"{path.name}: lintian reports errors\n{done.stdout}{done.stderr}".rstrip())


def check_sums(paths, out):
    """SHA256SUMS names each package, with its sum."""
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=out, capture_output=True, text=True)
    named = {line.split("  ", 1)[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
    missing = {path.name for path in paths} - named
    expect(not missing, f"SHA256SUMS does not name {sorted(missing)}")
