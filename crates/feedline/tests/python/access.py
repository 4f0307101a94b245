"""Reads files as training with a framework does, opening the file for each visit, so that the reads can be traced.

Usage: access.py FORMAT FILE VISITS ..., or for parquet FORMAT FILE VISITS COLUMNS ..., columns joined by commas.
"""

import sys


def npz(path, visits):
    import numpy
    for _ in range(visits):
        numpy.load(path)["x"]


def jpeg(path, visits):
    for _ in range(visits):
        with open(path, "rb") as file:
            file.read()


def tfrecord(path, visits):
    import tensorflow
    for _ in range(visits):
        for _ in tensorflow.data.TFRecordDataset(path):
            pass


def hdf5(path, visits):
    import h5py
    for visit in range(visits):
        with h5py.File(path, "r") as file:
            for name in sorted(set(file) - {"labels"}):
                file[name][visit]


def parquet(path, visits, columns):
    import pyarrow.parquet
    for visit in range(visits):
        file = pyarrow.parquet.ParquetFile(path)
        share = file.num_row_groups // visits
        for group in range(visit * share, (visit + 1) * share):
            file.read_row_group(group, columns=columns.split(","), use_threads=False)


reader, words = globals()[sys.argv[1]], sys.argv[2:]
step = 3 if sys.argv[1] == "parquet" else 2
for start in range(0, len(words), step):
    path, visits, *more = words[start:start + step]
    reader(path, int(visits), *more)
