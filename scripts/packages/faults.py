"""Damages packages, and requires that the checks find each fault: a check that cannot fail is worth nothing."""

import dataclasses
import os
import re
import shutil
import zipfile
from pathlib import Path

from . import archives, binary, contents, trials
from .base import OUT, Failed, fresh, run, say

WORK = OUT / ".damaged"


def find_all(parts):
    parts = dataclasses.replace(parts, quick=True, built=False)
    cases = [(name, case) for name, case in globals().items() if name.startswith("fault_")]
    for name, case in cases:
        out = fresh(WORK / "out")
        expected = case.__doc__.strip()
        must_fail(name, expected, lambda: case(parts, out))
    shutil.rmtree(WORK)
    say(f"{len(cases)} damaged packages, each found")


def must_fail(name, expected, case):
    try:
        case()
    except Failed as failure:
        if not re.search(expected, str(failure)):
            raise Failed(f"{name}: expected the fault {expected!r}, found: {failure}") from failure
        return
    raise Failed(f"{name}: the damage was not found")


def find_in_root(root):
    """Faults of a root: a file that a removal leaves, one that it takes along, and a network."""
    must_fail("network", r"has a network", lambda: trials.no_network(root, network=True))
    before = root.files()
    root.ok("mkdir folder && touch folder/left")
    must_fail(
        "left file",
        r"1 changed files[^/]*new: \S*tester/folder/left",
        lambda: trials.leftovers(root, before, "a package", keeps_folders=True),
    )
    root.ok("rm -r ~tester/folder /usr/share/doc/bash/copyright", user="root")
    must_fail(
        "lost file",
        r"removed: /usr/share/doc/bash/copyright",
        lambda: trials.leftovers(root, before, "a package", keeps_folders=True),
    )


def changed(parts, out, change):
    """Parts with a copy of the documents, in which `change(share)` damages something."""
    share = out / "share"
    shutil.copytree(parts.share, share)
    change(share)
    return dataclasses.replace(parts, share=share, out=out)


def checked(parts, make, damaged):
    """Makes a package of damaged parts, and checks it against the true ones."""
    contents.check(make(damaged), parts)


# One fault each. The documentation is the pattern of the expected message.


def fault_no_page_of_a_command_in_the_tarball(parts, out):
    r"lacks the manual pages \['feedline-run.1'\]"
    checked(parts, archives.tarball, changed(parts, out, lambda share: (share / "man/man1/feedline-run.1").unlink()))


def fault_no_page_of_a_command_in_the_deb(parts, out):
    r"lacks the manual pages \['feedline-run.1'\]"
    checked(parts, archives.deb, changed(parts, out, lambda share: (share / "man/man1/feedline-run.1").unlink()))


def fault_no_page_of_a_command_in_the_wheel(parts, out):
    r"lacks the manual pages \['feedline-run.1'\]"
    checked(parts, archives.wheel, changed(parts, out, lambda share: (share / "man/man1/feedline-run.1").unlink()))


def fault_page_that_is_no_page(parts, out):
    r"feedline-run.1 is no manual page"
    checked(
        parts,
        archives.tarball,
        changed(parts, out, lambda share: (share / "man/man1/feedline-run.1").write_text("text\n")),
    )


def fault_page_with_an_unknown_macro(parts, out):
    r"man cannot format feedline-run.1"

    def damage(share):
        page = share / "man/man1/feedline-run.1"
        page.write_text(page.read_text() + ".XYZ unknown\n")

    checked(parts, archives.tarball, changed(parts, out, damage))


def fault_no_completions(parts, out):
    r"has no completions for zsh"
    checked(parts, archives.tarball, changed(parts, out, lambda share: (share / binary.COMPLETIONS["zsh"]).unlink()))


def fault_completions_of_nothing(parts, out):
    r"does not complete feedline"
    checked(
        parts, archives.wheel, changed(parts, out, lambda share: (share / binary.COMPLETIONS["fish"]).write_text(""))
    )


def fault_licences_are_incomplete(parts, out):
    r"THIRD-PARTY-LICENSES.txt does not name serde"
    listed = out / parts.licences.name
    listed.write_text(re.sub(r"\nserde [^\n]*", "", parts.licences.read_text()))
    checked(parts, archives.tarball, dataclasses.replace(parts, licences=listed, out=out))


def fault_bill_violates_its_schema(parts, out):
    r"violates the schema of CycloneDX"
    bill = out / parts.sbom.name
    bill.write_text(parts.sbom.read_text().replace('"type": "library"', '"type": "book"', 1))
    checked(parts, archives.tarball, dataclasses.replace(parts, sbom=bill, out=out))


def fault_bill_of_another_version(parts, out):
    r"the SBOM is that of version 9.9.9"
    bill = out / parts.sbom.name
    bill.write_text(parts.sbom.read_text().replace(f'"version": "{parts.release.version}"', '"version": "9.9.9"', 1))
    checked(parts, archives.tarball, dataclasses.replace(parts, sbom=bill, out=out))


def fault_another_binary(parts, out):
    r"has another binary"
    other = out / "feedline"
    other.write_bytes(parts.program.read_bytes() + b"\0")
    checked(parts, archives.tarball, dataclasses.replace(parts, program=other, out=out))


def fault_binary_for_newer_systems(parts, out):
    r"needs glibc 2\.[0-9]+, newer than 2.17"
    # That of this system, linked with its own C library.
    binary.check_loads(Path("/bin/ls"))


def fault_binary_without_the_library_of_the_audit(parts, out):
    r"does not contain the library of `feedline audit`"
    binary.preload_library(Path("/bin/ls"))


def fault_too_large(parts, out):
    r"the limit is 15,000,000"
    checked(
        parts,
        archives.tarball,
        changed(parts, out, lambda share: (share / "large").write_bytes(os.urandom(16_000_000))),
    )


def fault_times_of_now(parts, out):
    r"times or owners differ"
    later = dataclasses.replace(parts.release, date=parts.release.date + 1)
    checked(parts, archives.tarball, dataclasses.replace(parts, release=later, out=out))


def fault_wheel_with_a_changed_file(parts, out):
    r"RECORD has another sum of .*LICENSE"
    rewrite(parts, out, lambda name, content: content + b"\n" if name.endswith("/LICENSE") else content)


def fault_wheel_that_requires_others(parts, out):
    r"requires other packages"

    def require(name, content):
        return content.replace(b"\n\n", b"\nRequires-Dist: numpy\n\n", 1) if name.endswith("/METADATA") else content

    rewrite(parts, out, require, correct_record=True)


def rewrite(parts, out, change, correct_record=False):
    """A wheel whose members were changed after it was made."""
    made = archives.dlio_wheel(dataclasses.replace(parts, out=out))
    with zipfile.ZipFile(made) as archive:
        members = [(info, change(info.filename, archive.read(info))) for info in archive.infolist()]
    if correct_record:
        *members, (record, _) = members
        content = {info.filename: (text, (info.external_attr >> 16) & 0o777) for info, text in members}
        archives.pack_wheel(made, content, record.filename, parts)
    else:
        with zipfile.ZipFile(made, "w") as archive:
            for info, text in members:
                archive.writestr(info, text)
    contents.check(made, parts)


def fault_deb_that_depends_on_more(parts, out):
    r"Depends is libc6 \(>= 2.99\)"
    repack(parts, out, lambda tree: edit(tree / "DEBIAN/control", "2.17", "2.99"))


def fault_deb_with_a_changed_file(parts, out):
    r"lintian reports errors\n.*md5sum-mismatch"
    repack(parts, out, lambda tree: edit(tree / "usr/share/doc/feedline/copyright", "feedline", "feedlime"))


def fault_deb_without_copyright(parts, out):
    r"lintian reports errors\n.*(no-copyright-file|md5sums)"
    repack(parts, out, lambda tree: (tree / "usr/share/doc/feedline/copyright").unlink())


def repack(parts, out, change):
    """A Debian package whose files were changed after it was made."""
    made = archives.deb(dataclasses.replace(parts, out=out))
    tree = out / "tree"
    run("dpkg-deb", "--raw-extract", made, tree, capture_output=True)
    change(tree)
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", tree, made, capture_output=True)
    contents.check(made, parts)


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def fault_sum_of_another_file(parts, out):
    r"exit code 1: sha256sum"
    path = out / "file"
    path.write_text("one")
    archives.sums([path], out)
    path.write_text("two")
    contents.check_sums([path], out)


def fault_file_without_sum(parts, out):
    r"does not name \['other'\]"
    for name in ["file", "other"]:
        (out / name).write_text("text")
    archives.sums([out / "file"], out)
    contents.check_sums([out / "file", out / "other"], out)
