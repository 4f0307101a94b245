"""Writes files of many kinds with their usual libraries, and checks what feedline finds in them.

Usage: foreign.py FAMILY FOLDER. Cases are random with a fixed seed. Folders are named by the number of samples per
file: FOLDER/3/ holds files of three samples each. Expected of a file: the dimensions of its samples, the name of its
element type, and the bytes of the samples in C order, or None if the file does not contain them in this form.
Prints the number of files.
"""

import os
import random
import sys

import numpy
import program

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64"]
COUNTS = (1, 3, 8)


class Case:
    """A file to be written, and its expected content."""

    def __init__(self, folder, suffix, number, dice):
        self.samples = 1 if suffix in (".jpg", ".png") else dice.choice(COUNTS)
        self.dims = [dice.randint(1, 12) for _ in range(dice.randint(1, 3))]
        self.dtype = dice.choice(DTYPES)
        self.seed = dice.randrange(1 << 30)
        os.makedirs(f"{folder}/{self.samples}", exist_ok=True)
        self.path = f"{folder}/{self.samples}/f{number:03}{suffix}"
        self.element = self.dtype
        self.bytes = None
        # Every Nth element in the sample's extent of the file belongs to the sample.
        self.stride = 1

    def values(self, *dims):
        """An array of random bits, or of random numbers if not all bit patterns are valid."""
        source = numpy.random.default_rng(self.seed)
        dtype = numpy.dtype(self.dtype)
        if dtype.kind in "bf":
            return source.integers(0, 2 if dtype.kind == "b" else 1000, dims).astype(dtype)
        return numpy.frombuffer(source.bytes(int(numpy.prod(dims)) * dtype.itemsize), dtype).reshape(dims)


def write_array(case, dice, compressed):
    """An array with samples in the last dimension, as in DLIO's npz and npy."""
    x = case.values(*case.dims, case.samples)
    if dice.random() < 0.2:
        x = x.astype(x.dtype.newbyteorder(">"))
    case.stride = case.samples
    if dice.random() < 0.3:
        # The last dimension is then the slowest: each sample is contiguous, and transposed.
        x = numpy.asfortranarray(x)
        one = x.flags.c_contiguous
        case.stride = case.samples if one else 1
        samples = [x[..., k].tobytes(order="C" if one else "F") for k in range(case.samples)]
    else:
        samples = [x[..., k].tobytes() for k in range(case.samples)]
    case.bytes = None if compressed else samples
    # Types of the other byte order have NumPy's name for them.
    case.element = case.dtype if x.dtype.isnative else (case.dtype, x.dtype.str)
    return x


def npz(case, dice):
    compressed = dice.random() < 0.4
    x = write_array(case, dice, compressed)
    save = numpy.savez_compressed if compressed else numpy.savez
    others = {"y": numpy.zeros(case.samples, numpy.int64)} if dice.random() < 0.7 else {}
    if dice.random() < 0.3:
        others["another"] = numpy.arange(dice.randint(0, 5000))
    save(case.path, **({"x": x, **others} if dice.random() < 0.7 else {**others, "x": x}))


def npy(case, dice):
    numpy.save(case.path, write_array(case, dice, False))


def hdf5(case, dice):
    import h5py
    x = case.values(case.samples, *case.dims)
    options = {}
    if dice.random() < 0.6:
        options["chunks"] = tuple(dice.randint(1, length) for length in x.shape)
    if options and dice.random() < 0.5:
        options.update(compression="gzip", compression_opts=dice.randint(1, 9), shuffle=dice.random() < 0.5)
    if options and dice.random() < 0.4:
        grows = [None if dice.random() < 0.3 else length + dice.randint(0, 9) for length in x.shape[1:]]
        options["maxshape"] = (dice.choice([None, x.shape[0]]), *grows)
    libver = dice.choice(["earliest", "latest", ("earliest", "v110"), ("v108", "v108")])
    with h5py.File(case.path, "w", libver=libver) as file:
        if dice.random() < 0.5:
            file.create_dataset("labels", data=numpy.zeros(case.samples, numpy.int64))
        made = file.create_dataset("records_0", data=x, **options)
        if dice.random() < 0.3:
            made.attrs["unit"] = "none" * dice.randint(1, 400)
        for number in range(dice.choice([0, 0, 20])):
            file.create_group(f"group{number}").attrs["n"] = number
    if not options:
        case.bytes = [x[k].tobytes() for k in range(case.samples)]


def picture(case, dice, modes, name, **options):
    from PIL import Image
    mode = dice.choice(modes)
    high, wide = dice.randint(1, 300), dice.randint(1, 300)
    source = numpy.random.default_rng(case.seed)
    channels = {"L": 1, "1": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I;16": 1}[mode]
    pixels = source.integers(0, 256, (high, wide, channels), dtype=numpy.uint8)
    if mode == "I;16":
        image = Image.fromarray(source.integers(0, 65536, (high, wide), dtype=numpy.uint16))
    elif mode in ("1", "P"):
        image = Image.fromarray(pixels[..., 0]).convert(mode)
    else:
        image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode=None)
        image = image.convert(mode) if image.mode != mode else image
    image.save(case.path, name, **options)
    with open(case.path, "rb") as file:
        case.bytes = [file.read()]
    case.dims = ((high, wide), (high, wide, channels))
    case.element = "uint16" if mode == "I;16" else ("uint8", "bool", None)


def jpeg(case, dice):
    picture(case, dice, ["L", "RGB", "CMYK"], "JPEG", quality=dice.randint(5, 95), progressive=dice.random() < 0.5)


def png(case, dice):
    picture(case, dice, ["L", "RGB", "RGBA", "LA", "1", "P", "I;16"], "PNG", compress_level=dice.randint(0, 9))


def csv(case, dice):
    import pandas
    case.dims = [int(numpy.prod(case.dims))]
    if case.dtype == "bool":
        case.dtype = "uint8"
    frame = pandas.DataFrame(case.values(case.samples, *case.dims))
    compressed = dice.random() < 0.3
    if compressed:
        case.path += ".gz"
    frame.to_csv(case.path, header=False, index=False, lineterminator=dice.choice(["\n", "\r\n"]))
    if not compressed:
        with open(case.path, "rb") as file:
            case.bytes = file.read().splitlines(keepends=True)
    case.element = None


def tfrecord(case, dice):
    import tensorflow
    example = tensorflow.train
    with tensorflow.io.TFRecordWriter(case.path) as writer:
        source, case.bytes = random.Random(case.seed), []
        for _ in range(case.samples):
            features = {"image": example.Feature(bytes_list=example.BytesList(value=[source.randbytes(
                source.choice([0, 5, 200, 20000]))]))}
            for number in range(source.randint(0, 4)):
                floats = example.FloatList(value=[source.random() for _ in range(source.randint(0, 40))])
                features[f"f{number}"] = example.Feature(float_list=floats)
            if source.random() < 0.5:
                features["label"] = example.Feature(int64_list=example.Int64List(value=[source.randint(-9, 999)]))
            record = example.Example(features=example.Features(feature=features)).SerializeToString()
            writer.write(record)
            case.bytes.append(record)
    case.dims = case.element = "any"


def table(case, dice):
    """A table with one row per sample."""
    import pyarrow
    import pyarrow.compute
    size = int(numpy.prod(case.dims))
    columns = {}
    for number in range(dice.choice([1, 1, 2, 40])):
        kind = dice.choice(["list", "fixed", "plain", "text", "nulls"])
        values = pyarrow.array(case.values(case.samples * size))
        if kind == "fixed":
            column = pyarrow.FixedSizeListArray.from_arrays(values, size)
        elif kind == "list":
            column = pyarrow.ListArray.from_arrays(list(range(0, case.samples * size + 1, size)), values)
        elif kind == "text":
            column = pyarrow.array([f"text {number}" * size for number in range(case.samples)])
        else:
            column = values[:case.samples]
        if kind == "nulls":
            column = pyarrow.compute.if_else(pyarrow.array([k % 2 == 0 for k in range(case.samples)]), column, None)
        columns[f"column {number}"] = column
    case.dims = case.element = "any"
    return pyarrow.table(columns)


def parquet(case, dice):
    import pyarrow.parquet
    codec = dice.choice(["none", "snappy", "zstd", "lz4", "gzip", "brotli"])
    pyarrow.parquet.write_table(
        table(case, dice), case.path, compression=codec, use_dictionary=dice.random() < 0.5,
        row_group_size=dice.choice([1, 2, 1000]), write_statistics=dice.random() < 0.5,
        data_page_version=dice.choice(["1.0", "2.0"]), store_schema=dice.random() < 0.5,
        write_page_index=dice.random() < 0.3, version=dice.choice(["1.0", "2.4", "2.6"]))


def arrow(case, dice):
    import pyarrow
    made = table(case, dice)
    with pyarrow.ipc.new_file(case.path, made.schema) as file:
        file.write_table(made, max_chunksize=dice.choice([1, 2, 1000]))


# Function, suffix and number of files of each family.
FAMILIES = {"npz": (npz, ".npz", 300), "npy": (npy, ".npy", 300), "hdf5": (hdf5, ".h5", 300),
            "jpeg": (jpeg, ".jpg", 30), "png": (png, ".png", 40), "csv": (csv, ".csv", 60),
            "tfrecord": (tfrecord, ".tfrecords", 40), "parquet": (parquet, ".parquet", 120),
            "arrow": (arrow, ".arrow", 120)}


def check(case, found):
    if case.dims != "any":
        dims = [list(dims) for dims in case.dims] if isinstance(case.dims, tuple) else [case.dims]
        assert found["sample_dims"] in dims, (found, dims)
        # A tuple lists several acceptable names.
        elements = case.element if isinstance(case.element, tuple) else (case.element,)
        assert found["element"] in elements, (found, elements)
    if case.bytes is None:
        return
    for number, expected in enumerate(case.bytes):
        places = program.extents(found, number)
        if case.stride > 1:
            itemsize = numpy.dtype(case.dtype).itemsize
            held = program.strided(case.path, places, len(expected) // itemsize, itemsize, case.stride)
        else:
            held = program.at(case.path, places)
        if case.path.endswith(".tfrecords"):
            held = held[12:-4]
        assert held == expected, f"sample {number} is not at {places}"


def check_table(case, found):
    import columns
    if case.path.endswith(".parquet"):
        columns.check_parquet_places(case.path, found, case.samples)
    elif case.path.endswith(".arrow"):
        columns.check_arrow_places(case.path, columns.pyarrow.ipc.open_file(case.path).read_all(), found)


def main(family, folder):
    write, suffix, count = FAMILIES[family]
    dice = random.Random(f"{family} 1")
    cases = []
    for number in range(count):
        case = Case(folder, suffix, number, dice)
        write(case, dice)
        cases.append(case)
    for samples in COUNTS:
        some = {case.path: case for case in cases if case.samples == samples}
        if not some:
            continue
        for access in ("extent", "framework"):
            found = program.inspect(some, samples, access)
            for path, case in some.items():
                try:
                    assert found[path]["samples"] == samples, found[path]
                    if access == "extent":
                        check(case, found[path])
                        check_table(case, found[path])
                except Exception as error:
                    error.add_note(f"in {path}: {vars(case)}"[:1000])
                    raise
    print(len(cases))


main(*sys.argv[1:])
