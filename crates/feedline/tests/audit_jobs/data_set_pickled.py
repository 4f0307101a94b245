"""Finding: data-set-pickled (R13). The data set carries a huge list, which is pickled into every spawned worker.

A user keeps (path, caption, label) of every sample in a list of the data set. Healthy variant: the data set carries
the path of an index in numpy's format, and every worker maps it.
"""

import json

import draw
import numpy
from torch.utils.data import DataLoader, Dataset


class Listed(Dataset):
    def __init__(self, records, files):
        self.records, self.files = records, files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        caption, label = self.records[index]
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), label


class Indexed(Dataset):
    def __init__(self, index, files):
        self.index, self.files, self.records = index, files, None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.records is None:
            self.records = numpy.load(self.index, mmap_mode="r")
        label = int(self.records[index])
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), label


def main():
    job = draw.Job("data-set-pickled", also_ok=["workers-restarted"])
    options = job.loader(workers=(1, 2), methods=("spawn", "forkserver"), keep=True)
    records = job.draw("records", 250_000, 400_000)
    width = job.draw("caption", 80, 140)
    files = job.draw("files", 80, 160)
    size = job.draw("size", 100_000, 300_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.001, 0.003, steps=epochs * files // options["batch_size"])

    def make():
        draw.write_files(job.path("train"), [size] * files)
        with open(job.path("captions.json"), "w") as file:
            json.dump([[f"{number:08} ".ljust(width, "a"), number % 1000] for number in range(records)], file)
        numpy.save(job.path("labels.npy"), numpy.arange(records, dtype=numpy.int32) % 1000)

    job.begin(make)
    if job.faulty:
        with open(job.path("captions.json")) as file:
            dataset = Listed([tuple(record) for record in json.load(file)], draw.paths(job.path("train")))
    else:
        dataset = Indexed(job.path("labels.npy"), draw.paths(job.path("train")))
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
