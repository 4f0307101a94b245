"""Parquet by pyarrow in a plain loop, without a framework.

Fault: a row group is read for each row that is drawn. Healthy: row groups are drawn, and all their rows are used.
"""

import os
import random

import draw
import numpy
import pyarrow
import pyarrow.parquet


def main():
    job = draw.Job("same-bytes-read-again", also_ok=draw.LIMITS)
    files, groups, rows = job.draw("files", 10, 16), job.draw("groups", 3, 6), job.draw("rows", 10, 20)
    width, epochs, batch = job.draw("width", 1000, 4000), job.draw("epochs", 2, 3), job.draw("batch", 8, 32)
    seconds = job.draw("compute", 0.0005, 0.002)

    def make():
        os.makedirs(job.path("train"))
        for number in range(files):
            values = numpy.frombuffer(draw.noise(groups * rows * width * 4, number * 7919), numpy.int32)
            column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), width)
            table = pyarrow.table({"pixels": column, "label": numpy.arange(groups * rows) % 10})
            pyarrow.parquet.write_table(table, job.path("train", f"part-{number:03}.parquet"), row_group_size=rows)

    job.begin(make)
    parts = [pyarrow.parquet.ParquetFile(path) for path in draw.paths(job.path("train"))]
    blocks = [(part, group) for part in parts for group in range(groups)]
    for epoch in range(epochs):
        rng = random.Random(epoch)
        if job.faulty:
            order = [(*block, row) for block in blocks for row in range(rows)]
            rng.shuffle(order)
            samples = (part.read_row_group(group).slice(row, 1) for part, group, row in order)
        else:
            rng.shuffle(blocks)
            tables = (part.read_row_group(group) for part, group in blocks)
            samples = (table.slice(row, 1) for table in tables for row in rng.sample(range(rows), rows))
        for number, sample in enumerate(samples):
            sample.column("pixels")[0].as_py()[:8]
            if number % batch == batch - 1:
                draw.compute(seconds)


if __name__ == "__main__":
    main()
