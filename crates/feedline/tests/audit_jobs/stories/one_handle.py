"""Story: the data set opens one file, and all forked workers seek and read on that handle. Samples are mixed up.

Healthy variant: each worker opens the file itself.
"""

import draw
from torch.utils.data import DataLoader, Dataset


class OneHandle(Dataset):
    def __init__(self, path, count, sample, own):
        self.path, self.count, self.sample = path, count, sample
        self.file = None if own else open(path, "rb", buffering=0)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
        self.file.seek(index * self.sample)
        return draw.crop(self.file.read(self.sample))


def main():
    job = draw.Job("shared-file-offset", also_ok=draw.LIMITS)
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    count = job.draw("samples", 400, 800)
    sample = job.draw("sample", 20_000, 60_000)
    # A footer as long as some samples: a handle that another worker moved does not end in a short read.
    job.begin(lambda: draw.write_file(job.path("train.bin"), (count + 8) * sample))
    dataset = OneHandle(job.path("train.bin"), count, sample, own=not job.faulty)
    draw.train(DataLoader(dataset, shuffle=True, **options), 3, job.compute(0.001, 0.003, slow=4, steps=300))


if __name__ == "__main__":
    main()
