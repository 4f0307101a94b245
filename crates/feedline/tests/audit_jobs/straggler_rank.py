"""Finding: straggler-rank (P28). Of two ranks that meet after each step, one waits for its input, the other for it.

A user's second host has a slower mount (emulated by sleeping), or larger files. Healthy variant: two equal ranks.
"""

import time

import draw
import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files, latency):
        self.files, self.latency = files, latency

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            data = file.read()
        time.sleep(self.latency)
        return draw.crop(data)


def main():
    job = draw.Job("straggler-rank", also_ok=draw.LIMITS)
    kind = job.pick("kind", "latency", "size")
    options = job.loader(workers=(1, 2), batch=(4, 8), methods=("fork",), keep=True)
    files = job.draw("files", 100, 140)
    size = job.draw("size", 100_000, 200_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.008, 0.012)
    latency = job.draw("latency", 0.006, 0.009) if job.faulty and kind == "latency" else 0.0005
    large = size * 8 if kind == "size" and job.faulty else size

    def make():
        draw.write_files(job.path("rank0"), [size] * files)
        draw.write_files(job.path("rank1"), [large] * files)

    job.begin(make)
    rank = job.ranks(2)
    meeting = "file://" + job.path("meeting")
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    slow = latency if rank == 1 else 0.0005
    if rank == 1 and kind == "size" and job.faulty:
        slow = 0.005
    loader = DataLoader(Images(draw.paths(job.path(f"rank{rank}")), slow), shuffle=True, **options)
    for _epoch in range(epochs):
        for _batch in loader:
            draw.compute(seconds)
            torch.distributed.all_reduce(torch.ones(8))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
