"""The files that name the version of feedline, and the sections of CHANGELOG.md: shared by release-check and release-cut.

Only reads texts and returns them; it writes no file.
"""

import datetime
import re

# The version of the workspace, and of the library that has a workspace of its own but is a part of the program.
MANIFESTS = ("Cargo.toml", "crates/audit/preload/Cargo.toml")
LOCKS = ("Cargo.lock", "crates/audit/preload/Cargo.lock", "fuzz/Cargo.lock")
CHANGELOG = "CHANGELOG.md"
CITATION = "CITATION.cff"

# MAJOR.MINOR.PATCH, and for a candidate -rc.N.
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-rc\.[1-9]\d*)?")
# The first `version` of a manifest: that of the package or of all packages.
MANIFEST_VERSION = re.compile(r'^version = "(.*)"$', re.MULTILINE)
LOCK_VERSION = re.compile(r'^name = "(feedline(?:-[a-z]+)?)"\nversion = "(.*)"$', re.MULTILINE)
CITATION_VERSION = re.compile(r"^version: (.*)$", re.MULTILINE)
CITATION_DATE = re.compile(r'^date-released: "(.*)"$', re.MULTILINE)
TOPIC = re.compile(r"^(### .*)$", re.MULTILINE)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


def rank(version):
    """What versions are compared by: a candidate comes before its version."""
    major, minor, patch, candidate = VERSION.fullmatch(version).groups()
    return int(major), int(minor), int(patch), int(candidate[len("-rc."):]) if candidate else float("inf")


def sections(changelog):
    """The sections of a change log as (heading, text) in their order, without the title."""
    parts = HEADING.split(changelog)[1:]
    return [(heading.strip(), text.strip("\n")) for heading, text in zip(parts[::2], parts[1::2])]


def joined(text):
    """The text of a section in which every topic, `### ...`, occurs once, at its first place."""
    start, *parts = TOPIC.split(text)
    topics = {}
    for heading, lines in zip(parts[::2], parts[1::2]):
        topics.setdefault(heading.rstrip(), []).append(lines.strip("\n"))
    blocks = [start.strip("\n")] + ["\n\n".join([heading, "\n".join(filter(None, lines))]) for heading, lines in topics.items()]
    return "\n\n".join(filter(None, blocks))


def dated(version, changelog):
    """The date and the text of the section of a version; None if there is none. The date is a text that may be no date."""
    for heading, text in sections(changelog):
        name, _, date = heading.partition(" - ")
        if name == version:
            return date, text
    return None


def day(text):
    """A date of the form 2026-11-19, or None."""
    try:
        parsed = datetime.date.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.isoformat() == text else None
