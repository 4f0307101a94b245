"""A PyTorch job: DATA METHOD WORKERS PERSISTENT KIND EPOCHS. Prints the sum of what it got in each epoch."""
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Files(Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return torch.tensor([sum(file.read())])


class Stream(IterableDataset):
    def __init__(self, folder):
        self.files = Files(folder)

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, len(self.files), step):
            yield self.files[index]


class OwnLoader(DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            yield batch


class EndlessLoader(DataLoader):
    """Keeps one iterator for all epochs, as some training libraries do."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Again:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


def main():
    folder, method, workers, persistent, kind, epochs = sys.argv[1:]
    workers = int(workers)
    data = Stream(folder) if kind == "iterable" else Files(folder)
    options = dict(batch_size=4, num_workers=workers)
    if workers:
        options.update(multiprocessing_context=method, persistent_workers=persistent == "1")
    loader = {"subclass": OwnLoader, "endless": EndlessLoader}.get(kind, DataLoader)(data, **options)
    other = DataLoader(data, batch_size=8) if kind == "two" else None
    for _ in range(int(epochs)):
        total = 0
        for number, batch in enumerate(loader):
            total += int(batch.sum())
            if kind == "abandoned" and number == 1:
                break
        print(total)
        if other is not None:
            print(sum(int(batch.sum()) for batch in other))
    if kind == "save":
        torch.save({"weights": torch.zeros(1000)}, os.path.join(os.path.dirname(folder), "model.pt"))


if __name__ == "__main__":
    main()
