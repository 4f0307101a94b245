"""Healthy: TFRecord files, split over the workers, with a new order of files in each epoch; records by a buffer of 1 MiB.

The frames of TFRecord are read without TensorFlow: length, checksum, data, checksum.
"""

import random
import struct

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Records(IterableDataset):
    def __init__(self, files):
        self.files, self.epoch = files, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files)
        random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        for path in files[info.id :: info.num_workers]:
            with open(path, "rb", buffering=1 << 20) as file:
                while head := file.read(12):
                    (length,) = struct.unpack("<Q", head[:8])
                    yield draw.crop(file.read(length))
                    file.read(4)


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(keep=True)
    files = options["num_workers"] * job.draw("shards", 8, 12)
    each = job.draw("samples", 10, 25)
    record = job.draw("record", 20_000, 90_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, slow=3, steps=epochs * files * each // options["batch_size"])

    def make():
        frame = struct.pack("<QI", record, 0) + draw.noise(record) + bytes(4)
        draw.write_files(job.path("train"), [0] * files, "tfrecord")
        for path in draw.paths(job.path("train")):
            with open(path, "wb") as file:
                file.write(frame * each)

    job.begin(make)
    draw.train(DataLoader(Records(draw.paths(job.path("train"))), **options), epochs, seconds)


if __name__ == "__main__":
    main()
