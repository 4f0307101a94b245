"""Story: each worker opens the one file and reads all of it, so every record is delivered once per worker.

Healthy variant: a worker yields every record whose number modulo the number of workers is its own, by position.
"""

import draw
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path, count, record, split):
        self.path, self.count, self.record, self.split = path, count, record, split

    def __iter__(self):
        info = get_worker_info()
        first = self.count * info.id // info.num_workers if self.split else 0
        last = self.count * (info.id + 1) // info.num_workers if self.split else self.count
        with open(self.path, "rb", buffering=1 << 18) as file:
            file.seek(first * self.record)
            for _ in range(first, last):
                yield draw.crop(file.read(self.record))


def main():
    order = ["order-never-changes", "stale-shards"]  # A stream of one file has one order.
    job = draw.Job("duplicate-reads", also_ok=["one-file-many-workers", *order, *draw.LIMITS], healthy_ok=order)
    options = job.loader(workers=(2, 4), methods=("fork",), keep=True)
    count = job.draw("records", 400, 800)
    record = job.draw("record", 20_000, 50_000)
    job.begin(lambda: draw.write_file(job.path("train.bin"), count * record))
    dataset = Lines(job.path("train.bin"), count, record, split=not job.faulty)
    draw.train(DataLoader(dataset, **options), 3, job.compute(0.001, 0.002, slow=4, steps=300))


if __name__ == "__main__":
    main()
