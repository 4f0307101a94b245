"""The model is saved after each epoch.

Fault: the training process writes and flushes it, with all states of the optimizer. Healthy: a thread does so, or it is
small.
"""

import io
import os
import threading

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), index % 10


def save(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with open(path, "wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def main():
    job = draw.Job("checkpoint-blocks", also_ok=draw.LIMITS)
    kind = job.pick("kind", "torch", "thread", "small")
    options = job.loader(workers=(1, 3), methods=("fork",), keep=True)
    count, size = job.draw("files", 100, 200), job.draw("size", 20_000, 120_000)
    epochs, megabytes = job.draw("epochs", 3, 4), job.draw("megabytes", 100, 200)
    seconds = job.set("compute", 0.5 * options["batch_size"] / count)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * count))
    state = {"weights": torch.zeros(megabytes << 18)}
    small = {"weights": torch.zeros(1 << 18)}
    loader = DataLoader(Files(draw.paths(job.path("train"))), shuffle=True, **options)
    writer = None
    for epoch in range(epochs):
        for _batch in loader:
            draw.compute(seconds)
        path = job.path(f"epoch{epoch}.pt")
        if job.faulty and kind == "torch":
            with open(path, "wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())
        elif job.faulty:
            save(state, path)
        elif kind == "thread":
            if writer:
                writer.join()
            writer = threading.Thread(target=save, args=(state, path))
            writer.start()
        else:
            torch.save(small, path)
    if writer:
        writer.join()


if __name__ == "__main__":
    main()
