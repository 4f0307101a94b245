"""Calls the program under test, whose path is in FEEDLINE_TEST_PROGRAM."""

import json
import os
import subprocess


def files_below(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                  if not name.startswith(".") and "/.feedline" not in at)


def data_files(folder):
    return [path for path in files_below(folder) if not path.endswith(".idx")]


def inspect(paths, samples, access="extent", give_count=False, format=None):
    """What `feedline inspect` finds in files with `samples` samples each: a dictionary by path. `give_count`: pass the
    number of samples to the program, because the files do not contain it."""
    command = [os.environ["FEEDLINE_TEST_PROGRAM"], "inspect", "--json", "--access", access]
    if give_count:
        command += ["--samples", str(samples)]
    if format:
        command += ["--format", format]
    for sample in range(samples):
        command += ["--sample", str(sample)]
    done = subprocess.run(command + list(paths), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)["files"]
    assert [entry["file"] for entry in found] == list(paths)
    return {entry["file"]: entry for entry in found}


def extents(found, sample):
    """The extents of a sample as (offset, length)."""
    [entry] = [entry for entry in found["reads"] if entry["sample"] == sample]
    return [(read["offset"], read["len"]) for read in entry["reads"]]


def at(path, places):
    """The bytes of a file at these extents, joined."""
    with open(path, "rb") as file:
        content = file.read()
    assert all(offset + length <= len(content) for offset, length in places), (places, len(content))
    return b"".join(content[offset:offset + length] for offset, length in places)


def strided(path, places, elements, itemsize, stride):
    """The elements of a sample that alternate with those of other samples: every `stride`-th element of its extent."""
    import numpy
    piece = numpy.frombuffer(at(path, places), dtype=f"V{itemsize}")
    assert len(piece) == (elements - 1) * stride + 1, (len(piece), elements, stride)
    return piece[::stride].tobytes()
