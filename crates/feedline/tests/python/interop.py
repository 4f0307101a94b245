"""Reads generated data sets with the libraries that training uses, and compares them with the plan.

Usage: interop.py FILE, a JSON list of cases: folder, format, files, bytes, exact (else bytes is an upper bound), dims
(null: any), samples, dtype, and like: the folder of the same data set without compression, with the same samples.
Some cases have columns and group_rows, chunk_dims, sets and max_shape. Prints the number of files that were read.

A value is correct if the bytes that a library returns are those at the extents that `feedline inspect` reports.
"""

import json
import os
import sys

import numpy
import program


# Each of these reads a file with its library and returns a list of samples, each an array.

def read_npz(path, case):
    with numpy.load(path, allow_pickle=False) as archive:
        assert sorted(archive.files) == ["x", "y"], archive.files
        x, y = archive["x"], archive["y"]
    assert y.shape == (case["samples"],) and y.dtype == numpy.int64, (y.shape, y.dtype)
    assert (y >= 0).all() and (y < 1000).all(), y
    assert x.flags.c_contiguous
    return [x[..., sample] for sample in range(x.shape[-1])]


def read_npy(path, case):
    x = numpy.load(path, allow_pickle=False)
    # The header is a multiple of 64 bytes, so the elements can be mapped directly.
    mapped = numpy.load(path, mmap_mode="r", allow_pickle=False)
    assert mapped.offset % 64 == 0 and mapped.offset + x.nbytes == os.path.getsize(path), mapped.offset
    assert mapped.tobytes() == x.tobytes() and x.flags.c_contiguous
    return [x[..., sample] for sample in range(x.shape[-1])]


def read_csv(path, case):
    import pandas
    frame = pandas.read_csv(path, header=None, dtype=case["dtype"])
    assert (frame.dtypes == case["dtype"]).all(), frame.dtypes
    return list(frame.to_numpy())


def read_indexed(path, case):
    places = [numpy.fromfile(path + suffix, dtype="<u8") for suffix in (".off.idx", ".sz.idx")]
    with open(path, "rb") as file:
        content = file.read()
    assert sum(places[1]) == len(content), places
    return [numpy.frombuffer(content[offset:offset + size], dtype=case["dtype"]) for offset, size in zip(*places)]


def read_hdf5(path, case):
    import h5py
    with h5py.File(path, "r") as file:
        sets = case.get("sets") or 1
        names = [f"records_{number}" for number in range(sets)]
        assert sorted(file) == sorted(["labels", *names]), list(file)
        labels = file["labels"][:]
        assert labels.shape == (case["samples"],) and labels.dtype == numpy.int64, labels
        for name in names:
            check_layout(file[name], case)
        samples = []
        for sample in range(case["samples"]):
            samples.append(numpy.stack([file[name][sample] for name in names]) if sets > 1 else file[names[0]][sample])
        return samples


def check_layout(dataset, case):
    assert dataset.shape[0] == case["samples"], dataset.shape
    chunks, most = case.get("chunk_dims"), case.get("max_shape")
    if chunks:
        # A chunk is limited to the dataset; the workload gives the last dimensions of a chunk.
        full = ([1] * len(dataset.shape) + list(chunks))[-len(dataset.shape):]
        expected = tuple(min(a, b) for a, b in zip(full, dataset.maxshape))
        assert dataset.chunks == expected, (dataset.chunks, expected)
    assert (dataset.chunks is not None) == bool(chunks or most or case["compression"]), dataset.chunks
    if most:
        assert dataset.maxshape[1:] == tuple(most), dataset.maxshape
    assert dataset.compression == (case["compression"] or None), dataset.compression
    if case["compression"]:
        assert dataset.compression_opts == 4, dataset.compression_opts


def read_tfrecord(path, case):
    import tensorflow
    records = [record.numpy() for record in tensorflow.data.TFRecordDataset(path)]
    # Index files are not in subfolders, even if data files are.
    split, name = path.split("/")[1], os.path.basename(path)
    with open(f"{case['folder']}/index/{split}/{name}.idx", encoding="ascii") as index:
        lines = [tuple(map(int, line.split(" "))) for line in index.read().splitlines()]
    offsets = numpy.cumsum([0] + [len(record) + 16 for record in records])
    assert lines == [(offset, len(record) + 16) for offset, record in zip(offsets, records)], lines
    features = {"image": tensorflow.io.FixedLenFeature([], tensorflow.string),
                "size": tensorflow.io.FixedLenFeature([], tensorflow.int64)}
    samples = []
    for record in records:
        example = tensorflow.train.Example.FromString(record)
        assert sorted(example.features.feature) == ["image", "size"], example
        parsed = tensorflow.io.parse_single_example(record, features)
        image = parsed["image"].numpy()
        assert parsed["size"].numpy() == len(image)
        samples.append(numpy.frombuffer(image, dtype=case["dtype"]))
    return samples


READERS = {"npz": read_npz, "npy": read_npy, "csv": read_csv, "indexed_binary": read_indexed,
           "mmap_indexed_binary": read_indexed, "hdf5": read_hdf5, "tfrecord": read_tfrecord}
STRIDED = ("npz", "npy")
# Formats without dimensions.
FLAT = ("csv", "tfrecord", "indexed_binary", "mmap_indexed_binary")


def check_sample(sample, case):
    assert sample.dtype == numpy.dtype(case["dtype"]), sample.dtype
    sets = case.get("sets") or 1
    if case["dims"] is not None and case["format"] not in FLAT:
        dims = case["dims"] if sets == 1 else [sets, case["dims"][0] // sets, *case["dims"][1:]]
        assert list(sample.shape) == dims, (sample.shape, dims)
    elif case["dims"] is not None:
        assert sample.size == numpy.prod(case["dims"]), (sample.shape, case["dims"])
    elif case["format"] not in FLAT:
        assert sample.ndim == 2, sample.shape
    if sample.dtype == numpy.bool_:
        assert set(numpy.unique(numpy.ascontiguousarray(sample).view(numpy.uint8))) <= {0, 1}
    if numpy.issubdtype(sample.dtype, numpy.floating):
        assert numpy.isfinite(sample.astype(numpy.float64)).all()
    if sample.size > 1000 and sample.dtype != numpy.bool_:
        assert len(numpy.unique(sample)) > 100, "content repeats"


def check_facts(found, sample, case):
    if case["format"] in ("indexed_binary", "mmap_indexed_binary"):
        assert found["samples"] is None, found
        return
    assert found["samples"] == case["samples"], found
    if case["format"] in FLAT:
        return
    dims = case["dims"] if (case.get("sets") or 1) > 1 else list(sample.shape)
    assert found["sample_dims"] == dims, (found, dims)
    assert found["element"] == case["dtype"], found


def check_places(path, number, sample, found, case):
    """The library's bytes are at the extents that feedline reports."""
    places = program.extents(found, number)
    if case["format"] in STRIDED:
        held = program.strided(path, places, sample.size, sample.itemsize, case["samples"])
        assert held == sample.tobytes(), f"sample {number} is not at {places}"
        return
    held = program.at(path, places)
    if case["format"] == "csv":
        words = held.decode().rstrip("\n").split(",")
        to_number = float if sample.dtype.kind == "f" else int
        values = numpy.array([to_number(word) for word in words]).astype(sample.dtype)
        assert numpy.array_equal(values, sample), f"sample {number} is not at {places}"
    elif case["format"] == "tfrecord":
        assert int.from_bytes(held[:8], "little") == len(held) - 16 and sample.tobytes() in held
    elif case.get("chunk_dims") or case.get("max_shape"):
        check_chunks(path, number, places, sample, case)
    else:
        assert held == sample.tobytes(), f"sample {number} is not at {places}"


def check_chunks(path, number, places, sample, case):
    """Assembles the sample from the chunks that feedline reports, using h5py's index of chunks."""
    import h5py
    with open(path, "rb") as file:
        content = file.read()
    known = numpy.zeros(len(content), bool)
    for offset, length in places:
        known[offset:offset + length] = True
    content = numpy.where(known, numpy.frombuffer(content, numpy.uint8), 0).tobytes()
    sets = case.get("sets") or 1
    with h5py.File(path, "r") as file:
        for set_number in range(sets):
            whole = from_chunks(file[f"records_{set_number}"], number, content)
            expected = sample[set_number] if sets > 1 else sample
            assert whole.tobytes() == expected.tobytes(), f"sample {number} is not at {places}"


def from_chunks(dataset, number, content):
    """A sample, from the raw chunks of a file's content."""
    whole, found = numpy.zeros(dataset.shape, dataset.dtype), []
    dataset.id.chunk_iter(found.append)
    for chunk in found:
        if chunk.chunk_offset[0] <= number < chunk.chunk_offset[0] + dataset.chunks[0]:
            held = content[chunk.byte_offset:chunk.byte_offset + chunk.size]
            values = numpy.frombuffer(held, dataset.dtype).reshape(dataset.chunks)
            into = tuple(slice(start, start + length) for start, length in zip(chunk.chunk_offset, dataset.chunks))
            whole[into] = values[tuple(slice(0, length) for length in whole[into].shape)]
    return whole[number]


def check_arrays(paths, case):
    reader = READERS[case["format"]]
    give_count = case["format"].endswith("indexed_binary")
    found = program.inspect(paths, case["samples"], give_count=give_count)
    others = program.data_files(case["like"]) if case["like"] else [None] * len(paths)
    assert len(others) == len(paths)
    for path, other in zip(paths, others):
        samples = reader(path, case)
        assert len(samples) == case["samples"], len(samples)
        for number, sample in enumerate(samples):
            check_sample(sample, case)
            if other is None:
                check_places(path, number, sample, found[path], case)
        check_facts(found[path], samples[0], case)
        if other is not None:
            plain = reader(other, {**case, "compression": ""})
            assert all(numpy.array_equal(one, two) for one, two in zip(samples, plain, strict=True)), "values differ"


def check_pictures(paths, case):
    from PIL import Image
    found = program.inspect(paths, 1)
    for path in paths:
        # Verifies the checksums of all chunks of a png; the image cannot be used afterwards.
        with Image.open(path) as image:
            image.verify()
        with Image.open(path) as image:
            assert (image.format, image.mode) == (case["format"].upper(), "L"), (image.format, image.mode)
            image.load()
            pixels = numpy.asarray(image)
        assert found[path]["sample_dims"] == list(pixels.shape), (found[path], pixels.shape)
        size = os.path.getsize(path)
        assert program.extents(found[path], 0) == [(0, size)]
        if pixels.size > 1000:
            assert len(numpy.unique(pixels)) > (100 if case["format"] == "png" else 2), "content repeats"
        if case["format"] == "png":
            high, wide = pixels.shape
            assert high <= wide <= high + 1, pixels.shape
            # Almost all bytes are pixels: the frame takes 91 bytes, a row 1, a block 5, the padding less than a row and
            # two blocks.
            rest = 91 + high + 5 * (1 + size // 65535) + wide + 11
            assert size - rest <= pixels.size < size, (size, pixels.shape)


def check_synthetic(paths, case):
    for number, path in enumerate(paths):
        with open(path, encoding="ascii") as file:
            assert int(file.read()) == number


def check(case):
    paths = program.files_below(case["folder"])
    data = program.data_files(case["folder"])
    assert len(data) == case["files"], (len(data), case["files"])
    total = sum(os.path.getsize(path) for path in paths)
    assert total == case["bytes"] if case["exact"] else total <= case["bytes"], (total, case["bytes"])
    try:
        if case["format"] in ("jpeg", "png"):
            check_pictures(data, case)
        elif case["format"] == "synthetic":
            check_synthetic(data, case)
        elif case["format"] in ("parquet", "arrow"):
            import columns
            columns.check(data, case)
        else:
            check_arrays(data, case)
    except Exception as error:
        error.add_note(f"in {case}")
        raise
    return len(data)


with open(sys.argv[1], encoding="utf-8") as cases:
    print(sum(check(case) for case in json.load(cases)))
