"""Finding: wrong-storage. The data are in the layers of a container, or on a file system of its kind.

Healthy variant: the same files on the file system below. Needs root, for a mount namespace.
"""

import os

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


def main():
    job = draw.Job("wrong-storage", also_ok=draw.LIMITS)
    options = job.loader(workers=(1, 3), keep=True)
    files, size = job.draw("files", 150, 400), job.draw("size", 20_000, 100_000)
    seconds = job.compute(0.004, 0.006, steps=3 * files // options["batch_size"])
    layers = {name: job.path(name) for name in ("layer", "upper", "work", "merged")}
    if job.faulty:
        lower, upper, work, merged = layers.values()
        options_text = f"lowerdir={lower},upperdir={upper},workdir={work}"
        job.within = draw.in_namespace(f"mount -t overlay overlay -o {options_text} {merged}")

    def make():
        draw.write_files(job.path("layer", "train"), [size] * files)
        for folder in layers.values():
            os.makedirs(folder, exist_ok=True)

    job.begin(make)
    folder = os.path.join(layers["merged" if job.faulty else "layer"], "train")
    draw.train(DataLoader(Images(draw.paths(folder)), shuffle=True, **options), 3, seconds)


if __name__ == "__main__":
    main()
