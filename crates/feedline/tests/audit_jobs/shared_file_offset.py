"""Finding: shared-file-offset (R9). Forked workers seek and read on one handle that the data set opened before the fork.

A user opens the file in `__init__`; samples get mixed up. Healthy variant: the same inherited handle with pread, or a
handle that every worker opens itself.
"""

import os

import draw
from torch.utils.data import DataLoader, Dataset


class OneFile(Dataset):
    def __init__(self, path, count, sample, how):
        self.path, self.count, self.sample, self.how = path, count, sample, how
        self.file = None if how == "own" else open(path, "rb", buffering=-1 if how == "buffered" else 0)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        at = index * self.sample
        if self.how == "pread":
            return draw.crop(os.pread(self.file.fileno(), self.sample, at))
        if self.how == "descriptor":
            os.lseek(self.file.fileno(), at, os.SEEK_SET)
            return draw.crop(os.read(self.file.fileno(), self.sample))
        self.file.seek(at)
        return draw.crop(self.file.read(self.sample))


def main():
    job = draw.Job("shared-file-offset", also_ok=draw.LIMITS)
    how = job.pick("how", "buffered", "unbuffered", "descriptor")
    sound = job.pick("healthy_how", "pread", "own")
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    count = job.draw("samples", 800, 1600)
    sample = job.draw("sample", 20_000, 60_000)
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.001, 0.003, slow=4, steps=epochs * count // options["batch_size"])
    # A footer as long as some samples: a handle that another worker moved does not end in a short read.
    job.begin(lambda: draw.write_file(job.path("train.bin"), (count + 8) * sample))
    dataset = OneFile(job.path("train.bin"), count, sample, how if job.faulty else job.set("how", sound))
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
