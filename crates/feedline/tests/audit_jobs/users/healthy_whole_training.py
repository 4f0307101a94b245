"""Healthy: a training as it is: a vocabulary at the start, accumulated gradients, a log, a checkpoint after each epoch,
an evaluation, and learning rates in a file."""

import json

import draw
import torch
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, files, vocabulary):
        self.files, self.vocabulary = files, vocabulary

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index]) as file:
            words = file.read().split()
        numbers = [self.vocabulary.get(word, 0) for word in words[:512]]
        return torch.tensor(numbers + [0] * (512 - len(numbers)))


def main():
    job = draw.Job(None)
    options = job.loader()
    count, words = job.draw("files", 200, 500), job.draw("words", 600, 4000)
    epochs, accumulate = job.draw("epochs", 2, 4), job.draw("accumulate", 2, 8)
    seconds = job.compute(0.003, 0.006, steps=epochs * count // options["batch_size"])
    parameters = job.draw("parameters", 100_000, 2_000_000)

    def make():
        vocabulary = {f"word{number}": number for number in range(100_000)}
        with open(job.path("vocabulary.json"), "w") as file:
            json.dump(vocabulary, file, indent=1)
        for kind, files in [("train", count), ("val", count // 5)]:
            draw.write_files(job.path(kind), [0] * files, "txt")
            for path in draw.paths(job.path(kind)):
                with open(path, "w") as file:
                    file.write(" ".join(f"word{job.random.randrange(100_000)}" for _ in range(words)))

    job.begin(make)
    with open(job.path("vocabulary.json")) as file:
        vocabulary = {}
        for line in file:
            if ":" in line:
                word, number = line.strip().rstrip(",").split(": ")
                vocabulary[word.strip('"')] = int(number)
    weights = torch.zeros(parameters)
    train = DataLoader(Texts(draw.paths(job.path("train")), vocabulary), shuffle=True, **options)
    val = DataLoader(Texts(draw.paths(job.path("val")), vocabulary), **options)
    log = open(job.path("log.jsonl"), "a")
    for epoch in range(epochs):
        for step, _batch in enumerate(train):
            draw.compute(seconds / 2)
            if step % accumulate == accumulate - 1:
                draw.compute(seconds * accumulate / 2)
            log.write(json.dumps({"epoch": epoch, "step": step, "loss": 1 / (step + 1)}) + "\n")
            log.flush()
        with torch.no_grad():
            for _batch in val:
                draw.compute(seconds / 3)
        torch.save({"epoch": epoch, "weights": weights}, job.path(f"epoch{epoch}.pt"))


if __name__ == "__main__":
    main()
