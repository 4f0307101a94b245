"""Reads h5, npy, npz, png, parquet and TFRecord files: DATA write, or DATA read. Prints a sum for each."""
import os
import sys

import h5py
import numpy
from PIL import Image

folder, what = sys.argv[1:]
path = lambda name: os.path.join(folder, name)
values = numpy.arange(100_000, dtype="f4")

if what == "write":
    with h5py.File(path("a.h5"), "w") as file:
        file.create_dataset("x", data=values, chunks=(10_000,))
    numpy.save(path("a.npy"), values)
    numpy.savez(path("a.npz"), x=values, y=values)
    Image.fromarray((values[:90_000] % 251).astype("u1").reshape(300, 300)).save(path("a.png"))
else:
    with h5py.File(path("a.h5"), "r") as file:
        print(float(file["x"][5000:60_000].sum()))
    print(float(numpy.load(path("a.npy")).sum()))
    print(float(numpy.load(path("a.npy"), mmap_mode="r")[::1000].sum()))
    print(float(numpy.load(path("a.npz"))["y"].sum()))
    print(int(numpy.asarray(Image.open(path("a.png"))).sum()))

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    sys.exit()
if what == "write":
    pyarrow.parquet.write_table(pyarrow.table({"x": values}), path("a.parquet"))
else:
    print(float(pyarrow.parquet.read_table(path("a.parquet"))["x"].to_numpy().sum()))

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="")
import tensorflow

if what == "write":
    for number in range(4):
        with tensorflow.io.TFRecordWriter(path("%d.tfrecord" % number)) as file:
            for _ in range(100):
                file.write(values[:500].tobytes())
else:
    names = [path("%d.tfrecord" % number) for number in range(4)]
    data = tensorflow.data.TFRecordDataset(names, num_parallel_reads=2).batch(10)
    for _ in range(2):
        print(sum(int(batch.shape[0]) for batch in data))
