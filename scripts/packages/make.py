"""The order of the work: tools, binary, documents, packages, checks, trials, and damaged packages."""

import dataclasses
import os

from . import archives, binary, contents, faults, licences, roots, sbom, tools, trials
from .base import OUT, Failed, Heading, release, say

MAKERS = {
    "wheel": archives.wheel,
    "dlio-benchmark": archives.dlio_wheel,
    "deb": archives.deb,
    "tarball": archives.tarball,
}
# The image is made of the Debian package.
KINDS = [*MAKERS, "docker"]
SHORT_KINDS = ["wheel", "deb", "tarball"]


def make_and_try(kinds, arguments):
    os.umask(0o022)
    OUT.mkdir(parents=True, exist_ok=True)
    tools.install(with_trials=not arguments.no_trial)
    facts = release()
    say(f"feedline {facts.version}, commit {facts.commit}")
    profile = "release" if arguments.short else "dist"
    program = arguments.binary.resolve() if arguments.binary else binary.build(facts, profile)
    binary.check(program)
    parts = write_parts(program, facts, profile, built=arguments.binary is None)
    made = make(kinds, parts)
    Heading("content")
    for path in made.values():
        contents.check(path, parts)
    contents.check_sums(made.values(), OUT)
    Heading("damaged packages")
    faults.find_all(parts)
    if arguments.no_trial:
        say("not tried: trials in clean roots (--no-trial)")
        return
    attempt(kinds, made, facts if parts.built else dataclasses.replace(facts, commit=""), arguments.short)
    if "tarball" in made:
        with roots.CleanRoot("fault") as root:
            faults.find_in_root(root)


def write_parts(program, facts, profile, built):
    Heading("manual pages, completions, licences, SBOM")
    listed = OUT / "THIRD-PARTY-LICENSES.txt"
    listed.write_text(licences.text())
    bill = OUT / f"feedline-{facts.version}.cdx.json"
    sbom.write(bill, facts)
    share = binary.write_documents(program, facts)
    say(f"{len(list((share / 'man/man1').iterdir()))} manual pages, {len(binary.COMPLETIONS)} completions")
    return archives.Parts(facts, program, share, listed, bill, profile, built)


def make(kinds, parts):
    """Removes old packages, and makes each kind twice: equal sources give equal files."""
    for old in [
        *OUT.glob("*.whl"),
        *OUT.glob("*.deb"),
        *OUT.glob("*.tar.gz"),
        *set(OUT.glob("*.cdx.json")) - {parts.sbom},
    ]:
        old.unlink()
    made = {}
    for kind in dict.fromkeys("deb" if kind == "docker" else kind for kind in kinds):
        Heading(kind)
        made[kind] = MAKERS[kind](parts)
        first = made[kind].read_bytes()
        if MAKERS[kind](parts).read_bytes() != first:
            raise Failed(f"{made[kind].name} differs when it is made again")
        say(f"{made[kind].name}: {len(first):,} bytes, the same when made again")
    archives.sums([*made.values(), parts.sbom, parts.licences], OUT)
    return made


def attempt(kinds, made, facts, short):
    for kind in kinds:
        if kind in trials.WAYS:
            trials.try_package(kind, made[kind], facts)
    if "wheel" in kinds:
        trials.try_pipx(made["wheel"])
    if "dlio-benchmark" in kinds:
        trials.try_dlio(made["dlio-benchmark"], facts)
    if "docker" in kinds:
        trials.try_docker(made["deb"])
    others = {kind: path for kind, path in made.items() if kind in trials.WAYS}
    for debian in roots.OTHERS if others and not short else []:
        trials.try_elsewhere(debian, others)
