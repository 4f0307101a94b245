"""Finding: read-ahead-amplification (R28). Small reads at random places of a cold file; the kernel reads much more.

A user draws records of a large file in each epoch and reads the header of a record before the record: the kernel takes
the second read for the start of a sequence. The file does not stay in the page cache (here it is evicted before each
epoch). Healthy variant: the same with POSIX_FADV_RANDOM.
"""

import os

import draw
from torch.utils.data import DataLoader, Dataset, RandomSampler


HEADER = 4096


class Ranges(Dataset):
    def __init__(self, path, count, sample, advise):
        self.path, self.count, self.sample, self.advise, self.fd = path, count, sample, advise, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
            if self.advise:
                os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_RANDOM)
        header = os.pread(self.fd, HEADER, index * self.sample)
        return draw.crop(header + os.pread(self.fd, self.sample - HEADER, index * self.sample + HEADER))


def main():
    job = draw.Job("read-ahead-amplification", also_ok=["storage-bound"], healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 1), batch=(8, 32), keep=True)
    megabytes = job.draw("megabytes", 160, 240)
    sample = job.draw("sample_kib", 8, 24) << 10
    visits = job.draw("visits", 500, 900)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.draw("compute", 0.0003, 0.001)
    count, path = (megabytes << 20) // sample, job.path("train.bin")
    job.also_ok.remove("served-from-page-cache")

    def make():
        draw.write_file(path, megabytes << 20)
        draw.evict([path], sync=True)

    job.begin(make)
    dataset = Ranges(path, count, sample, advise=not job.faulty)
    loader = DataLoader(dataset, sampler=RandomSampler(dataset, num_samples=visits), **options)
    draw.train(loader, epochs, seconds, before=lambda epoch: draw.evict([path]))


if __name__ == "__main__":
    main()
