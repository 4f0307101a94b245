"""Finding: uneven-workers (R18). One worker has most of the samples, and the others have nothing to do.

A user gives every worker whole shards whose sizes differ much. Healthy variant: as many samples per worker, from shards
of nearly one size.
"""

import random

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, files, sample):
        self.files, self.sample, self.epoch = files, sample, 0

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers]
        random.Random(self.epoch).shuffle(mine)
        self.epoch += 1
        for path in mine:
            with open(path, "rb") as file:
                while data := file.read(self.sample):
                    yield draw.crop(data)


def main():
    job = draw.Job("uneven-workers", also_ok=["decode-bound", "storage-bound"])
    options = job.loader(workers=(2, 4), batch=(16, 32), keep=True)
    workers, batch = options["num_workers"], options["batch_size"]
    rounds = job.draw("shards_per_worker", 3, 5)
    short = batch * job.draw("batches_per_shard", 4, 6)
    times = job.draw("times", 4, 7)
    sample = job.draw("sample", 20_000, 40_000)
    epochs = job.draw("epochs", 2, 3)
    # The first worker has the long shards. Healthy: the same number of samples, in equal shards but for a few samples.
    samples = [short * times if shard % workers == 0 else short for shard in range(rounds * workers)]
    if not job.faulty:
        samples = [sum(samples) // len(samples) + job.random.randint(0, batch // 2) for _ in samples]
    most = 130_000_000 // sum(samples)
    sample = job.set("sample", min(sample, most))
    seconds = job.compute(0.0003, 0.0008, steps=epochs * sum(samples) // batch)
    job.begin(lambda: draw.write_files(job.path("train"), [count * sample for count in samples]))
    draw.train(DataLoader(Shards(draw.paths(job.path("train")), sample), **options), epochs, seconds)


if __name__ == "__main__":
    main()
