"""A small training job for the topic `replay` of scripts/bench: one way of reading, from a warm or a cold page cache.

    python3 replay_job.py KIND --dir DIR --workers N [--cold] [--prepare]

`--prepare` makes the data. Without it, this is the job: PyTorch's DataLoader, or tf.data for `tensorflow`.
"""

import argparse
import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../crates/feedline/tests/audit_jobs"))

import draw

BATCH = 16
SAMPLE = 112 << 10
SAMPLES = 2400
FILES = {"whole": SAMPLES, "ranges": 6, "hdf5": 1, "tfrecord": 48, "tensorflow": 48}
FRAME = 16  # bytes that a TFRecord has besides its data


def frame(size):
    """A record as TensorFlow writes it."""
    def crc(data):
        value = 0xFFFFFFFF
        for byte in data:
            value = CRC[(value ^ byte) & 0xFF] ^ (value >> 8)
        value ^= 0xFFFFFFFF
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length, data = struct.pack("<Q", size), draw.noise(size)
    return length + crc(length) + data + crc(data)


def crc_table():
    def entry(value):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return [entry(value) for value in range(256)]


CRC = crc_table()


def prepare(kind, folder):
    each = SAMPLES // FILES[kind]
    os.makedirs(folder)
    if kind == "hdf5":
        import h5py
        import numpy

        values = numpy.frombuffer(draw.noise(SAMPLE), numpy.uint8)
        with h5py.File(os.path.join(folder, "train.h5"), "w") as file:
            found = file.create_dataset("x", (SAMPLES, SAMPLE), numpy.uint8, chunks=(1, SAMPLE))
            for index in range(SAMPLES):
                found[index] = values
        return
    content = frame(SAMPLE) if kind in ("tfrecord", "tensorflow") else draw.noise(SAMPLE)
    suffix = "tfrecord" if kind in ("tfrecord", "tensorflow") else "bin"
    for number in range(FILES[kind]):
        with open(os.path.join(folder, f"{number:05}.{suffix}"), "wb") as file:
            for _ in range(each):
                file.write(content)


def pytorch_loader(kind, files, workers):
    from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

    class Whole(Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            with open(files[index], "rb") as file:
                return draw.crop(file.read())

    class Ranges(Dataset):
        fds = None

        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            if self.fds is None:
                self.fds = [os.open(path, os.O_RDONLY) for path in files]
            return draw.crop(os.pread(self.fds[index % len(files)], SAMPLE, index // len(files) * SAMPLE))

    class Hdf5(Dataset):
        file = None

        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            import h5py

            if self.file is None:
                self.file = h5py.File(files[0], "r")
            return draw.crop(self.file["x"][index].tobytes())

    class Records(IterableDataset):
        epoch = 0

        def __iter__(self):
            info = get_worker_info()
            mine = list(files)
            random.Random(self.epoch).shuffle(mine)
            self.epoch += 1
            for path in mine[info.id :: info.num_workers]:
                with open(path, "rb", buffering=1 << 20) as file:
                    while head := file.read(12):
                        yield draw.crop(file.read(struct.unpack("<Q", head[:8])[0]))
                        file.read(4)

    dataset = {"whole": Whole, "ranges": Ranges, "hdf5": Hdf5, "tfrecord": Records}[kind]()
    options = {} if kind == "tfrecord" else {"shuffle": True}
    return DataLoader(dataset, BATCH, num_workers=workers, persistent_workers=True, **options)


def tensorflow_loader(files, workers):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    found = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
    found = found.interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=1 << 20), cycle_length=workers, num_parallel_calls=workers
    )
    return found.batch(BATCH).prefetch(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(FILES))
    parser.add_argument("--dir", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--compute", type=float, default=0.0005, help="seconds per step")
    parser.add_argument("--cold", action="store_true", help="no epoch finds its files in the page cache")
    parser.add_argument("--prepare", action="store_true")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.kind, args.dir)
        return
    files = draw.paths(args.dir)
    is_tensorflow = args.kind == "tensorflow"
    loader = tensorflow_loader(files, args.workers) if is_tensorflow else pytorch_loader(args.kind, files, args.workers)
    for _ in range(args.epochs):
        if args.cold:
            draw.evict(files)
        for _batch in loader:
            time.sleep(args.compute)


if __name__ == "__main__":
    main()
