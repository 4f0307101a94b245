"""Finding: one-file-many-workers. Each worker opens the same large file and reads it from front to back.

A user iterates over one big file in an IterableDataset without asking for the number of the worker, and so gets every
record once per worker. Healthy variant: each worker reads a part of the file of its own.
"""

import os

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Records(IterableDataset):
    def __init__(self, path, count, record, block, split):
        self.path, self.count, self.record, self.block, self.split = path, count, record, block, split

    def __iter__(self):
        info = get_worker_info()
        first, last = 0, self.count
        if self.split:
            first = self.count * info.id // info.num_workers
            last = self.count * (info.id + 1) // info.num_workers
        with open(self.path, "rb", buffering=0) as file:
            file.seek(first * self.record)
            for at in range(first, last, self.block):
                data = file.read(min(self.block, last - at) * self.record)
                for start in range(0, len(data), self.record):
                    yield draw.crop(data[start : start + self.record])


def main():
    # Order cannot change in a stream of one file: that is true of both variants.
    also = ["duplicate-reads", "order-never-changes", "stale-shards", *draw.LIMITS]
    job = draw.Job("one-file-many-workers", also_ok=also, healthy_ok=["order-never-changes", "stale-shards"])
    options = job.loader(workers=(2, 4), keep=True)
    count = job.draw("records", 600, 1000)
    record = job.draw("record", 20_000, 50_000)
    block = job.draw("block", 8, 24)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.0005, 0.002, slow=6, steps=epochs * count // options["batch_size"])
    job.begin(lambda: draw.write_file(job.path("train.bin"), count * record))
    dataset = Records(job.path("train.bin"), count, record, block, split=not job.faulty)
    draw.train(DataLoader(dataset, **options), epochs, seconds)


if __name__ == "__main__":
    main()
