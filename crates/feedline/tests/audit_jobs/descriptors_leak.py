"""Finding: descriptors-leak (R19). Every access opens a file that is never closed.

A user keeps the handles of all files in a list, or maps each file and keeps the map. Healthy variant: a bounded number
of handles, of which the least recently used is closed.
"""

import collections
import os

import draw
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Handles(Dataset):
    def __init__(self, files, each, sample, most):
        self.files, self.each, self.sample, self.most = files, each, sample, most
        self.opened, self.last = collections.OrderedDict(), None

    def __len__(self):
        return len(self.files) * self.each

    def handle(self, path):
        if self.most is None:  # Every visit of a file opens it anew.
            if self.last != path or path not in self.opened:
                self.opened.setdefault(path, []).append(os.open(path, os.O_RDONLY))
                self.last = path
            return self.opened[path][-1]
        if path not in self.opened:
            self.opened[path] = os.open(path, os.O_RDONLY)
            if len(self.opened) > self.most:
                os.close(self.opened.popitem(last=False)[1])
        self.opened.move_to_end(path)
        return self.opened[path]

    def __getitem__(self, index):
        fd = self.handle(self.files[index // self.each])
        return draw.crop(os.pread(fd, self.sample, index % self.each * self.sample))


class FileByFile(Sampler):
    """Batches of one file each, in a new order of files in each epoch."""

    def __init__(self, files, each):
        self.files, self.each = files, each

    def __len__(self):
        return self.files

    def __iter__(self):
        for file in torch.randperm(self.files).tolist():
            yield [file * self.each + at for at in torch.randperm(self.each).tolist()]


def main():
    job = draw.Job("descriptors-leak", also_ok=draw.LIMITS)
    options = job.loader(workers=(1, 2), keep=True)
    options.pop("batch_size")
    files = job.draw("files", 220, 260) * options["num_workers"]
    each = job.params["batch"] = job.draw("samples", 3, 8)
    sample = job.draw("sample", 16_000, 40_000)
    most = job.draw("handles", 16, 64)
    epochs = job.set("epochs", 3)
    seconds = job.compute(0.0005, 0.001, slow=3, steps=epochs * files)
    job.begin(lambda: draw.write_files(job.path("train"), [each * sample] * files))
    dataset = Handles(draw.paths(job.path("train")), each, sample, None if job.faulty else most)
    draw.train(DataLoader(dataset, batch_sampler=FileByFile(files, each), **options), epochs, seconds)


if __name__ == "__main__":
    main()
