"""Finding: tiny-reads (R6). Files are read front to back in calls of a few hundred bytes.

A user reads records from an unbuffered file, or streams a file over a small buffer. Healthy variant: three small reads
of a header, then one large read of the rest.
"""

import struct

import draw
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, files, piece):
        self.files, self.piece = files, piece

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb", buffering=0) as file:
            magic, length, _flags = file.read(8), file.read(8), file.read(16)
            struct.unpack("<8sQ", magic + length)
            if self.piece is None:
                return draw.crop(file.readall())
            pieces = []
            while piece := file.read(self.piece):
                pieces.append(piece)
            return draw.crop(b"".join(pieces))


def main():
    job = draw.Job("tiny-reads", also_ok=["decode-bound"])
    options = job.loader(workers=(1, 2), batch=(6, 16))
    files = job.draw("files", 200, 400)
    size = job.draw("size", 300_000, 600_000)
    piece = job.draw("piece", 200, 800)
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.0003, 0.001, slow=15, steps=epochs * files // options["batch_size"])
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    dataset = Volumes(draw.paths(job.path("train")), piece if job.faulty else None)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
