"""Finding: convoy (R21). Batches come in bursts: one long wait, then as many short ones as there are other workers.

A user's samples take long in every worker (here a call to a remote service, emulated by sleeping), and delivery is in
order. Healthy variant: the same service is fast enough for the compute to hide it.
"""

import time

import draw
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, files, latency):
        self.files, self.latency = files, latency

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:
            data = file.read()
        time.sleep(self.latency)
        return draw.crop(data)


def main():
    job = draw.Job("convoy", also_ok=["decode-bound", "storage-bound"])
    options = job.loader(workers=(3, 4), batch=(4, 8), methods=("fork",), keep=True)
    files = job.draw("files", 240, 320)
    size = job.draw("size", 20_000, 60_000)
    epochs = job.draw("epochs", 2, 3)
    latency = job.draw("latency", 0.007, 0.01)
    seconds = job.draw("compute", 0.0003, 0.001)
    if not job.faulty:
        latency = job.set("latency", latency / 4)
        seconds = job.set("compute", options["batch_size"] * latency)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    draw.train(DataLoader(Remote(draw.paths(job.path("train")), latency), shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
