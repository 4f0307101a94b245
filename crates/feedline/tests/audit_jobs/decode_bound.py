"""Finding: decode-bound (R22). The workers compute: decoding and transforms take the time, reading next to none.

A user decodes large JPEG images, or unpacks compressed arrays. Healthy variant: the same files with a cheap decode (the
JPEG decoder's own reduction, or stored arrays) behind a compute step that hides it.
"""

import io
import zlib

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Jpegs(Dataset):
    def __init__(self, files, reduced):
        self.files, self.reduced = files, reduced

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        from PIL import Image

        with open(self.files[index], "rb") as file:
            image = Image.open(io.BytesIO(file.read()))
        if self.reduced:
            image.draft("RGB", (64, 64))
        image = image.convert("RGB").resize((64, 64))
        return torch.from_numpy(numpy.array(image))


class Packed(Dataset):
    def __init__(self, files, packed):
        self.files, self.packed = files, packed

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            data = file.read()
        return draw.crop(zlib.decompress(data) if self.packed else data)


def main():
    job = draw.Job("decode-bound", also_ok=["convoy"], healthy_ok=["decode-bound"])
    kind = job.pick("kind", "jpeg", "zlib")
    options = job.loader(workers=(1, 3), batch=(4, 8), keep=True)
    files = job.draw("files", 70, 110)
    side = job.draw("side", 700, 1000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.0003, 0.001)
    if not job.faulty:
        seconds = job.set("compute", 0.03)

    def make():
        from PIL import Image

        draw.write_files(job.path("train"), [0] * files)
        small = numpy.frombuffer(draw.noise(3 * 150 * 150), numpy.uint8).reshape(150, 150, 3)
        picture = Image.fromarray(small).resize((side, side))
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", quality=90)
        stored = numpy.array(picture).tobytes()
        stored = zlib.compress(stored, 1) if job.faulty else stored[: len(stored) // 4]
        for path in draw.paths(job.path("train")):
            with open(path, "wb") as file:
                file.write(encoded.getvalue() if kind == "jpeg" else stored)

    job.begin(make)
    found = draw.paths(job.path("train"))
    dataset = Jpegs(found, not job.faulty) if kind == "jpeg" else Packed(found, job.faulty)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
