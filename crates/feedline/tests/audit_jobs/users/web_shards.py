"""Tar shards streamed as webdataset does, with a buffer that shuffles in memory.

Fault: the split over the workers was forgotten, so each worker streams all shards. Healthy: shards are split, always in
the same order, and the samples are shuffled in memory.
"""

import io
import os
import random
import tarfile

import draw
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def stream(path):
    """(name, bytes) of the members, read from front to back."""
    with open(path, "rb", buffering=1 << 20) as file, tarfile.open(fileobj=file, mode="r|") as tar:
        for member in tar:
            yield member.name, tar.extractfile(member).read()


def shuffled(samples, size, rng):
    buffer = []
    for sample in samples:
        if len(buffer) < size:
            buffer.append(sample)
            continue
        at = rng.randrange(size)
        buffer[at], sample = sample, buffer[at]
        yield sample
    rng.shuffle(buffer)
    yield from buffer


class WebShards(IterableDataset):
    def __init__(self, urls, split, buffer):
        self.urls, self.split, self.buffer = urls, split, buffer

    def __iter__(self):
        info = get_worker_info()
        urls = self.urls[info.id :: info.num_workers] if self.split else self.urls
        samples = (data for url in urls for _name, data in stream(url))
        rng = random.Random(torch.initial_seed())
        for data in shuffled(samples, self.buffer, rng):
            yield draw.crop(data), int(data[5])


def main():
    job = draw.Job("duplicate-reads", also_ok=draw.LIMITS)
    options = job.loader(workers=(2, 4))
    shards = options["num_workers"] * job.draw("shards", 3, 6)
    each, size = job.draw("each", 15, 30), job.draw("size", 20_000, 60_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, steps=epochs * shards * each // options["batch_size"])

    def make():
        os.makedirs(job.path("shards"))
        for number in range(shards):
            with tarfile.open(job.path("shards", f"{number:04}.tar"), "w") as tar:
                for at in range(each):
                    member = tarfile.TarInfo(f"{number:04}{at:05}.jpg")
                    member.size = size
                    tar.addfile(member, io.BytesIO(draw.noise(size, number * 131071 + at * 997)))

    job.begin(make)
    dataset = WebShards(draw.paths(job.path("shards")), not job.faulty, job.draw("buffer", 20, 80))
    draw.train(DataLoader(dataset, **options), epochs, seconds)


if __name__ == "__main__":
    main()
