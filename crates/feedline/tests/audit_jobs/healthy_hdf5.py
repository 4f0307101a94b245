"""Healthy: one HDF5 file with a chunk per sample, which each worker opens when it needs its first sample."""

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

            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["x"][index])


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(keep=True)
    count = job.draw("samples", 200, 400)
    sample = 1024 * job.draw("sample_kib", 32, 100)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, slow=4, steps=epochs * count // options["batch_size"])
    path = job.path("train.h5")

    def make():
        import h5py

        values = numpy.frombuffer(draw.noise(count * sample), numpy.uint8).reshape(count, sample)
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, chunks=(1, sample))

    job.begin(make)
    draw.train(DataLoader(Hdf5(path, count), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
