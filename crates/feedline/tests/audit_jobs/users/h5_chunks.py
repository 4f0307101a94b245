"""HDF5 with compressed chunks of many rows and the default chunk cache.

Fault: rows are drawn at random, or the chunk cache is dropped with the data set object of each access, so nearly every
row reads and unpacks a chunk. Healthy: chunks are drawn at random, the rows of a chunk in turn, and one data set object
with a cache that holds a chunk is kept.
"""

import draw
import h5py
import numpy
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Rows(Dataset):
    def __init__(self, path, cache, keep):
        self.path, self.cache, self.keep, self.file = path, cache, keep, None
        with h5py.File(path, "r") as file:
            self.count = len(file["images"])

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r", rdcc_nbytes=self.cache)
            self.kept = self.file["images"] if self.keep else None
        images = self.kept or self.file["images"]
        return torch.from_numpy(images[index].astype("float32")), int(self.file["labels"][index])


class ByChunk(Sampler):
    """Batches of neighbours: a batch is a chunk."""

    def __init__(self, count, chunk):
        self.count, self.chunk = count, chunk

    def __len__(self):
        return -(-self.count // self.chunk)

    def __iter__(self):
        for number in torch.randperm(len(self)).tolist():
            yield list(range(number * self.chunk, min((number + 1) * self.chunk, self.count)))


def main():
    job = draw.Job("same-bytes-read-again")
    kind = job.pick("kind", "random", "object")
    options = job.loader(workers=(1, 3), keep=True)
    chunk = job.draw("chunk", 16, 32)
    count = chunk * job.draw("chunks", 20, 40)
    width = job.pick("width", 96, 128, 160)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, steps=epochs * count // chunk)

    def make():
        pixels = numpy.frombuffer(draw.noise(count * width * width), numpy.uint8).reshape(count, width, width) // 8
        with h5py.File(job.path("train.h5"), "w") as file:
            # A chunk is larger than the default cache of 1 MiB where it matters.
            rows = chunk if chunk * width * width > 1 << 20 else (1 << 20) // (width * width) + 1
            file.create_dataset("images", data=pixels, chunks=(min(rows, count), width, width), compression=1)
            file.create_dataset("labels", data=numpy.arange(count) % 10)

    job.begin(make)
    big = not job.faulty or kind == "object"
    dataset = Rows(job.path("train.h5"), 64 << 20 if big else 1 << 20, not job.faulty or kind == "random")
    if job.faulty and kind == "random":
        loader = DataLoader(dataset, shuffle=True, **options)
    else:
        with h5py.File(job.path("train.h5"), "r") as file:
            rows = file["images"].chunks[0]
        del options["batch_size"]
        loader = DataLoader(dataset, batch_sampler=ByChunk(count, rows), **options)
    draw.train(loader, epochs, seconds)


if __name__ == "__main__":
    main()
