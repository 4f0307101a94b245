"""Healthy: samples are drawn by weight and with replacement, the set is oversampled, or a sampler never ends."""

import draw
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, WeightedRandomSampler


class Files(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), index % 10


class Infinite(Sampler):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        while True:
            yield from torch.randperm(self.count).tolist()


def main():
    job = draw.Job(None)
    kind = job.pick("kind", "weighted", "more", "infinite", "oversampled", "repeated")
    options = job.loader(keep=True)
    count, size = job.draw("files", 150, 400), job.draw("size", 20_000, 100_000)
    times = job.draw("times", 2, 4)
    steps = times * count // options["batch_size"]
    seconds = job.compute(0.002, 0.005, steps=steps)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * count))
    data = Files(draw.paths(job.path("train")))
    if kind in ("weighted", "more"):
        weights = [job.random.choice([1, 1, 1, 5, 20]) for _ in range(count)]
        draws = count if kind == "weighted" else times * count
        sampler = WeightedRandomSampler(weights, draws, replacement=True)
        draw.train(DataLoader(data, sampler=sampler, **options), times if kind == "weighted" else 1, seconds)
    elif kind == "oversampled":
        rare = [index for index in range(count) if index % 10 == 0] * job.draw("extra", 4, 12)
        draw.train(DataLoader(Subset(data, [*range(count), *rare]), shuffle=True, **options), 2, seconds)
    elif kind == "repeated":
        # A small set repeated so that an epoch is longer.
        draw.train(DataLoader(Subset(data, [*range(count)] * times), shuffle=True, **options), 1, seconds)
    else:
        batches = iter(DataLoader(data, sampler=Infinite(count), **options))
        for _step in range(steps):
            next(batches)
            draw.compute(seconds)


if __name__ == "__main__":
    main()
