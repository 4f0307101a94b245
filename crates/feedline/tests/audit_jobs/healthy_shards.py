"""Healthy: shards of an IterableDataset, split over the workers, in an order that depends on the epoch."""

import random

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, files, sample):
        self.files, self.sample, self.epoch = files, sample, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files)
        random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        for path in files[info.id :: info.num_workers]:
            with open(path, "rb") as file:
                while data := file.read(self.sample):
                    yield draw.crop(data)


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(keep=True)
    files = options["num_workers"] * job.draw("shards", 8, 14)
    each = job.draw("samples", 10, 20)
    sample = job.draw("sample", 30_000, 90_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, slow=3, steps=epochs * files * each // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [sample * each] * files))
    draw.train(DataLoader(Shards(draw.paths(job.path("train")), sample), **options), epochs, seconds)


if __name__ == "__main__":
    main()
