"""Finding: order-never-changes (R10). Every epoch visits the samples in the same shuffled order.

A user forgets `set_epoch`, or seeds the shuffle equally in each epoch. Healthy variant: `set_epoch`, one generator that
continues from epoch to epoch, or a seed with the epoch in it.
"""

import os
import random

import draw
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler


class Images(Dataset):
    """Whole files, or ranges of one file."""

    def __init__(self, files, sample=None, count=None):
        self.files, self.sample, self.count, self.fd = files, sample, count, None

    def __len__(self):
        return self.count or len(self.files)

    def __getitem__(self, index):
        if self.sample:
            if self.fd is None:
                self.fd = os.open(self.files[0], os.O_RDONLY)
            return draw.crop(os.pread(self.fd, self.sample, index * self.sample))
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


class Seeded(Sampler):
    def __init__(self, count, fixed):
        self.count, self.fixed, self.epoch = count, fixed, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        order = list(range(self.count))
        random.Random(42 if self.fixed else 42 + self.epoch).shuffle(order)
        self.epoch += 1
        return iter(order)


def main():
    job = draw.Job("order-never-changes", also_ok=draw.LIMITS)
    kind = job.pick("kind", "distributed", "generator", "seeded")
    layout = job.pick("layout", "files", "files", "ranges")
    options = job.loader(keep=True)
    count = job.draw("samples", 240, 480)
    size = job.draw("size", 30_000, 150_000)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.001, 0.003, slow=3, steps=epochs * count // options["batch_size"])

    def make():
        draw.write_files(job.path("train"), [size * count] if layout == "ranges" else [size] * count)

    job.begin(make)
    found = draw.paths(job.path("train"))
    dataset = Images(found, size, count) if layout == "ranges" else Images(found)
    before = None
    if kind == "distributed":
        sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
        before = None if job.faulty else sampler.set_epoch
    elif kind == "generator":
        generator = torch.Generator()
        sampler = RandomSampler(dataset, generator=generator)
        before = (lambda epoch: generator.manual_seed(0)) if job.faulty else None
    else:
        sampler = Seeded(count, job.faulty)
    draw.train(DataLoader(dataset, sampler=sampler, **options), epochs, seconds, before)


if __name__ == "__main__":
    main()
