"""Finding: random-where-sequential (P12). A pass over a whole file in small direct reads, in random order.

A user shuffles a set of which every byte is needed anyway, past the page cache. Healthy variant: blocks of 1 MiB in
random order, with the samples of a block one after the other.
"""

import mmap
import os

import draw
from torch.utils.data import DataLoader, Dataset


class Direct(Dataset):
    def __init__(self, path, count, size):
        self.path, self.count, self.size, self.fd = path, count, size, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            self.buffer = mmap.mmap(-1, self.size)
        os.preadv(self.fd, [self.buffer], index * self.size)
        return draw.crop(self.buffer[:2048])


def main():
    job = draw.Job("random-where-sequential", also_ok=["storage-bound", "convoy"], healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 1), batch=(16, 48), keep=True)
    megabytes = job.draw("megabytes", 50, 80)
    sample = job.pick("sample_kib", 8, 16, 32) << 10
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.0002, 0.0005)
    job.also_ok.remove("served-from-page-cache")
    if not job.faulty:
        sample = 1 << 20
        options["batch_size"] = 2
    path = job.path("train.bin")

    def make():
        draw.write_file(path, megabytes << 20)
        draw.evict([path], sync=True)

    job.begin(make)
    dataset = Direct(path, (megabytes << 20) // sample, sample)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
