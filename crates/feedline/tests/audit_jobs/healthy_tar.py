"""Healthy: tar files that are streamed from front to back, as webdataset does, split over the workers."""

import io
import random
import tarfile

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Tars(IterableDataset):
    def __init__(self, files):
        self.files, self.epoch = files, 0

    def __iter__(self):
        info = get_worker_info()
        files = list(self.files)
        random.Random(self.epoch).shuffle(files)
        self.epoch += 1
        for path in files[info.id :: info.num_workers]:
            with open(path, "rb", buffering=1 << 20) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    yield draw.crop(tar.extractfile(member).read())


def main():
    job = draw.Job(None, healthy_ok=draw.LIMITS)
    options = job.loader(keep=True)
    files = options["num_workers"] * job.draw("shards", 6, 10)
    each = job.draw("samples", 10, 25)
    sample = job.draw("sample", 30_000, 90_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.002, 0.004, slow=3, steps=epochs * files * each // options["batch_size"])

    def make():
        draw.write_files(job.path("train"), [0] * files, "tar")
        for path in draw.paths(job.path("train")):
            with tarfile.open(path, "w") as tar:
                for number in range(each):
                    member = tarfile.TarInfo(f"{number:05}.jpg")
                    member.size = sample
                    tar.addfile(member, io.BytesIO(draw.noise(sample, number * 977)))

    job.begin(make)
    draw.train(DataLoader(Tars(draw.paths(job.path("train"))), **options), epochs, seconds)


if __name__ == "__main__":
    main()
