"""Healthy: a folder of JPEG images, each opened, decoded and resized once per epoch by workers."""

import io
import os

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        from PIL import Image

        with open(self.files[index], "rb") as file:
            image = Image.open(file).convert("RGB").resize((64, 64))
        return torch.from_numpy(numpy.array(image))


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 2), batch=(4, 8), keep=True)
    files = job.draw("files", 120, 240)
    side = job.draw("side", 120, 220)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.012, 0.02)

    def make():
        from PIL import Image

        for number in range(files):
            values = numpy.frombuffer(draw.noise(3 * side * side, number * 977), numpy.uint8)
            path = job.path("train", f"{number % 10}", f"{number:05}.jpg")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            encoded = io.BytesIO()
            Image.fromarray(values.reshape(side, side, 3)).save(encoded, "JPEG", quality=80)
            with open(path, "wb") as file:
                file.write(encoded.getvalue())

    job.begin(make)
    found = [path for folder in draw.paths(job.path("train")) for path in draw.paths(folder)]
    draw.train(DataLoader(Images(found), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
