"""Finding: contents-kept-in-memory (R3). The data set keeps what it read: epochs 2 and later read nothing.

A user caches samples in a dict of the data set, and the workers are persistent; the storage is measured in epoch 1 only.
Healthy variant: the same loops read the files in every epoch, through the page cache.
"""

import random

import draw
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Cached(Dataset):
    """One worker, so that the dict holds the whole set after one epoch."""

    def __init__(self, files, keep):
        self.files, self.keep, self.cache = files, keep, {}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if index in self.cache:
            return draw.crop(self.cache[index])
        with open(self.files[index], "rb") as file:
            data = file.read()
        if self.keep:
            self.cache[index] = data
        return draw.crop(data)


class CachedShards(IterableDataset):
    """Every worker has shards of its own, and keeps them."""

    def __init__(self, files, sample, keep):
        self.files, self.sample, self.keep, self.cache, self.epoch = files, sample, keep, {}, 0

    def load(self, path):
        if path not in self.cache:
            with open(path, "rb") as file:
                data = file.read()
            if not self.keep:
                return data
            self.cache[path] = data
        return self.cache[path]

    def __iter__(self):
        info = get_worker_info()
        self.epoch += 1
        mine = self.files[info.id :: info.num_workers]
        random.Random(self.epoch).shuffle(mine)
        for path in mine:
            data = self.load(path)
            for at in range(0, len(data), self.sample):
                yield draw.crop(data[at : at + self.sample])


def main():
    job = draw.Job("contents-kept-in-memory", also_ok=draw.LIMITS)
    kind = job.pick("kind", "samples", "shards")
    options = job.loader(workers=(1, 1) if kind == "samples" else (2, 4), keep=True)
    files = job.draw("files", 200, 400) if kind == "samples" else options["num_workers"] * job.draw("shards", 4, 8)
    sample = job.draw("sample", 50_000, 120_000)
    size = sample if kind == "samples" else sample * job.draw("samples", 10, 20)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.002, 0.004, steps=epochs * files * size // sample // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    found = draw.paths(job.path("train"))
    if kind == "samples":
        loader = DataLoader(Cached(found, job.faulty), shuffle=True, **options)
    else:
        loader = DataLoader(CachedShards(found, sample, job.faulty), **options)
    draw.train(loader, epochs, seconds)


if __name__ == "__main__":
    main()
