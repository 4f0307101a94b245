"""A map-style data set with a dict of samples, and several persistent workers.

Fault: each worker keeps every sample that it has read. Epoch by epoch less is read, because the sampler gives a sample
to another worker in the next epoch. Healthy: a bounded cache that holds only the last few files.
"""

import functools

import draw
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self, files, most):
        self.files, self.read = files, functools.lru_cache(maxsize=most)(read)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return draw.crop(self.read(self.files[index]))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    job = draw.Job("contents-kept-in-memory", also_ok=draw.LIMITS)
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    count, size = job.draw("files", 200, 500), job.draw("size", 20_000, 100_000)
    epochs = job.draw("epochs", 3, 6)
    seconds = job.compute(0.002, 0.004, steps=epochs * count // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [size] * count))
    dataset = Cached(draw.paths(job.path("train")), None if job.faulty else 8)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
