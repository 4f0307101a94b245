"""Finding: same-bytes-read-again (R4). Every sample reads a range that holds many samples, and nothing keeps it.

A user stores samples in HDF5 with chunks much larger than a sample and no chunk cache, in a container of blocks, or
loads a whole .npy file for one row. Healthy variant: chunk, block or row are the sample, or a file is read once.
"""

import os

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Hdf5(Dataset):
    def __init__(self, path, count):
        self.path, self.count, self.file = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            import h5py

            self.file = h5py.File(self.path, "r", rdcc_nbytes=0)
        return torch.from_numpy(self.file["x"][index])


class Blocks(Dataset):
    """A container whose unit of reading is a block of several samples."""

    def __init__(self, path, count, sample, per_block):
        self.path, self.count, self.sample, self.per_block, self.fd = path, count, sample, per_block, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDONLY)
        size = self.sample * self.per_block
        block = os.pread(self.fd, size, index // self.per_block * size)
        at = index % self.per_block * self.sample
        return draw.crop(block[at : at + self.sample])


class Rows(Dataset):
    """Files of many rows; one row, or a whole file, is an item."""

    def __init__(self, files, rows):
        self.files, self.rows = files, rows

    def __len__(self):
        return len(self.files) * (self.rows or 1)

    def __getitem__(self, index):
        if self.rows is None:
            return torch.from_numpy(numpy.load(self.files[index])[:, :512].copy())
        return torch.from_numpy(numpy.load(self.files[index // self.rows])[index % self.rows, :512].copy())


def main():
    job = draw.Job("same-bytes-read-again")
    kind = job.pick("kind", "hdf5", "blocks", "npy")
    options = job.loader()
    sample = 1024 * job.draw("sample_kib", 16, 48)
    together = job.draw("together", 12, 24)
    groups = job.draw("groups", 30, 60)
    epochs = job.draw("epochs", 2, 3)
    count, path = together * groups, job.path("train.bin")
    seconds = job.compute(0.0003, 0.001, slow=12, steps=epochs * count // options["batch_size"])
    if kind == "npy" and job.faulty:
        job.also_ok.append("files-opened-again")

    def make():
        values = numpy.frombuffer(draw.noise(sample * count), numpy.uint16).reshape(count, -1)
        if kind == "hdf5":
            import h5py

            chunk = (together if job.faulty else 1, values.shape[1])
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=values.view(numpy.int16), chunks=chunk, shuffle=True)
        elif kind == "blocks":
            values.tofile(path)
        else:
            os.makedirs(job.path("train"))
            for group in range(groups):
                rows = values[group * together : (group + 1) * together]
                numpy.save(job.path("train", f"{group:03}.npy"), rows.view(numpy.int16))

    job.begin(make)
    if kind == "hdf5":
        dataset = Hdf5(path, count)
    elif kind == "blocks":
        dataset = Blocks(path, count, sample, together if job.faulty else 1)
    else:
        dataset = Rows(draw.paths(job.path("train")), together if job.faulty else None)
        if not job.faulty:
            options["batch_size"] = 1
            seconds *= 2
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
