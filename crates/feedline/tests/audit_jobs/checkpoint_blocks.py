"""Finding: checkpoint-blocks (R26). The rank writes and syncs a large checkpoint every few steps, and training waits.

A user calls a save function inside the loop. Healthy variant: a thread writes a snapshot aside, or only a log and a
small file are written.
"""

import os
import threading

import draw
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


def save(path, weights):
    with open(path + ".tmp", "wb") as file:
        for at in range(0, len(weights), 4 << 20):
            file.write(weights[at : at + (4 << 20)])
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def main():
    job = draw.Job("checkpoint-blocks")
    sound = job.pick("healthy_kind", "thread", "log")
    options = job.loader(workers=(1, 3), keep=True)
    files = job.draw("files", 160, 240)
    size = job.draw("size", 50_000, 200_000)
    weights = draw.noise(job.draw("checkpoint_mb", 16, 32) << 20)
    every = job.draw("every", 8, 16)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.004, 0.008)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    loader = DataLoader(Images(draw.paths(job.path("train"))), shuffle=True, **options)
    step, writer = 0, None
    log = open(job.path("train.log"), "w")
    for epoch in range(epochs):
        for _batch in loader:
            draw.compute(seconds)
            step += 1
            log.write(f"epoch {epoch} step {step}\n")
            log.flush()
            if step % every:
                continue
            if job.faulty:
                save(job.path("weights.ckpt"), weights)
            elif sound == "log":
                save(job.path("state.ckpt"), weights[:1000]) if step % (4 * every) == 0 else None
            elif writer is None or not writer.is_alive():
                writer = threading.Thread(target=save, args=(job.path("weights.ckpt"), weights[: 8 << 20]))
                writer.start()
    if writer:
        writer.join()


if __name__ == "__main__":
    main()
