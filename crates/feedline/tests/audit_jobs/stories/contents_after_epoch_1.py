"""Story: workers keep the contents of their shards, so epochs 2 and later read nothing while samples flow.

Healthy variant: the same loader reads its shards in every epoch.
"""

import random

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Kept(IterableDataset):
    def __init__(self, files, sample, keep):
        self.files, self.sample, self.keep, self.contents, self.epoch = files, sample, keep, {}, 0

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers]
        random.Random(self.epoch).shuffle(mine)
        self.epoch += 1
        for path in mine:
            data = self.contents.get(path)
            if data is None:
                with open(path, "rb") as file:
                    data = file.read()
                if self.keep:
                    self.contents[path] = data
            for at in range(0, len(data), self.sample):
                yield draw.crop(data[at : at + self.sample])


def main():
    # Every worker keeps its own shards in both variants, in a new order.
    job = draw.Job("contents-kept-in-memory", also_ok=["stale-shards", *draw.LIMITS], healthy_ok=["stale-shards"])
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    files = options["num_workers"] * job.draw("shards", 8, 12)
    sample, each = job.draw("sample", 40_000, 80_000), job.draw("samples", 8, 16)
    job.begin(lambda: draw.write_files(job.path("train"), [sample * each] * files))
    dataset = Kept(draw.paths(job.path("train")), sample, keep=job.faulty)
    draw.train(DataLoader(dataset, **options), 3, job.compute(0.001, 0.003, slow=4, steps=300))


if __name__ == "__main__":
    main()
