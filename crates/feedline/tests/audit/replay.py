"""Jobs whose reads are counted: python3 replay.py prepare|whole|ranges FOLDER [WORKERS]

80 samples of 5,000 bytes; three epochs of ten batches. `whole`: a file each, in reads of 1,000, 1,000 and 3,000 bytes, with
one stat. `ranges`: four files of 20 samples, one read each.
"""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES, SIZE, EPOCHS = 80, 5000, 3


class Whole(Dataset):
    def __init__(self, folder):
        self.folder = folder

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        path = os.path.join(self.folder, "whole", f"{index:03}.bin")
        os.stat(path)
        fd = os.open(path, os.O_RDONLY)
        data = os.read(fd, 1000) + os.read(fd, 1000) + os.read(fd, 3000)
        os.close(fd)
        return torch.tensor(len(data))


class Ranges(Dataset):
    def __init__(self, folder):
        self.folder, self.fds = folder, None

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if self.fds is None:
            paths = (os.path.join(self.folder, "ranges", f"{number}.bin") for number in range(4))
            self.fds = [os.open(path, os.O_RDONLY) for path in paths]
        return torch.tensor(len(os.pread(self.fds[index % 4], SIZE, index // 4 * SIZE)))


def prepare(folder):
    for kind, files, each in [("whole", SAMPLES, 1), ("ranges", 4, SAMPLES // 4)]:
        os.makedirs(os.path.join(folder, kind))
        for number in range(files):
            name = f"{number:03}.bin" if kind == "whole" else f"{number}.bin"
            with open(os.path.join(folder, kind, name), "wb") as file:
                file.write(bytes(range(250)) * (SIZE // 250) * each)


def main():
    kind, folder = sys.argv[1:3]
    if kind == "prepare":
        prepare(folder)
        return
    dataset = {"whole": Whole, "ranges": Ranges}[kind](folder)
    loader = DataLoader(dataset, 8, shuffle=True, num_workers=int(sys.argv[3]), persistent_workers=True)
    for _ in range(EPOCHS):
        for _batch in loader:
            pass


if __name__ == "__main__":
    main()
