"""Healthy: evaluations. Several checkpoints are compared on the same set, in its order, without gradients."""

import json
import os

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


def main():
    job = draw.Job(None)
    options = job.loader(keep=True)
    count, size = job.draw("files", 150, 400), job.draw("size", 20_000, 100_000)
    models = job.draw("models", 1, 4)
    seconds = job.compute(0.002, 0.005, steps=models * count // options["batch_size"])

    def make():
        draw.write_files(job.path("test"), [size] * count)
        for number in range(models):
            draw.write_file(job.path("models", f"{number}.pt"), 8 << 20)
        with open(job.path("vocabulary.json"), "w") as file:
            json.dump({f"token{number}": number for number in range(50_000)}, file)

    job.begin(make)
    with open(job.path("vocabulary.json")) as file:
        json.load(file)
    loader = DataLoader(Files(draw.paths(job.path("test"))), shuffle=False, **options)
    results = open(job.path("results.csv"), "w")
    with torch.no_grad():
        for path in draw.paths(job.path("models")):
            with open(path, "rb") as file:
                size = len(file.read())
            right = 0
            for _images, labels in loader:
                draw.compute(seconds)
                right += int((labels == 3).sum())
            print(os.path.basename(path), size, right, file=results, flush=True)


if __name__ == "__main__":
    main()
