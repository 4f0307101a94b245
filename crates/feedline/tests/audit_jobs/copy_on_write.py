"""Finding: copy-on-write (R14). Forked workers touch the reference counts of a big list of Python objects.

A user draws negatives from a list of strings for every sample: the pages of the list stop being shared, worker by
worker. Healthy variant: the same text in one numpy array with offsets, which is read without writing.
"""

import random

import draw
import numpy
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, files, text, offsets, captions, negatives):
        self.files, self.text, self.offsets, self.captions = files, text, offsets, captions
        self.negatives = negatives

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        draws = random.Random(index)
        total = 0
        for _ in range(self.negatives):
            if self.captions is not None:
                caption = self.captions[draws.randrange(len(self.captions))]
            else:
                at = draws.randrange(len(self.offsets) - 1)
                caption = self.text[self.offsets[at] : self.offsets[at + 1]]
            total += len(caption)
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read()), total


def main():
    job = draw.Job("copy-on-write", also_ok=draw.LIMITS)
    options = job.loader(workers=(2, 3), batch=(4, 8), methods=("fork",), keep=True)
    count = job.draw("captions", 500_000, 700_000)
    width = job.draw("caption", 70, 110)
    negatives = job.draw("negatives", 400, 600)
    files = job.draw("files", 200, 300)
    size = job.draw("size", 50_000, 150_000)
    epochs = job.draw("epochs", 3, 4)
    seconds = job.compute(0.004, 0.006, slow=2, steps=epochs * files // options["batch_size"], most=2.4)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        lines = (f"{number:08} ".ljust(width - 1, "a") + "\n" for number in range(count))
        with open(job.path("captions.txt"), "w") as file:
            file.writelines(lines)

    job.begin(make)
    text = offsets = captions = None
    if job.faulty:
        with open(job.path("captions.txt")) as file:
            captions = file.readlines()
    else:
        text = numpy.fromfile(job.path("captions.txt"), numpy.uint8)
        offsets = numpy.arange(0, len(text) + 1, width)
    dataset = Captions(draw.paths(job.path("train")), text, offsets, captions, negatives)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
