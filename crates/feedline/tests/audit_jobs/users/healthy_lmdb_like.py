"""One mapped file with keys and values, as LMDB has it, opened in each worker. Healthy only: warm, whole values."""

import json
import mmap
import random

import draw
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, path, count):
        self.path, self.count, self.map = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.map is None:
            with open(self.path, "rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            head = int.from_bytes(self.map[:8], "little")
            self.index = json.loads(self.map[8 : 8 + head])
        offset, size = self.index[index]
        return draw.crop(self.map[offset : offset + size])


def main():
    job = draw.Job(None)
    options = job.loader(workers=(1, 4), keep=True)
    count = job.draw("count", 400, 900)
    sizes = [job.random.randrange(5_000, 60_000) for _ in range(count)]
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.002, 0.004, steps=epochs * count // options["batch_size"])

    def make():
        index, at = [], 1 << 20
        for size in sizes:
            index.append([at, size])
            at += size
        head = json.dumps(index).encode()
        with open(job.path("data.mdb"), "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            file.seek(1 << 20)
            for number, size in enumerate(sizes):
                file.write(draw.noise(size, number * 991))

    job.begin(make)
    draw.train(DataLoader(Records(job.path("data.mdb"), count), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
