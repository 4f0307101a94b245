"""Finding: cache-too-small. The data set is about as large as the memory of the container, and is read again each epoch.

Healthy variant: the same job in a container with room for the files. Needs root, for a control group.
"""

import draw
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb", buffering=0) as file:
            return draw.crop(file.read())


def main():
    job = draw.Job("cache-too-small", also_ok=draw.LIMITS, healthy_ok=draw.LIMITS)
    options = job.loader(workers=(1, 2), methods=("fork",), keep=True)
    memory = job.draw("memory_mb", 700, 900) << 20
    size = job.draw("size_kb", 400, 1500) << 10
    files = int(memory * job.draw("part", 1.0, 1.15)) // size
    job.within = draw.in_group(memory if job.faulty else 4 * memory)
    seconds = job.draw("compute", 0.0002, 0.001)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        draw.evict(draw.paths(job.path("train")), sync=True)

    job.begin(make)
    draw.train(DataLoader(Images(draw.paths(job.path("train"))), shuffle=True, **options), 3, seconds)


if __name__ == "__main__":
    main()
