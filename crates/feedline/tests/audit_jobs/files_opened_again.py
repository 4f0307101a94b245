"""Finding: files-opened-again (R5). A file of many samples is opened, and closed, for each of them.

A user writes `with open(path)` or `with h5py.File(path)` into `__getitem__`. Healthy variant: many files of one sample,
each opened once per epoch, or one HDF5 file that every worker opens once.
"""

import draw
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Packed(Dataset):
    """Files of `each` samples; with one sample per file, every file is opened once."""

    def __init__(self, files, each, sample):
        self.files, self.each, self.sample = files, each, sample

    def __len__(self):
        return len(self.files) * self.each

    def __getitem__(self, index):
        with open(self.files[index // self.each], "rb") as file:
            file.seek(index % self.each * self.sample)
            return draw.crop(file.read(self.sample))


class Hdf5(Dataset):
    def __init__(self, path, count, keep):
        self.path, self.count, self.keep, self.file = path, count, keep, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        import h5py

        if self.keep:
            if self.file is None:
                self.file = h5py.File(self.path, "r")
            return torch.from_numpy(self.file["x"][index])
        with h5py.File(self.path, "r") as file:
            return torch.from_numpy(file["x"][index])


def main():
    job = draw.Job("files-opened-again", also_ok=["metadata-bound"])
    kind = job.pick("kind", "packed", "hdf5")
    options = job.loader(workers=(1, 2), batch=(48, 96))
    if kind == "hdf5":
        files, each, sample = 1, job.draw("samples", 1500, 3000), 1024 * job.draw("sample_kib", 8, 32)
    else:
        files, each = job.draw("files", 4, 30), job.draw("samples", 5000, 8000)
        each, sample = each // files, 1024 * job.draw("sample_kib", 8, 20)
        if not job.faulty:  # The same shape with one sample per file.
            files, each, sample = files * each // 8, 1, 8 * sample
    epochs = job.draw("epochs", 2, 4)
    seconds = job.compute(0.0002, 0.0006, slow=20, steps=epochs * files * each // options["batch_size"])
    path = job.path("train.h5")

    def make():
        if kind == "hdf5":
            import h5py

            values = numpy.frombuffer(draw.noise(each * sample), numpy.uint8).reshape(each, sample)
            with h5py.File(path, "w") as file:
                file.create_dataset("x", data=values, chunks=(1, sample))
        else:
            draw.write_files(job.path("train"), [each * sample] * files)

    job.begin(make)
    if kind == "hdf5":
        dataset = Hdf5(path, each, keep=not job.faulty)
    else:
        dataset = Packed(draw.paths(job.path("train")), each, sample)
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
