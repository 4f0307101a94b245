"""Finding: stale-shards. The rank reshuffles the list of files, but its persistent workers keep the list of epoch 1.

A user assigns `dataset.files` before each epoch; the copies in the workers do not change, and every worker reads the
same files in all epochs. Healthy variant: the workers derive the list from the epoch themselves.
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
                data = file.read()
            for at in range(0, len(data), self.sample):
                yield draw.crop(data[at : at + self.sample])


def main():
    job = draw.Job("stale-shards", also_ok=["order-never-changes", *draw.LIMITS])
    options = job.loader(workers=(2, 4), keep=True)
    files = options["num_workers"] * job.draw("shards", 10, 15)
    sample = job.draw("sample", 40_000, 80_000)
    each = job.draw("samples", 12, 24)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.001, 0.002, slow=4, steps=epochs * files * each // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [sample * each] * files))
    dataset = Shards(draw.paths(job.path("train")), sample, derive=not job.faulty)
    loader = DataLoader(dataset, **options)

    def reshuffle(epoch):
        random.Random(epoch).shuffle(dataset.files)

    draw.train(loader, epochs, seconds, before=reshuffle if job.faulty else None)


if __name__ == "__main__":
    main()
