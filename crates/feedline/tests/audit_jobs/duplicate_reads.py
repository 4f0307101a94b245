"""Finding: duplicate-reads (R8). Every worker, or every rank, reads the whole set in each epoch.

A user does not split an IterableDataset over its workers, or starts two ranks without a DistributedSampler. Healthy
variant: split by get_worker_info, or by a DistributedSampler that is given the epoch.
"""

import random

import draw
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, files, sample, split):
        self.files, self.sample, self.split, self.epoch = files, sample, split, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files)
        random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        if self.split:
            files = files[info.id :: info.num_workers]
        for path in files:
            with open(path, "rb") as file:
                data = file.read()
            for at in range(0, len(data), self.sample):
                yield draw.crop(data[at : at + self.sample])


class Images(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("duplicate-reads")
    kind = job.pick("kind", "workers", "workers", "ranks")
    if kind == "ranks":
        options = job.loader(workers=(1, 2), methods=("fork",), keep=True)
        files, size = job.draw("files", 120, 240), job.draw("size", 100_000, 400_000)
        sample = size
    else:
        options = job.loader(workers=(2, 4), keep=True)
        files = options["num_workers"] * job.draw("shards", 5, 10)
        sample = job.draw("sample", 20_000, 80_000)
        size = sample * job.draw("samples", 20, 40)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.0005, 0.002, slow=6, steps=epochs * files * size // sample // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    if kind == "ranks":
        rank = job.ranks(2)
        dataset = Images(draw.paths(job.path("train")))
        if job.faulty:
            draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)
        else:
            sampler = DistributedSampler(dataset, num_replicas=2, rank=rank)
            draw.train(DataLoader(dataset, sampler=sampler, **options), epochs, seconds, before=sampler.set_epoch)
    else:
        dataset = Stream(draw.paths(job.path("train")), sample, split=not job.faulty)
        draw.train(DataLoader(dataset, **options), epochs, seconds)


if __name__ == "__main__":
    main()
