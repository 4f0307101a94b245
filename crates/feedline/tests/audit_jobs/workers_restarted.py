"""Finding: workers-restarted (R11). Every short epoch starts its workers anew.

A user leaves `persistent_workers` at its default, False. Healthy variant: the same with persistent workers.
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
    job = draw.Job("workers-restarted")
    options = job.loader(workers=(1, 8), methods=("fork", "fork", "spawn", "forkserver"), keep=False)
    if options["multiprocessing_context"] == "fork":
        options["num_workers"] = job.set("workers", max(3, options["num_workers"]))
    epochs = job.draw("epochs", 5, 8) if options["multiprocessing_context"] == "fork" else job.set("epochs", 2)
    files = job.draw("files", 60, 120)
    size = job.draw("size", 60_000, 200_000)
    seconds = job.compute(0.002, 0.004, slow=3, steps=epochs * files // options["batch_size"])
    if not job.faulty:
        options["persistent_workers"] = job.set("persistent", True)
        job.also_ok.remove("workers-restarted")
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    draw.train(DataLoader(Images(draw.paths(job.path("train"))), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
