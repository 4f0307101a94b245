"""Checks generated parquet and arrow files with pyarrow: schema, row groups, values, and their positions."""

import numpy
import program
import pyarrow
import pyarrow.parquet

WORDS = {"string": pyarrow.string(), "bool": pyarrow.bool_(), "list": pyarrow.float32()}


def expected_types(case, arrow):
    """The types that the columns should have, by name."""
    if not case["columns"]:
        element = WORDS.get(case["dtype"]) or pyarrow.from_numpy_dtype(case["dtype"])
        return {"data": (element, None if case["dims"] is None else int(numpy.prod(case["dims"])))}
    types = {}
    for column in case["columns"]:
        size = column.get("size", 1)
        if column["dtype"] == "binary":
            types[column["name"]] = (pyarrow.binary(size) if arrow else pyarrow.binary(), 0)
        else:
            element = WORDS.get(column["dtype"]) or pyarrow.from_numpy_dtype(column["dtype"])
            types[column["name"]] = (element, size if size > 1 or column["dtype"] == "list" else 0)
    return types


def check_schema(schema, case):
    expected = expected_types(case, case["format"] == "arrow")
    assert schema.names == list(expected), schema
    for field, (element, size) in zip(schema, expected.values()):
        if size == 0:
            assert field.type == element, (field, element)
        else:
            assert pyarrow.types.is_fixed_size_list(field.type) and field.type.value_type == element, field
            assert size is None or field.type.list_size == size, (field, size)


def check_groups(rows, case):
    """All groups except the last are full."""
    full, rest = divmod(case["samples"], case["group_rows"])
    assert rows == [case["group_rows"]] * full + [rest] * (rest > 0), rows


def check_values(table):
    for column in table.columns:
        assert column.null_count == 0
        flat = column.combine_chunks()
        while pyarrow.types.is_fixed_size_list(flat.type):
            flat = flat.flatten()
        if pyarrow.types.is_string(flat.type):
            assert all(text.startswith("s_") and text[2:].isdigit() for text in flat.to_pylist()), flat
        if pyarrow.types.is_floating(flat.type):
            assert numpy.isfinite(flat.to_numpy(zero_copy_only=False).astype(numpy.float64)).all(), flat
        if len(flat) > 1000 and not pyarrow.types.is_boolean(flat.type):
            assert len(flat.unique()) > 100, "content repeats"


def raw(value):
    """The bytes of one row of one column; None if the value is null or not made of whole bytes."""
    kind = value.type
    if not value.is_valid:
        return None
    if pyarrow.types.is_fixed_size_list(kind) or pyarrow.types.is_list(kind):
        if pyarrow.types.is_boolean(kind.value_type):
            return None
        return value.values.to_numpy(zero_copy_only=False).astype(kind.value_type.to_pandas_dtype()).tobytes()
    if pyarrow.types.is_boolean(kind):
        return None
    if pyarrow.types.is_string(kind):
        return value.as_py().encode()
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_fixed_size_binary(kind):
        return value.as_py()
    return numpy.array([value.as_py()], dtype=kind.to_pandas_dtype()).tobytes()


def check_arrow_places(path, table, found):
    """The values of a row are in its extents, column after column."""
    for number in range(table.num_rows):
        held, start = program.at(path, program.extents(found, number)), 0
        for column in table.columns:
            value = raw(column[number])
            if value is not None:
                start = held.find(value, start)
                assert start >= 0, f"row {number} is not in its extents"
                start += len(value)


def check_parquet_places(path, found, samples):
    """A row can be read from its extents and the footer alone: all other bytes are set to zero."""
    with open(path, "rb") as plain:
        content = plain.read()
    file = pyarrow.parquet.ParquetFile(path)
    rows = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    places = [(group, row) for group, count in enumerate(rows) for row in range(count)]
    groups = [file.read_row_group(group) for group in range(file.num_row_groups)]
    footer = int.from_bytes(content[-8:-4], "little") + 8
    # Every row of small files, some rows of others.
    for number in range(0, samples, 1 + samples // 100):
        left = bytearray(len(content))
        for offset, length in [(0, 4), (len(content) - footer, footer), *program.extents(found, number)]:
            left[offset:offset + length] = content[offset:offset + length]
        group, row = places[number]
        again = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(bytes(left))).read_row_group(group)
        assert again.slice(row, 1).equals(groups[group].slice(row, 1)), f"row {number}"


def chunk_range(chunk):
    """The bytes of a column chunk as the readers of MLCommons' DLIO compute them. Like those readers, this fails if the
    chunk has no dictionary page."""
    start = chunk.dictionary_page_offset if chunk.dictionary_page_offset > 0 else chunk.data_page_offset
    return start, start + chunk.total_compressed_size


def check_group_ranges(path):
    """A row group can be read from the range between its first and its last column and the footer alone. Columns of
    booleans are left out: pyarrow writes no dictionary page for them either."""
    with open(path, "rb") as plain:
        content = plain.read()
    file = pyarrow.parquet.ParquetFile(path)
    footer = int.from_bytes(content[-8:-4], "little") + 8
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(index) for index in range(group.num_columns)]
        columns = [column for column in columns if column.physical_type != "BOOLEAN"]
        if not columns:
            continue
        ranges = [chunk_range(column) for column in columns]
        start, end = min(start for start, _ in ranges), max(end for _, end in ranges)
        left = bytearray(len(content))
        for place in (slice(4), slice(start, end), slice(len(content) - footer, None)):
            left[place] = content[place]
        names = [column.path_in_schema.split(".")[0] for column in columns]
        again = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(bytes(left)))
        assert again.read_row_group(number, columns=names).equals(file.read_row_group(number, columns=names)), number


def check_like_pyarrow(path, table):
    """Every column has the pages and encodings that pyarrow writes by default, except that booleans are plain."""
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    usual = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(sink.getvalue())).metadata.row_group(0)
    found = pyarrow.parquet.read_metadata(path).row_group(0)
    for number in range(found.num_columns):
        ours, theirs = found.column(number), usual.column(number)
        assert ours.has_dictionary_page == theirs.has_dictionary_page, ours
        assert set(ours.encodings) == set(theirs.encodings), (ours, theirs)
        assert ours.file_offset == theirs.file_offset == 0, (ours, theirs)


CODECS = {"": "UNCOMPRESSED", "snappy": "SNAPPY", "zstd": "ZSTD", "lz4": "LZ4", "gzip": "GZIP"}


def read_parquet(path, case):
    file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    check_groups([group.num_rows for group in groups], case)
    codecs = {group.column(number).compression for group in groups for number in range(group.num_columns)}
    assert codecs == {CODECS[case["compression"]]}, codecs
    return file.read()


def read_arrow(path, case):
    with pyarrow.ipc.open_file(path) as file:
        check_groups([file.get_batch(number).num_rows for number in range(file.num_record_batches)], case)
        return file.read_all()


def check(paths, case):
    reader = read_parquet if case["format"] == "parquet" else read_arrow
    found = program.inspect(paths, case["samples"])
    others = [None] * len(paths)
    if case["like"]:
        others = program.data_files(case["like"])
    for path, other in zip(paths, others, strict=True):
        table = reader(path, case)
        table.validate(full=True)
        check_schema(table.schema, case)
        check_values(table)
        assert found[path]["samples"] == table.num_rows == case["samples"], found[path]
        if case["format"] == "parquet":
            check_group_ranges(path)
            check_like_pyarrow(path, table)
        if not case["columns"]:
            assert found[path]["sample_dims"] == [table.schema[0].type.list_size], found[path]
            assert found[path]["element"] == case["dtype"], found[path]
        if other is not None:
            assert table.equals(reader(other, {**case, "compression": ""})), "values differ"
        elif case["format"] == "arrow":
            check_arrow_places(path, table, found[path])
        else:
            check_parquet_places(path, found[path], case["samples"])
