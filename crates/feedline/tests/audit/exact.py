"""Jobs whose file calls are compared with strace: `exact.py KIND FOLDER`, after `exact.py prepare FOLDER`."""

import os
import subprocess
import sys
import threading

FILES = 24
SIZE = 50_000


def files(folder):
    return [os.path.join(folder, "files", f"{number:03}.bin") for number in range(FILES)]


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Set:
    def __init__(self, folder):
        self.paths = files(folder)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return len(read(self.paths[index]))


def prepare(folder):
    os.makedirs(os.path.join(folder, "files"))
    for path in files(folder):
        with open(path, "wb") as file:
            file.write(os.urandom(SIZE))


def torch_job(folder, method, persistent):
    from torch.utils.data import DataLoader

    keep = persistent == "persistent"
    loader = DataLoader(Set(folder), 4, num_workers=2, multiprocessing_context=method, persistent_workers=keep)
    for _epoch in range(2):
        assert sum(int(batch.sum()) for batch in loader) == FILES * SIZE


def h5py_job(folder):
    import h5py

    path = os.path.join(folder, "files", "x.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=[[1] * 1000] * 50, chunks=(5, 1000))
    with h5py.File(path, "r") as file:
        assert int(file["x"][:].sum()) == 50_000


def numpy_job(folder):
    import numpy

    path = os.path.join(folder, "files", "x.npy")
    numpy.save(path, numpy.arange(100_000))
    assert numpy.load(path)[-1] == 99_999
    assert numpy.load(path, mmap_mode="r")[7] == 7


def pillow_job(folder):
    from PIL import Image

    for suffix in ["png", "jpg"]:
        path = os.path.join(folder, "files", f"x.{suffix}")
        Image.new("RGB", (200, 200), (1, 2, 3)).save(path)
        with Image.open(path) as image:
            image.load()


def pyarrow_job(folder):
    import pyarrow
    import pyarrow.parquet

    path = os.path.join(folder, "files", "x.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"x": list(range(10_000))}), path)
    assert pyarrow.parquet.read_table(path).num_rows == 10_000


def tensorflow_job(folder):
    import tensorflow

    path = os.path.join(folder, "files", "x.tfrecord")
    with tensorflow.io.TFRecordWriter(path) as writer:
        for _ in range(100):
            writer.write(bytes(5000))
    assert sum(1 for _record in tensorflow.data.TFRecordDataset(path)) == 100


def threads_job(folder):
    def all_files():
        for path in files(folder):
            read(path)

    started = [threading.Thread(target=all_files) for _ in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def leave_job(folder):
    """64 processes that leave by `_exit`."""
    children = []
    for number in range(64):
        child = os.fork()
        if child == 0:
            read(files(folder)[number % FILES])
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def killed_job(folder):
    """A process that is killed after it has read all files."""
    child = os.fork()
    if child == 0:
        for path in files(folder):
            read(path)
        os.kill(os.getpid(), 9)
    assert os.waitpid(child, 0)[1] == 9


def vfork_job(folder):
    """A file is read in two halves; between them a child is started, by vfork where Python can."""
    with open(files(folder)[0], "rb", buffering=0) as file:
        file.read(SIZE // 2)
        subprocess.run([sys.executable, "-c", f"open({files(folder)[1]!r}, 'rb').read()"], check=True)
        assert len(file.read()) == SIZE - SIZE // 2


if __name__ == "__main__":
    kind, folder, *more = sys.argv[1:]
    prepare(folder) if kind == "prepare" else globals()[f"{kind}_job"](folder, *more)
    print("ok")
