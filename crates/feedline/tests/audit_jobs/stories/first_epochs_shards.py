"""Story: the rank assigns new shards before each epoch, but persistent workers keep those of the first one.

Healthy variant: the workers derive the shards from the epoch.
"""

import random

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, files, sample, derive):
        self.files, self.sample, self.derive, self.epoch = files, sample, derive, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files)
        if self.derive:
            random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        for path in files[info.id :: info.num_workers]:
            with open(path, "rb") as file:
                while data := file.read(self.sample):
                    yield draw.crop(data)


def main():
    job = draw.Job("stale-shards", also_ok=["order-never-changes", *draw.LIMITS])
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    files = options["num_workers"] * job.draw("shards", 10, 15)
    sample, each = job.draw("sample", 30_000, 60_000), job.draw("samples", 8, 16)
    job.begin(lambda: draw.write_files(job.path("train"), [sample * each] * files))
    dataset = Shards(draw.paths(job.path("train")), sample, derive=not job.faulty)

    def assign(epoch):
        random.Random(epoch).shuffle(dataset.files)

    seconds = job.compute(0.001, 0.002, slow=4, steps=300)
    draw.train(DataLoader(dataset, **options), 4, seconds, before=assign if job.faulty else None)


if __name__ == "__main__":
    main()
