"""Finding: fork-with-threads (R20). Workers are forked while a thread of the rank holds a lock, and wait for it for ever.

A user's thread writes a log or fetches files in the background, under a lock that samples need, too. The loader has a
time limit, so the job ends with its error. Healthy variant: the same thread with spawned workers, or it starts after
the workers were forked.
"""

import multiprocessing
import os
import sys
import threading
import time

import draw
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()


class Guarded(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with LOCK:
            with open(self.files[index], "rb") as file:
                return draw.crop(file.read())


def busy(stop, hold, held):
    while not stop.is_set():
        with LOCK:
            held.set()
            time.sleep(hold)
        time.sleep(0)


def main():
    job = draw.Job("fork-with-threads", also_ok=draw.LIMITS, healthy_ok=["import-storm"])
    sound = job.pick("healthy_kind", "spawn", "later")
    options = job.loader(workers=(1, 3), methods=("fork",), keep=True)
    threads = job.draw("threads", 1, 3)
    files = job.draw("files", 60, 120)
    size = job.draw("size", 50_000, 150_000)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    if not job.faulty and sound == "spawn":
        options["multiprocessing_context"] = "spawn"
        options["num_workers"] = 1
    stop, held = threading.Event(), threading.Event()
    started = [threading.Thread(target=busy, args=(stop, 0.05, held), daemon=True) for _ in range(threads)]
    if job.faulty or sound == "spawn":
        for thread in started:
            thread.start()
        held.wait()
    loader = DataLoader(Guarded(draw.paths(job.path("train"))), shuffle=True, timeout=3 if job.faulty else 60, **options)
    try:
        for _epoch in range(2):
            for number, _batch in enumerate(loader):
                if number == 0 and not started[0].is_alive():
                    for thread in started:
                        thread.start() if thread.ident is None else None
                draw.compute(0.005)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        for worker in multiprocessing.active_children():  # They would wait for ever.
            worker.kill()
        os._exit(1)
    stop.set()


if __name__ == "__main__":
    main()
