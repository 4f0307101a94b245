"""Finding: one-file-many-workers. Several workers read different places of one large file at once, past the page cache.

A user packs the whole set into one file, and each worker streams its part of it. Healthy variant: the same parts in a
file for each worker.
"""

import mmap
import os
import random

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Parts(IterableDataset):
    """Blocks of a worker's part, in a new order in each epoch."""

    def __init__(self, files, blocks, block):
        self.files, self.blocks, self.block, self.epoch = files, blocks, block, 0

    def __iter__(self):
        info = get_worker_info()
        order = list(range(self.blocks))
        random.Random(self.epoch).shuffle(order)
        self.epoch += 1
        one = len(self.files) == 1
        first = info.id * self.blocks if one else 0
        fd = os.open(self.files[0 if one else info.id], os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, self.block)
        for number in order:
            os.preadv(fd, [buffer], (first + number) * self.block)
            yield draw.crop(buffer[:2048])
        os.close(fd)


def main():
    own_parts = ["stale-shards", *draw.LIMITS]  # Each worker keeps its part, in both variants.
    job = draw.Job("one-file-many-workers", also_ok=own_parts, healthy_ok=own_parts)
    options = job.loader(workers=(2, 4), keep=True)
    workers = options["num_workers"]
    blocks = job.draw("blocks", 60, 100) // workers
    block = 4096 * job.draw("pages", 200, 300)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.0002, 0.0006)
    sizes = [workers * blocks * block] if job.faulty else [blocks * block] * workers
    job.also_ok.remove("served-from-page-cache")

    def make():
        draw.write_files(job.path("train"), sizes)
        draw.evict(draw.paths(job.path("train")), sync=True)

    job.begin(make)
    draw.train(DataLoader(Parts(draw.paths(job.path("train")), blocks, block), **options), epochs, seconds)


if __name__ == "__main__":
    main()
