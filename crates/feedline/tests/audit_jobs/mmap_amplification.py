"""Finding: mmap-amplification (R27). Few small samples at random places of a mapped, cold file; read-ahead brings it all.

A user opens the set with `numpy.memmap` and draws a part of it in each epoch. Healthy variants: the map is read in large
samples, all of them, in order or not; or small samples are drawn, and the kernel is told not to read ahead.
"""

import mmap

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler


class Mapped(Dataset):
    def __init__(self, path, count, sample, advised):
        self.path, self.count, self.sample, self.data = path, count, sample, None
        self.advised = advised

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.data is None:
            self.data = numpy.memmap(self.path, numpy.uint8, "r", shape=(self.count, self.sample))
            if self.advised:
                self.data._mmap.madvise(mmap.MADV_RANDOM)
        row = self.data[index]
        return torch.from_numpy(numpy.array(row[:2048])), int(row[::4096].sum())


def main():
    job = draw.Job("mmap-amplification", also_ok=["storage-bound", "decode-bound"], healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 2), methods=("fork",), keep=True)
    megabytes = job.draw("megabytes", 110, 140)
    sample = job.draw("sample_kib", 2, 4) << 10
    visits = job.draw("visits", 100, 200)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.0005, 0.001, slow=10)
    kind = "drawn" if job.faulty else job.pick("healthy", "in order", "shuffled", "advised")
    if kind in ("in order", "shuffled"):
        sample = 1 << 20
    count, path = (megabytes << 20) // sample, job.path("train.bin")

    def make():
        draw.write_file(path, megabytes << 20)
        draw.evict([path], sync=True)

    job.begin(make)
    dataset = Mapped(path, count, sample, advised=kind == "advised")
    if kind == "advised":
        visits *= 10
    if kind in ("drawn", "advised"):
        loader = DataLoader(dataset, sampler=RandomSampler(dataset, num_samples=visits), **options)
    else:
        loader = DataLoader(dataset, shuffle=kind == "shuffled", **options)
    draw.train(loader, epochs, seconds)


if __name__ == "__main__":
    main()
