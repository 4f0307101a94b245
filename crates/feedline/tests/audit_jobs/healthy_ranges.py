"""Healthy: samples are ranges of one large npy file, which each worker opens once and reads with pread."""

import os

import draw
import numpy
from torch.utils.data import DataLoader, Dataset


class Ranges(Dataset):
    def __init__(self, path, count, sample, head):
        self.path, self.count, self.sample, self.head, self.fd = path, count, sample, head, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
        return draw.crop(os.pread(self.fd, self.sample, self.head + index * self.sample))


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(keep=True)
    count = job.draw("samples", 300, 500)
    sample = job.draw("sample", 60_000, 130_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, slow=4, steps=epochs * count // options["batch_size"])
    path = job.path("train.npy")

    def make():
        numpy.save(path, numpy.frombuffer(draw.noise(count * sample), numpy.uint8).reshape(count, sample))

    job.begin(make)
    head = os.path.getsize(path) - count * sample
    draw.train(DataLoader(Ranges(path, count, sample, head), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
