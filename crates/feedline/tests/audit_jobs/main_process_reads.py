"""Finding: main-process-reads (R15). The rank reads the contents and sends them to its workers.

A user's batch sampler reads the files and yields their bytes, and the workers only decode. Healthy variant: the rank
loads an index first, then the workers read the files.
"""

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Decode(Dataset):
    """An item is what the sampler yields: the bytes of a file, or its number."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, item):
        if isinstance(item, bytes):
            return draw.crop(item)
        with open(self.files[item], "rb") as file:
            return draw.crop(file.read())


class ReadingSampler:
    def __init__(self, files, batch, contents):
        self.files, self.batch, self.contents = files, batch, contents

    def __len__(self):
        return (len(self.files) + self.batch - 1) // self.batch

    def item(self, index):
        if not self.contents:
            return index
        with open(self.files[index], "rb") as file:
            return file.read()

    def __iter__(self):
        order = torch.randperm(len(self.files)).tolist()
        for at in range(0, len(order), self.batch):
            yield [self.item(index) for index in order[at : at + self.batch]]


def main():
    job = draw.Job("main-process-reads", also_ok=["no-overlap"])
    options = job.loader(keep=True)
    batch = options.pop("batch_size")
    files = job.draw("files", 120, 240)
    size = job.draw("size", 300_000, 600_000)
    index = job.draw("index_mb", 5, 30)
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.001, 0.003, slow=10, steps=epochs * files // batch)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        draw.write_file(job.path("index.bin"), index << 20)

    job.begin(make)
    found = draw.paths(job.path("train"))
    if not job.faulty:
        with open(job.path("index.bin"), "rb") as file:
            assert len(file.read()) == index << 20
    sampler = ReadingSampler(found, batch, contents=job.faulty)
    draw.train(DataLoader(Decode(found), batch_sampler=sampler, **options), epochs, seconds)


if __name__ == "__main__":
    main()
