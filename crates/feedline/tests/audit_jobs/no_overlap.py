"""Finding: no-overlap (R16). Without workers, the rank reads between the steps, and the device waits.

A user leaves `num_workers` at its default, 0, or loops over files. Healthy variant: the same with workers, or without
workers where the files are small and a step is long.
"""

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("no-overlap", also_ok=["storage-bound", "decode-bound"], healthy_ok=["storage-bound"])
    kind = job.pick("kind", "loader", "loop")
    sound = job.pick("healthy_kind", "workers", "small files")
    files = job.draw("files", 30, 50)
    size = job.draw("size", 1_500_000, 2_500_000)
    batch = job.draw("batch", 2, 4)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.draw("compute", 0.0005, 0.001)
    options = {"batch_size": batch}
    if not job.faulty:
        job.set("kind", sound)
        if sound == "small files":
            size, seconds = size // 100, job.set("compute", 16 * seconds)
        else:
            options.update(num_workers=2, persistent_workers=True)
            seconds = job.set("compute", 12 * seconds)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    dataset = Volumes(draw.paths(job.path("train")))
    if kind == "loop" and job.faulty:
        for _epoch in range(epochs):
            order = torch.randperm(files).tolist()
            for at in range(0, files, batch):
                torch.stack([dataset[index] for index in order[at : at + batch]])
                draw.compute(seconds)
    else:
        draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
