"""Windows of tokens at random offsets of one large file, as for language models.

Fault: the generator of the data set has a fixed seed and is copied into each worker, so all workers read the same
windows. Healthy: each worker seeds its own.
"""

import os

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Windows(Dataset):
    """The index is only a count."""

    def __init__(self, path, window, per_epoch, fixed):
        self.path, self.window, self.per_epoch, self.fixed, self.fd = path, window, per_epoch, fixed, None
        self.rng = numpy.random.default_rng(1234)

    def __len__(self):
        return self.per_epoch

    def take(self):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
            self.tokens = os.fstat(self.fd).st_size // 2
            if not self.fixed:
                self.rng = numpy.random.default_rng([1234, get_worker_info().id])
        at = int(self.rng.integers(0, self.tokens - self.window - 1))
        data = numpy.frombuffer(os.pread(self.fd, 2 * self.window + 2, 2 * at), numpy.uint16).astype("int64")
        return torch.from_numpy(data[:-1]), torch.from_numpy(data[1:])

    def __getitem__(self, index):
        return self.take()


class Stream(IterableDataset):
    def __init__(self, windows):
        self.windows = windows

    def __iter__(self):
        for _ in range(len(self.windows) // get_worker_info().num_workers):
            yield self.windows.take()


def main():
    job = draw.Job("duplicate-reads", also_ok=["one-file-many-workers", *draw.LIMITS])
    kind = job.pick("kind", "map", "stream")
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    window = job.pick("window", 512, 1024, 2048)
    count = job.draw("count", 1000, 3000)
    size = job.draw("mb", 8, 60) << 20
    epochs = job.draw("epochs", 1, 3)
    seconds = job.compute(0.002, 0.004, steps=epochs * count // options["batch_size"])
    job.begin(lambda: draw.write_file(job.path("train.bin"), size))
    data = Windows(job.path("train.bin"), window, count, job.faulty)
    draw.train(DataLoader(data if kind == "map" else Stream(data), **options), epochs, seconds)


if __name__ == "__main__":
    main()
