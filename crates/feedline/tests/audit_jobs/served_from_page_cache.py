"""Finding: served-from-page-cache (R2). The first epoch is cold, the later ones never reach the device.

A user would time a storage system with this job and report the later epochs. Healthy variant: the data are in the page
cache before the first epoch, so that all epochs are alike.
"""

import draw
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("served-from-page-cache", also_ok=draw.LIMITS)
    options = job.loader(keep=True)
    files = job.draw("files", 60, 140)
    size = job.draw("size", 400_000, 1_000_000)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.001, 0.004, steps=epochs * files // options["batch_size"])
    folder = job.path("train")

    def make():
        draw.write_files(folder, [size] * files)
        if job.faulty:
            draw.evict(draw.paths(folder), sync=True)

    job.begin(make)
    draw.train(DataLoader(Blobs(draw.paths(folder)), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
