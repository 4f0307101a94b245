"""Finding: shared-memory-full (R25). Batches that wait to be taken nearly fill a small /dev/shm, as in a container.

A user raises the prefetch in a container with the usual 64 MiB. Healthy variant: there is room for all batches. Needs
root, for a /dev/shm of its own.
"""

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files, width):
        self.files, self.width = files, width

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            data = bytearray(file.read().ljust(self.width))
        return torch.frombuffer(data, dtype=torch.uint8)[: self.width].clone()


def main():
    job = draw.Job("shared-memory-full", also_ok=draw.LIMITS)
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    width = job.draw("width", 200_000, 400_000)
    waiting = options["num_workers"] * options["prefetch_factor"]
    pending = waiting * options["batch_size"] * width
    room = job.draw("room", 1.02, 1.12) if job.faulty else job.draw("room", 2.5, 4.0)
    # The batch that is trained on is in there as well.
    size = int(room * (pending + options["batch_size"] * width)) + (2 << 20)
    files = options["batch_size"] * waiting * 4
    job.within = draw.in_namespace(f"mount -t tmpfs -o size={size} tmpfs /dev/shm")
    job.begin(lambda: draw.write_files(job.path("train"), [width // 4] * files))
    loader = DataLoader(Images(draw.paths(job.path("train")), width), shuffle=True, **options)
    draw.train(loader, 2, job.set("compute", 2.0 / (4 * waiting)))


if __name__ == "__main__":
    main()
