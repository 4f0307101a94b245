"""Writes files with several arrays with their usual libraries and prints what they contain: a JSON object of lists of
[name, shape, type] by file name. Types that NumPy does not have are feedline's words."""

import json

import h5py
import numpy
import pandas
import pyarrow
import pyarrow.parquet
import tensorflow

found = {}


def described(arrays):
    return [[name, list(array.shape), str(array.dtype)] for name, array in arrays.items()]


def npz(name, save, arrays):
    save(name, **arrays)
    found[name] = described(arrays)


arrays = {"y": numpy.zeros(3, numpy.int64), "x": numpy.ones((4, 5, 3), numpy.float32),
          "none": numpy.zeros((0, 2), numpy.uint8), "words": numpy.array(["a", "b"], dtype=object),
          "one": numpy.array(1.5), "fortran": numpy.asfortranarray(numpy.ones((2, 6), numpy.int16))}
npz("stored.npz", numpy.savez, arrays)
npz("deflated.npz", numpy.savez_compressed, arrays)
numpy.save("a.npy", arrays["x"])
found["a.npy"] = [["", [4, 5, 3], "float32"]]

with h5py.File("a.h5", "w") as file:
    file["images"] = numpy.zeros((7, 8, 9), numpy.uint8)
    file["labels/fine"] = numpy.zeros(7, numpy.int32)
    file["labels/coarse/all"] = numpy.zeros((7, 2), numpy.float64)
    file["count"] = 7
    file["labels/itself"] = file["labels"]
found["a.h5"] = [["count", [], "int64"], ["images", [7, 8, 9], "uint8"], ["labels/fine", [7], "int32"],
                 ["labels/coarse/all", [7, 2], "float64"]]

table = pyarrow.table({
    "id": numpy.arange(6, dtype=numpy.int64),
    "pair": pyarrow.FixedSizeListArray.from_arrays(numpy.arange(12, dtype=numpy.float32), 2),
    "some": [[1], [2, 3], [], [4], [5], [6]],
    "name": ["a", "b", "c", "d", "e", "f"],
    "triple": pyarrow.FixedSizeListArray.from_arrays(numpy.arange(18, dtype=numpy.uint8), 3),
})
pyarrow.parquet.write_table(table, "a.parquet", row_group_size=4)
with pyarrow.ipc.new_file("a.arrow", table.schema) as file:
    file.write_table(table)
columns = [["id", [6], "int64"], ["pair", [6, 2], "float32"], ["some", [6], "list of int64"], ["name", [6], "string"],
           ["triple", [6, 3], "uint8"]]
found["a.parquet"] = columns
found["a.arrow"] = [[name, shape, "text or binary" if dtype == "string" else dtype] for name, shape, dtype in columns]


def feature(**kind):
    return tensorflow.train.Feature(**kind)


with tensorflow.io.TFRecordWriter("a.tfrecord") as file:
    features = {"image": feature(bytes_list=tensorflow.train.BytesList(value=[bytes(50)])),
                "boxes": feature(float_list=tensorflow.train.FloatList(value=range(8))),
                "labels": feature(int64_list=tensorflow.train.Int64List(value=[1, -2, 300])),
                "tags": feature(bytes_list=tensorflow.train.BytesList(value=[b"a", b"bc"]))}
    example = tensorflow.train.Example(features=tensorflow.train.Features(feature=features))
    for _ in range(3):
        file.write(example.SerializeToString())
found["a.tfrecord"] = [["boxes", [8], "float32"], ["image", [50], "bytes"], ["labels", [3], "int64"],
                       ["tags", [2], "list of bytes"]]

frame = pandas.DataFrame({"path": ["a.jpg", "b,c.jpg"], "width": [640, 480], "ratio": [0.5, None]})
frame.to_csv("named.csv", index=False)
frame.to_csv("named.csv.gz")
pandas.DataFrame(numpy.ones((4, 3))).to_csv("bare.csv", index=False, header=False)
found["named.csv"] = [["path", [2], "text"], ["width", [2], "number"], ["ratio", [2], "number"]]
found["named.csv.gz"] = [["", [2], "number"], *found["named.csv"]]
found["bare.csv"] = [["", [4, 3], "number"]]

print(json.dumps(found))
