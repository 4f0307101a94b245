"""Reads generated data sets with numpy and Pillow and checks them against what was planned.

Usage: interop.py JSON, a list of {folder, format, files, bytes, dims, samples, dtype}; dims null means any two
dimensions whose product, the samples and the element size make up the array. Prints the number of files read.
"""

import json
import os
import sys

import numpy
from PIL import Image


def files_below(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                  if not name.startswith(".") and "/.feedline" not in at)


def check_npz(path, case):
    with numpy.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["x", "y"], archive.files
        x, y = archive["x"], archive["y"]
    check_samples(x, case)
    assert y.shape == (case["samples"],) and y.dtype == numpy.int64, (y.shape, y.dtype)
    assert (y >= 0).all() and (y < 1000).all(), y


def check_npy(path, case):
    x = numpy.load(path, allow_pickle=False)
    check_samples(x, case)
    # The header is a multiple of 64, so the elements can be mapped as they are.
    mapped = numpy.load(path, mmap_mode="r", allow_pickle=False)
    assert mapped.offset % 64 == 0 and mapped.offset + x.nbytes == os.path.getsize(path), mapped.offset
    assert mapped.tobytes() == x.tobytes()


def check_samples(x, case):
    assert x.flags.c_contiguous
    assert x.dtype == numpy.dtype(case["dtype"]), x.dtype
    if case["dims"] is not None:
        assert list(x.shape) == case["dims"] + [case["samples"]], x.shape
    else:
        assert x.ndim == 3 and x.shape[2] == case["samples"], x.shape
    if x.dtype == numpy.bool_:
        assert set(numpy.unique(x.view(numpy.uint8))) <= {0, 1}
    if numpy.issubdtype(x.dtype, numpy.floating):
        assert numpy.isfinite(x.astype(numpy.float64)).all()
    if x.size > 1000 and x.dtype != numpy.bool_:
        assert len(numpy.unique(x)) > 100, "content repeats"


def check_jpeg(path, case):
    with Image.open(path) as image:
        assert image.format == "JPEG", image.format
        image.load()
        assert image.width > 0 and image.height > 0
        pixels = numpy.asarray(image)
    if pixels.size > 1000:
        assert len(numpy.unique(pixels)) > 2, "an empty picture"


def check_png(path, case):
    # Checksums of every chunk; the picture is of no use afterwards.
    with Image.open(path) as image:
        image.verify()
    with Image.open(path) as image:
        assert image.format == "PNG" and image.mode == "L", (image.format, image.mode)
        image.load()
        pixels = numpy.asarray(image)
    size = os.path.getsize(path)
    high, wide = pixels.shape
    assert high <= wide <= high + 1, pixels.shape
    # Next to all bytes are pixels: the frame takes 91, a row 1, a block 5, the filler less than a row and two blocks.
    rest = 91 + high + 5 * (1 + size // 65535) + wide + 11
    assert size - rest <= pixels.size < size, (size, pixels.shape)
    if pixels.size > 1000:
        assert len(numpy.unique(pixels)) > 100, "content repeats"


CHECKS = {"npz": check_npz, "npy": check_npy, "jpeg": check_jpeg, "png": check_png}


def check(case):
    paths = files_below(case["folder"])
    assert len(paths) == case["files"], (len(paths), case["files"])
    sizes = [os.path.getsize(path) for path in paths]
    assert sum(sizes) == case["bytes"], (sum(sizes), case["bytes"])
    for path in paths:
        try:
            CHECKS[case["format"]](path, case)
        except Exception as error:
            raise SystemExit(f"{path}: {type(error).__name__}: {error}") from error
    return len(paths)


print(sum(check(case) for case in json.loads(sys.argv[1])))
