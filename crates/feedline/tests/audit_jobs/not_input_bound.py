"""Finding: not-input-bound (R1). The compute of a step hides the loading: nothing of the input needs a change.

Healthy variant, which must not be called so: the same loader, with a compute step that is much shorter than loading.
"""

import draw
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("not-input-bound", healthy_ok=draw.LIMITS)
    options = job.loader(workers=(2, 3), batch=(4, 8), methods=("fork",), keep=True)
    files = job.draw("files", 160, 240)
    size = job.draw("size", 200_000, 500_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.draw("compute", 0.018, 0.03)
    if not job.faulty:
        job.also_ok.remove("not-input-bound")
        seconds, epochs = job.set("compute", seconds / 100), epochs * 2
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    draw.train(DataLoader(Images(draw.paths(job.path("train"))), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
