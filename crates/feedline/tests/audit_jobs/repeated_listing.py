"""Finding: repeated-listing (R17). Every worker lists the same folders again in every epoch.

A user calls `os.walk` in `__iter__`, which every worker runs in every epoch, or lists a folder for each sample.
Healthy variant: the rank lists the folders once and passes the list.
"""

import os
import random

import draw
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


def walk(folder):
    return sorted(os.path.join(at, name) for at, _folders, names in os.walk(folder) for name in names)


class Walked(IterableDataset):
    def __init__(self, folder, files):
        self.folder, self.files, self.epoch = folder, files, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files or walk(self.folder))
        random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        for path in files[info.id :: info.num_workers]:
            with open(path, "rb") as file:
                yield draw.crop(file.read())


class Frames(Dataset):
    """A video is a folder of frames; a sample is one of its frames."""

    def __init__(self, videos, files):
        self.videos, self.files = videos, files

    def __len__(self):
        return len(self.videos)

    def __getitem__(self, index):
        names = self.files[index] if self.files else sorted(os.listdir(self.videos[index]))
        with open(os.path.join(self.videos[index], random.choice(names)), "rb") as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("repeated-listing", also_ok=["metadata-bound"])
    kind = job.pick("kind", "walk", "walk", "frames")
    options = job.loader(workers=(2, 4), batch=(8, 32), keep=True)
    folders = job.draw("folders", 200, 400)
    each = job.draw("files_per_folder", 3, 5) if kind == "walk" else job.draw("files_per_folder", 12, 25)
    size = job.draw("size", 10_000, 40_000) if kind == "walk" else job.draw("size", 4_000, 8_000)
    epochs = job.draw("epochs", 2, 4)
    steps = epochs * folders * (each if kind == "walk" else 1) // options["batch_size"]
    seconds = job.compute(0.0003, 0.001, slow=10, steps=steps)
    root = job.path("train")

    def make():
        for folder in range(folders):
            draw.write_files(os.path.join(root, f"{folder:04}"), [size] * each)

    job.begin(make)
    if kind == "walk":
        draw.train(DataLoader(Walked(root, None if job.faulty else walk(root)), **options), epochs, seconds)
    else:
        videos = draw.paths(root)
        files = None if job.faulty else [sorted(os.listdir(video)) for video in videos]
        draw.train(DataLoader(Frames(videos, files), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
