"""torchrun with two ranks.

Fault: no DistributedSampler, so each rank goes through the whole set. Healthy: the set is divided by rank.
"""

import os
import sys

import draw
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), index % 10


def main():
    job = draw.Job("duplicate-reads", also_ok=[*draw.LIMITS, "straggler-rank"], healthy_ok=["straggler-rank"])
    options = job.loader(workers=(1, 2), methods=("fork",), keep=True)
    count, size = job.draw("files", 200, 400), job.draw("size", 20_000, 120_000)
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.003, 0.006, steps=epochs * count // options["batch_size"])

    def make():
        draw.write_files(job.path("train"), [size] * count)
        draw.write_files(job.path("val"), [size] * (count // 3))

    job.begin(make)
    if "RANK" not in os.environ:
        command = ["torchrun", "--standalone", "--nproc_per_node=2", "--redirects", "1", "--tee", "1", *sys.argv]
        os.execvp(command[0], command)
    torch.distributed.init_process_group("gloo")
    data = Files(draw.paths(job.path("train")))
    sampler = None if job.faulty else DistributedSampler(data)
    train = DataLoader(data, shuffle=sampler is None, sampler=sampler, **options)
    val = DataLoader(Files(draw.paths(job.path("val"))), **options)
    for epoch in range(epochs):
        if sampler:
            sampler.set_epoch(epoch)
        for _batch in train:
            draw.compute(seconds)
        for _batch in val:
            draw.compute(seconds / 3)
        torch.distributed.barrier()


if __name__ == "__main__":
    main()
