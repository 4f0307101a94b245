"""Damages files in many ways and checks that `feedline inspect` reports it: exit code 5, the name of the file and the
position on stderr, no crash, little memory.

Usage: damage.py FORMAT GOOD SAMPLES, where GOOD is an undamaged file of that format with SAMPLES samples. Prints the
number of files that were refused, the number that were not, and the peak memory in MiB.
"""

import io
import os
import random
import resource
import subprocess
import sys
import zipfile

import numpy

REFUSED = 5
USAGE = 2
MOST_MEMORY_MIB = 300
# Formats without metadata: damage cannot be detected.
MUTE = ("indexed_binary", "mmap_indexed_binary")
# Formats in which inspect does not read to the end: a truncated file cannot be distinguished from a complete one.
CUT_UNSEEN = ("jpeg", "png", "csv", "synthetic", *MUTE)


def inspect(path, format, samples, access):
    command = [os.environ["FEEDLINE_TEST_PROGRAM"], "inspect", path, "--format", format, "--access", access, "--json",
               "--sample", "0", "--sample", str(samples - 1), "--samples", str(samples)]
    return subprocess.run(command, capture_output=True, timeout=60)


def cuts(good):
    """The file, truncated to several lengths."""
    size = len(good)
    lengths = {0, 1, 2, 3, 4, 7, 8, 11, 12, 16, 40, 100, size // 3 - 1, size // 2, size - 100, size - 9, size - 2, size - 1}
    return {f"cut to {length}": good[:length] for length in sorted(lengths) if 0 <= length < size}


def garbage(good):
    source = random.Random(1)
    return {"zeros": bytes(len(good)), "noise": source.randbytes(len(good)), "ones": b"\xff" * len(good),
            "short noise": source.randbytes(17), "text": b"not what it should be, " * 50}


def flips(good):
    """Single bytes changed, mostly in metadata. The outcome is not defined, but must not be a crash."""
    source = random.Random(2)
    made = {}
    for number in range(80):
        near = min(len(good), 1200)
        at = source.choice([source.randrange(near), len(good) - 1 - source.randrange(near)])
        changed = bytearray(good)
        changed[at] = source.choice([0, 0x7F, 0x80, 0xFF, changed[at] ^ 1, source.randrange(256)])
        made[f"byte {at} of {number}"] = bytes(changed)
    return made


def special_npz(good):
    def archive(header, payload, compression=zipfile.ZIP_STORED):
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w", compression, compresslevel=1) as file:
            with file.open("x.npy", "w") as member:
                member.write(header)
                for _ in range(payload >> 20):
                    member.write(bytes(1 << 20))
        return held.getvalue()

    def header(shape):
        held = io.BytesIO()
        numpy.lib.format.write_array_header_1_0(held, {"descr": "|u1", "fortran_order": False, "shape": shape})
        return held.getvalue()

    huge = archive(header((1 << 40, 1 << 20, 3)), 1 << 20)
    claims = bytearray(good)
    at = good.index(b"PK\x01\x02")
    claims[at + 20:at + 28] = (0xFFFFFFF0).to_bytes(4, "little") * 2
    entries = bytearray(good)
    entries[-14:-10] = b"\xfe\xff\xfe\xff"
    long_header = archive(b"\x93NUMPY\x02\x00" + (0xFFFFFF00).to_bytes(4, "little") + b"{", 0)
    bomb = archive(header((400 << 20, 3)), 1200 << 20, zipfile.ZIP_DEFLATED)
    deflated = archive(header((1 << 40, 1 << 20, 3)), 1 << 20, zipfile.ZIP_DEFLATED)
    # The number of entries is stored twice; like Python, feedline uses the other one.
    return {"huge shape": huge, "huge sizes": bytes(claims), "no end of the header": long_header,
            "huge deflated shape": deflated}, {"bomb": bomb, "too many entries": bytes(entries)}


def special_npy(good):
    shape = good.replace(b"(64, 64, 3)", b"(9999999,9)", 1)
    return {"huge shape": shape, "long header": good[:8] + b"\xff\xff" + good[10:],
            "header 2.0": good[:6] + b"\x02\x00" + b"\xff\xff\xff\xff" + good[12:]}, {}


def special_parquet(good):
    lengths = {f"footer of {length}": good[:-8] + length.to_bytes(4, "little") + good[-4:]
               for length in (0, 1, len(good), 0x7FFFFFFF, 0xFFFFFFFF, 64 << 20)}
    start = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    lengths["zeros for a footer"] = good[:start] + bytes(len(good) - start - 8) + good[-8:]
    # Endlessly nested thrift lists.
    lengths["nested lists"] = good[:start] + b"\x19" * (len(good) - start - 8) + good[-8:]
    lengths["wrong magic"] = good[:-4] + b"PARE"
    return lengths, {}


def special_tfrecord(good):
    def flipped(at):
        changed = bytearray(good)
        changed[at] ^= 0x10
        return bytes(changed)
    return {"length": flipped(0), "huge length": flipped(7), "checksum of the length": flipped(9)}, {
        "payload": flipped(20)}


def special_arrow(good):
    lengths = {f"footer of {length}": good[:-10] + length.to_bytes(4, "little") + good[-6:]
               for length in (0, len(good), 0x7FFFFFFF, 0xFFFFFFFF)}
    lengths["wrong magic"] = good[:-6] + b"ARROW2"
    return lengths, {}


def special_hdf5(good):
    import h5py
    name = "loop.h5"
    with h5py.File(name, "w", libver="earliest") as file:
        file.create_dataset("records_0", data=numpy.zeros((3, 400), numpy.uint8), chunks=(1, 4))
    with open(name, "rb") as file:
        content = file.read()
    os.remove(name)
    made = {"wrong magic": b"\x89HDG" + good[4:], "checksum of the superblock": good[:20] + b"\x55" + good[21:]}
    at = -1
    while (at := content.find(b"TREE", at + 1)) >= 0:
        kind, level = content[at + 4], content[at + 5]
        key = 8 if kind == 0 else 8 + 8 * 3
        child = at + 24 + key
        if kind == 1 and level > 0:
            made["index that points at itself"] = content[:child] + at.to_bytes(8, "little") + content[child + 8:]
        elif kind == 0:
            # A parent node whose children are the node itself.
            looped = bytearray(content)
            looped[at + 5] = 1
            looped[child:child + 8] = at.to_bytes(8, "little")
            made["group that is within itself"] = bytes(looped)
    assert len(made) == 4, list(made)
    return made, {}


SPECIAL = {"npz": special_npz, "npy": special_npy, "parquet": special_parquet, "tfrecord": special_tfrecord,
           "arrow": special_arrow, "hdf5": special_hdf5}


def main(format, path, samples):
    with open(path, "rb") as file:
        good = file.read()
    must, may = SPECIAL.get(format, lambda _: ({}, {}))(good)
    may.update(flips(good))
    (may if format in CUT_UNSEEN else must).update(cuts(good))
    (may if format in MUTE else must).update(garbage(good))
    if format not in MUTE:
        must["empty"] = b""
    wrong, counts = [], [0, 0]
    for name, content in {**may, **must}.items():
        with open("damaged", "wb") as file:
            file.write(content)
        for access in ("extent", "framework"):
            done = inspect("damaged", format, samples, access)
            said = done.stderr.decode(errors="replace")
            # A file with fewer samples than requested may be a usage error.
            refused = done.returncode == (USAGE if "there is no sample" in said else REFUSED)
            counts[0 if refused else 1] += 1
            place = "at byte" in said or "there is no sample" in said
            clear = refused and place and said.startswith("error: damaged: ") and said.count("error: ") == 1
            if not clear and not (name in may and done.returncode == 0 and said == ""):
                wrong.append(f"{name}, {access}: exit {done.returncode}: {said.strip()[:300] or 'no message'}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    if peak > MOST_MEMORY_MIB:
        wrong.append(f"{peak} MiB of memory used")
    if wrong:
        raise SystemExit("\n".join(wrong))
    print(*counts, peak)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
