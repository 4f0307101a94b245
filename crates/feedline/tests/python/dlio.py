"""Writes a data set as DLIO does: names, folders and layouts of Argonne's version or of MLCommons' fork.

Usage: dlio.py WRITER FORMAT FOLDER. Five training files and two validation files of two samples (one for pictures).
Each file has its own shape, as in a data set with a size spread that several ranks generated.
"""

import io
import os
import struct
import sys
import zipfile

import numpy

FILES = {"train": 5, "valid": 2}


def npz(path, x, fork):
    labels = numpy.zeros(x.shape[-1], numpy.int64)
    if not fork:
        return numpy.savez(path, x=x, y=labels)
    # Without the zip64 fields that numpy writes.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in (("x", x), ("y", labels)):
            text = io.BytesIO()
            numpy.save(text, array)
            archive.writestr(f"{name}.npy", text.getvalue())


def npy(path, x, fork):
    numpy.save(path, x)


def hdf5(path, x, fork):
    import h5py
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("records_0", data=numpy.moveaxis(x, -1, 0))
        file.create_dataset("labels", data=numpy.zeros(x.shape[-1], numpy.int64))


def csv(path, x, fork):
    import pandas
    rows = [x[..., 0 if not fork else k].ravel() for k in range(x.shape[-1])]
    pandas.DataFrame(rows).to_csv(path, index=False, header=False)


def picture(path, x, fork):
    if fork:
        # Noise without a header.
        return x[..., 0].tofile(path)
    from PIL import Image
    Image.fromarray(x[..., 0]).save(path)


def parquet(path, x, fork):
    import pyarrow
    import pyarrow.parquet
    width = x.shape[0] * x.shape[1]
    values = pyarrow.array(numpy.moveaxis(x, -1, 0).ravel())
    table = pyarrow.table({"data": pyarrow.FixedSizeListArray.from_arrays(values, width)})
    pyarrow.parquet.write_table(table, path, row_group_size=1024, compression="none")


def indexed(path, x, fork):
    samples = [x[..., k].tobytes() for k in range(x.shape[-1])]
    with open(path, "wb") as file:
        file.write(b"".join(samples))
    for suffix, numbers in ((".off.idx", [k * len(samples[0]) for k in range(len(samples))]),
                            (".sz.idx", [len(sample) for sample in samples])):
        with open(path + suffix, "wb") as file:
            file.write(struct.pack(f"<{len(numbers)}Q", *numbers))


WRITERS = {"npz": npz, "npy": npy, "hdf5": hdf5, "csv": csv, "jpeg": picture, "png": picture, "parquet": parquet,
           "indexed_binary": indexed, "mmap_indexed_binary": indexed}


def main():
    writer, name, folder = sys.argv[1:]
    source = numpy.random.default_rng(3)
    samples = 1 if name in ("jpeg", "png") else 2
    for split, count in FILES.items():
        os.makedirs(f"{folder}/{split}")
        for index in range(count):
            high, wide = source.integers(40, 90, 2)
            x = source.integers(0, 255, (high, wide, samples), dtype=numpy.uint8)
            WRITERS[name](f"{folder}/{split}/img_{index}_of_{count}.{name}", x, writer == "mlcommons")


main()
