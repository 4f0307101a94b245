"""Finding: import-storm (R12). Every spawned worker imports hundreds of module files before its first sample.

A user's data set needs a large package of transforms. Healthy variant: the modules are imported once, in the process
that is forked: the rank, or the fork server by `set_forkserver_preload`.
"""

import importlib
import multiprocessing
import os
import sys

import draw
from torch.utils.data import DataLoader, Dataset


class Transformed(Dataset):
    def __init__(self, files, folder, count):
        self.files, self.folder, self.count, self.transforms = files, folder, count, None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.transforms is None:
            if self.folder not in sys.path:
                sys.path.insert(0, self.folder)
            names = [f"transforms.t{number:03}" for number in range(self.count)]
            self.transforms = [importlib.import_module(name).apply for name in names]
        with open(self.files[index], "rb") as file:
            data = file.read()
        for transform in self.transforms[:3]:
            data = transform(data)
        return draw.crop(data)


def main():
    job = draw.Job("import-storm", also_ok=["workers-restarted"])
    sound = job.pick("healthy_method", "fork", "forkserver")
    options = job.loader(workers=(2, 2), methods=("spawn", "forkserver"), keep=True)
    if not job.faulty:
        options["multiprocessing_context"] = job.set("method", sound)
    job.also_ok = [name for name in job.also_ok if name != "import-storm"]
    modules = job.draw("modules", 250, 450)
    files = job.draw("files", 100, 200)
    size = job.draw("size", 50_000, 150_000)
    epochs = job.draw("epochs", 2, 3)
    seconds = job.compute(0.001, 0.003)

    def make():
        draw.write_files(job.path("train"), [size] * files)
        os.makedirs(job.path("code", "transforms"))
        for name in ["__init__", *(f"t{number:03}" for number in range(modules))]:
            with open(job.path("code", "transforms", name + ".py"), "w") as file:
                table = ", ".join(str(number) for number in range(300))
                file.write(f"TABLE = [{table}]\n\n\ndef apply(data):\n    return data\n")

    job.begin(make)
    folder = os.path.abspath(job.path("code"))
    dataset = Transformed(draw.paths(job.path("train")), folder, modules)
    if not job.faulty:
        names = [f"transforms.t{number:03}" for number in range(modules)]
        sys.path.insert(0, folder)
        if sound == "fork":
            for name in names:
                importlib.import_module(name)
        else:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
            multiprocessing.set_forkserver_preload(["torch.utils.data", "draw", *names])
    draw.train(DataLoader(dataset, shuffle=True, **options), epochs, seconds)


if __name__ == "__main__":
    main()
