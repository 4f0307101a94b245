"""A folder per class, listed as torchvision's ImageFolder does, with a validation loader after each epoch.

Fault: the label is looked up in the list of classes of the folder, for each sample. Healthy: classes are listed once.
"""

import os

import draw
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def find_classes(folder):
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())


class ImageFolder(Dataset):
    def __init__(self, root, again):
        self.root, self.again, self.samples = root, again, []
        for label, name in enumerate(find_classes(root)):
            for folder, _, names in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                for file in sorted(names):
                    if file.lower().endswith((".jpg", ".png")):
                        self.samples.append((os.path.join(folder, file), label))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        if self.again:
            label = find_classes(self.root).index(os.path.basename(os.path.dirname(path)))
            siblings = os.listdir(os.path.dirname(path))
            assert os.path.basename(path) in siblings
        with open(path, "rb") as file:
            image = Image.open(file)
            image = image.convert("RGB").resize((64, 64))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8), label


def main():
    job = draw.Job("repeated-listing", also_ok=draw.LIMITS)
    options = job.loader(workers=(1, 3))
    classes, each = job.draw("classes", 4, 10), job.draw("each", 40, 120)
    side = job.draw("side", 64, 160)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.004, 0.006, steps=epochs * classes * each // options["batch_size"])

    def make():
        for kind, count in [("train", each), ("val", each // 4)]:
            for label in range(classes):
                folder = job.path(kind, f"n{label:04}")
                os.makedirs(folder)
                for number in range(count):
                    pixels = draw.noise(side * side * 3, number * 7919 + label)
                    image = Image.frombytes("RGB", (side, side), pixels)
                    image.save(os.path.join(folder, f"img_{number}.jpg"), quality=80)

    job.begin(make)
    train = DataLoader(ImageFolder(job.path("train"), job.faulty), shuffle=True, drop_last=True, **options)
    val = DataLoader(ImageFolder(job.path("val"), False), **options)
    for _epoch in range(epochs):
        for _images, _labels in train:
            draw.compute(seconds)
        with torch.no_grad():
            for _images, _labels in val:
                draw.compute(seconds / 3)


if __name__ == "__main__":
    main()
