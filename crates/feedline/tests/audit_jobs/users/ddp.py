"""torchrun with two ranks, a DistributedSampler and a validation loader.

Fault (drawn): set_epoch was forgotten. Healthy: set_epoch is called.
"""

import os
import sys

import draw
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler


class Files(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), index % 10


def main():
    job = draw.Job("order-never-changes", also_ok=[*draw.LIMITS, "straggler-rank"], healthy_ok=["straggler-rank"])
    options = job.loader(workers=(1, 2), methods=("fork",), keep=True)
    count, size = job.draw("files", 200, 400), job.draw("size", 20_000, 120_000)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.003, 0.006, steps=epochs * count // options["batch_size"] // 2)

    def make():
        draw.write_files(job.path("train"), [size] * count)
        draw.write_files(job.path("val"), [size] * (count // 5))

    job.begin(make)
    if "RANK" not in os.environ:
        command = ["torchrun", "--standalone", "--nproc_per_node=2", "--redirects", "1", "--tee", "1", *sys.argv]
        os.execvp(command[0], command)
    torch.distributed.init_process_group("gloo")
    data = Files(draw.paths(job.path("train")))
    sampler = DistributedSampler(data, shuffle=True)
    train = DataLoader(data, sampler=sampler, pin_memory=False, **options)
    held = Files(draw.paths(job.path("val")))
    val = DataLoader(held, sampler=SequentialSampler(held), **options)
    total = torch.zeros(1)
    for epoch in range(epochs):
        if not job.faulty:
            sampler.set_epoch(epoch)
        for step, _batch in enumerate(train):
            draw.compute(seconds)
            if step % 4 == 3:
                torch.distributed.all_reduce(total)
        with torch.no_grad():
            for _batch in val:
                draw.compute(seconds / 3)
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            torch.save({"epoch": epoch, "weights": torch.zeros(10_000)}, job.path("last.pt"))


if __name__ == "__main__":
    main()
