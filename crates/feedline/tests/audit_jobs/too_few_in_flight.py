"""Finding: too-few-in-flight (R23). One or two workers wait for one small read each; the storage could answer many.

A user reads past the page cache with few workers; a checkpoint that is read at the start shows what the storage can
deliver. Healthy variant: the same reads behind a compute step that hides them.
"""

import mmap
import os

import draw
from torch.utils.data import DataLoader, Dataset


def read(path, buffer):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    at = 0
    while got := os.preadv(fd, [buffer], at):
        at += got
    os.close(fd)


class Direct(Dataset):
    def __init__(self, files, size):
        self.files, self.size, self.buffer = files, size, None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.buffer is None:
            self.buffer = mmap.mmap(-1, self.size)
        fd = os.open(self.files[index], os.O_RDONLY | os.O_DIRECT)
        os.preadv(fd, [self.buffer], 0)
        os.close(fd)
        return draw.crop(self.buffer[:2048])


def main():
    job = draw.Job("too-few-in-flight", also_ok=["convoy"], healthy_ok=draw.LIMITS + ["too-few-in-flight"])
    job.also_ok.remove("served-from-page-cache")
    options = job.loader(workers=(1, 2), keep=True)
    files, size = job.draw("files", 600, 1000), 4096 * job.draw("pages", 16, 28)
    seconds = job.draw("compute", 0.0001, 0.0002)
    if not job.faulty:
        seconds = job.set("compute", options["batch_size"] * 0.003)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        draw.write_file(job.path("start.ckpt"), 600 << 20)
        draw.evict([*draw.paths(job.path("train")), job.path("start.ckpt")], sync=True)

    job.begin(make)
    read(job.path("start.ckpt"), mmap.mmap(-1, 8 << 20))
    draw.train(DataLoader(Direct(draw.paths(job.path("train")), size), shuffle=True, **options), 3, seconds)


if __name__ == "__main__":
    main()
