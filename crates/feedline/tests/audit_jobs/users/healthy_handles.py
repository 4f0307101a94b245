"""Healthy: samples lie in shards with an index, and each worker keeps the handles of the shards that it used last."""

import functools
import os

import draw
from torch.utils.data import DataLoader, Dataset, Sampler


@functools.lru_cache(maxsize=16)
def handle(path):
    return open(path, "rb", buffering=0)


class Sharded(Dataset):
    def __init__(self, shards, each, size):
        self.shards, self.each, self.size = shards, each, size

    def __len__(self):
        return len(self.shards) * self.each

    def __getitem__(self, index):
        file = handle(self.shards[index // self.each])
        return draw.crop(os.pread(file.fileno(), self.size, index % self.each * self.size))


class Near(Sampler):
    """Shards in a new order, and the samples of a few of them mixed."""

    def __init__(self, shards, each, mixed, rng):
        self.shards, self.each, self.mixed, self.rng = shards, each, mixed, rng

    def __len__(self):
        return self.shards * self.each

    def __iter__(self):
        shards = list(range(self.shards))
        self.rng.shuffle(shards)
        for at in range(0, self.shards, self.mixed):
            order = [shard * self.each + one for shard in shards[at : at + self.mixed] for one in range(self.each)]
            self.rng.shuffle(order)
            yield from order


def main():
    job = draw.Job(None)
    options = job.loader(keep=True)
    shards, each, size = job.draw("shards", 10, 60), job.draw("each", 15, 40), job.draw("size", 10_000, 60_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, steps=epochs * shards * each // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("shards"), [each * size] * shards))
    dataset = Sharded(draw.paths(job.path("shards")), each, size)
    sampler = Near(shards, each, job.draw("mixed", 4, 8), job.random)
    draw.train(DataLoader(dataset, sampler=sampler, **options), epochs, seconds)


if __name__ == "__main__":
    main()
