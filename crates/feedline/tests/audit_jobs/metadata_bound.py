"""Finding: metadata-bound (R7). Small files with several metadata calls each: looking takes longer than reading.

A user checks `exists`, the size and the time of every sample before opening it, and one of a label next to it. Healthy
variant: the same samples packed into a few files with an index, or larger files opened once without a check.
"""

import os

import draw
from torch.utils.data import DataLoader, Dataset


class Checked(Dataset):
    def __init__(self, files, check):
        self.files, self.check = files, check

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        if self.check:
            if not os.path.exists(path) or os.path.getsize(path) == 0 or os.path.islink(path):
                raise FileNotFoundError(path)
            os.path.getmtime(path)
            os.path.exists(path + ".mask")
        with open(path, "rb") as file:
            return draw.crop(file.read())


class Packed(Dataset):
    def __init__(self, path, count, sample):
        self.path, self.count, self.sample, self.fd = path, count, sample, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
        return draw.crop(os.pread(self.fd, self.sample, index * self.sample))


def main():
    job = draw.Job("metadata-bound", also_ok=["decode-bound"])
    kind = job.pick("healthy_kind", "packed", "larger files")
    options = job.loader(workers=(1, 2), batch=(64, 128))
    files = job.draw("files", 4000, 6000)
    size = job.draw("size", 1500, 12_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.0002, 0.0006, slow=40, steps=epochs * files // options["batch_size"])
    if not job.faulty:
        job.set("kind", kind)
        if kind == "larger files":
            files, size = files // 15, size * 40

    def make():
        if not job.faulty and kind == "packed":
            draw.write_file(job.path("train.bin"), files * size)
        else:
            for number in range(files):
                draw.write_file(job.path("train", f"{number % 20:02}", f"{number:05}.bin"), size)

    job.begin(make)
    if not job.faulty and kind == "packed":
        dataset = Packed(job.path("train.bin"), files, size)
    else:
        folders = draw.paths(job.path("train"))
        dataset = Checked([path for folder in folders for path in draw.paths(folder)], job.faulty)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
