"""Training without a framework: a pool of processes reads files for a loop.

Fault: files are read front to back in records of some hundred bytes, without a buffer. Healthy: with a buffer.
"""

import multiprocessing
import random

import draw


def load(task):
    path, record, buffer = task
    total = 0
    with open(path, "rb", buffering=buffer) as file:
        while part := file.read(record):
            total += part[0]
    return total


def main():
    job = draw.Job("tiny-reads", also_ok=draw.LIMITS)
    files, size = job.draw("files", 80, 200), job.draw("size", 60_000, 200_000)
    record, epochs = job.draw("record", 100, 800), job.draw("epochs", 2, 3)
    processes, seconds = job.draw("processes", 1, 3), job.draw("compute", 0.0005, 0.001)
    job.begin(lambda: draw.write_files(job.path("train"), [size] * files))
    found = draw.paths(job.path("train"))
    with multiprocessing.Pool(processes) as pool:
        for epoch in range(epochs):
            random.Random(epoch).shuffle(found)
            tasks = [(path, record, 0 if job.faulty else 1 << 20) for path in found]
            for number, _total in enumerate(pool.imap(load, tasks, chunksize=4)):
                if number % 8 == 7:
                    draw.compute(seconds)


if __name__ == "__main__":
    main()
