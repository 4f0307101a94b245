"""Finding: serialised-reads (R23). A lock lets one worker read at a time.

A user guards a library that is thought not to be safe with a `multiprocessing.Lock`. Healthy variant: the same reads
without the lock.
"""

import contextlib
import mmap
import multiprocessing
import os

import draw
from torch.utils.data import DataLoader, Dataset


class Guarded(Dataset):
    def __init__(self, files, size, direct, lock):
        self.files, self.size, self.direct, self.lock, self.buffer = files, size, direct, lock, None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.buffer is None:
            self.buffer = mmap.mmap(-1, self.size)
        with self.lock or contextlib.nullcontext():
            fd = os.open(self.files[index], os.O_RDONLY | (os.O_DIRECT if self.direct else 0))
            os.preadv(fd, [self.buffer], 0)
            os.close(fd)
        return draw.crop(self.buffer[:4096])


def main():
    job = draw.Job("serialised-reads", also_ok=["storage-bound"], healthy_ok=draw.LIMITS)
    direct = job.pick("direct", True, True, False)
    options = job.loader(workers=(2, 4), keep=True)
    files = job.draw("files", 40, 60)
    size = 4096 * job.draw("pages", 350, 500)
    epochs = job.draw("epochs", 3, 4) * (1 if direct else 2)
    seconds = job.draw("compute", 0.0002, 0.0006)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        if direct:
            draw.evict(draw.paths(job.path("train")), sync=True)

    job.begin(make)
    lock = multiprocessing.get_context(options["multiprocessing_context"]).Lock() if job.faulty else None
    dataset = Guarded(draw.paths(job.path("train")), size, direct, lock)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
