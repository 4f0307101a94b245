"""Finding: storage-bound (R24). Workers wait for the device: large reads that no cache serves, and little compute.

A user reads with O_DIRECT, or a set that is much larger than the memory (here evicted before each epoch). Healthy
variant: the same reads behind a compute step that hides them.
"""

import mmap
import os

import draw
from torch.utils.data import DataLoader, Dataset


class Direct(Dataset):
    def __init__(self, files, size, direct):
        self.files, self.size, self.direct, self.buffer = files, size, direct, None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.buffer is None:
            self.buffer = mmap.mmap(-1, self.size)
        fd = os.open(self.files[index], os.O_RDONLY | (os.O_DIRECT if self.direct else 0))
        os.preadv(fd, [self.buffer], 0)
        os.close(fd)
        return draw.crop(self.buffer[:4096])


def main():
    job = draw.Job("storage-bound", also_ok=["convoy"], healthy_ok=["storage-bound"])
    direct = job.pick("direct", True, False)
    options = job.loader(workers=(1, 4), keep=True)
    files = job.draw("files", 40, 60)
    size = 4096 * job.draw("pages", 350, 500)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.draw("compute", 0.0002, 0.0006)
    if not job.faulty:
        seconds = job.set("compute", options["batch_size"] * 0.008)
    job.also_ok.remove("served-from-page-cache")
    folder = job.path("train")

    def make():
        draw.write_files(folder, [size] * files)
        draw.evict(draw.paths(folder), sync=True)

    job.begin(make)
    found = draw.paths(folder)
    before = None if direct else lambda epoch: draw.evict(found)
    draw.train(DataLoader(Direct(found, size, direct), shuffle=True, **options), epochs, seconds, before)


if __name__ == "__main__":
    main()
