"""The program under test, as the Python halves of the tests call it. Its path comes in FEEDLINE_TEST_PROGRAM."""

import json
import os
import subprocess


def files_below(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                  if not name.startswith(".") and "/.feedline" not in at)


def data_files(folder):
    return [path for path in files_below(folder) if not path.endswith(".idx")]


def inspect(paths, samples, access="extent", said=False, format=None):
    """What `feedline inspect` finds in files of so many samples each: a dictionary by path. `said`: the number of
    samples is told to the program, because the files do not tell."""
    command = [os.environ["FEEDLINE_TEST_PROGRAM"], "inspect", "--json", "--access", access]
    if said:
        command += ["--samples", str(samples)]
    if format:
        command += ["--format", format]
    for sample in range(samples):
        command += ["--sample", str(sample)]
    done = subprocess.run(command + list(paths), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)
    assert [entry["file"] for entry in found] == list(paths)
    return {entry["file"]: entry for entry in found}


def extents(found, sample):
    """The places of a sample as (offset, length)."""
    [entry] = [entry for entry in found["reads"] if entry["sample"] == sample]
    return [(read["offset"], read["len"]) for read in entry["reads"]]


def at(path, places):
    """The bytes of a file at these places, joined."""
    with open(path, "rb") as file:
        content = file.read()
    assert all(offset + length <= len(content) for offset, length in places), (places, len(content))
    return b"".join(content[offset:offset + length] for offset, length in places)


def strided(path, places, elements, itemsize, stride):
    """The elements of a sample whose neighbours in the file belong to other samples: every `stride`-th of a piece."""
    import numpy
    piece = numpy.frombuffer(at(path, places), dtype=f"V{itemsize}")
    assert len(piece) == (elements - 1) * stride + 1, (len(piece), elements, stride)
    return piece[::stride].tobytes()
