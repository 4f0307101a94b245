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
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def check_npz(path, case):
    with numpy.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["x", "y"], archive.files
        x, y = archive["x"], archive["y"]
    assert x.dtype == numpy.dtype(case["dtype"]), x.dtype
    if case["dims"] is not None:
        assert list(x.shape) == case["dims"] + [case["samples"]], x.shape
    else:
        assert x.ndim == 3 and x.shape[2] == case["samples"], x.shape
    assert y.shape == (case["samples"],) and y.dtype == numpy.int64, (y.shape, y.dtype)
    assert (y >= 0).all() and (y < 1000).all(), y
    if x.dtype == numpy.bool_:
        assert set(numpy.unique(x.view(numpy.uint8))) <= {0, 1}
    if numpy.issubdtype(x.dtype, numpy.floating):
        assert numpy.isfinite(x.astype(numpy.float64)).all()
    if x.size > 1000 and x.dtype != numpy.bool_:
        assert len(numpy.unique(x)) > 100, "content repeats"


def check_jpeg(path):
    with Image.open(path) as image:
        assert image.format == "JPEG", image.format
        image.load()
        assert image.width > 0 and image.height > 0
        pixels = numpy.asarray(image)
    if pixels.size > 1000:
        assert len(numpy.unique(pixels)) > 2, "an empty picture"


def check(case):
    paths = files_below(case["folder"])
    assert len(paths) == case["files"], (len(paths), case["files"])
    sizes = [os.path.getsize(path) for path in paths]
    assert sum(sizes) == case["bytes"], (sum(sizes), case["bytes"])
    for path in paths:
        try:
            check_npz(path, case) if case["format"] == "npz" else check_jpeg(path)
        except Exception as error:
            raise SystemExit(f"{path}: {type(error).__name__}: {error}") from error
    return len(paths)


print(sum(check(case) for case in json.loads(sys.argv[1])))
