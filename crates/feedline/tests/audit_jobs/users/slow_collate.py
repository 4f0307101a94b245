"""Texts that are put together by a collate function in the workers.

Fault: it counts and sorts all words of a batch in Python, and training waits. Healthy: it only pads.
"""

import collections

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return file.read()


def pad(texts, most=512):
    return torch.tensor([list(text[:most].ljust(most)) for text in texts])


def count_and_pad(texts):
    counts = collections.Counter()
    for text in texts:
        counts.update(text[at : at + 4] for at in range(len(text)))
    rare = {part for part, count in sorted(counts.items(), key=lambda item: -item[1])[-100:]}
    return pad([text for text in texts if text[:4] not in rare] or texts)


def main():
    job = draw.Job("decode-bound", also_ok=["convoy"], healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 2), batch=(4, 8), keep=True)
    count, size = job.draw("files", 120, 200), job.draw("size", 15_000, 30_000)
    seconds = job.draw("compute", 0.001, 0.003)
    job.begin(lambda: draw.write_files(job.path("texts"), [size] * count, "txt"))
    collate = count_and_pad if job.faulty else pad
    loader = DataLoader(Texts(draw.paths(job.path("texts"))), shuffle=True, collate_fn=collate, **options)
    draw.train(loader, 2, seconds)


if __name__ == "__main__":
    main()
