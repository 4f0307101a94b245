"""A folder behind a file system in user space (FUSE) whose reads take so long, many at once: storage with a latency.

    scripts/slow_folder.py FOLDER MOUNT_POINT MILLISECONDS

Serves until the mount point is unmounted. Needs root. The kernel reads nothing ahead, and forgets the pages of a file
whenever it is opened.
"""

import ctypes
import errno
import os
import pathlib
import stat
import struct
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29
)
DESTROY, INTERRUPT, BATCH_FORGET = 38, 36, 42
NO_REPLY = (FORGET, INTERRUPT, BATCH_FORGET)
ASYNC_READ, MAX_PAGES = 1 << 0, 1 << 22
VALID_SECONDS = 3600


class Folder:
    def __init__(self, root, latency):
        self.latency = latency
        self.paths = {1: os.fspath(root)}
        self.numbers = {os.fspath(root): 1}

    def attributes(self, path):
        facts = os.stat(path)
        times = [int(seconds) for seconds in (facts.st_atime, facts.st_mtime, facts.st_ctime)]
        nanos = [ns % 10**9 for ns in (facts.st_atime_ns, facts.st_mtime_ns, facts.st_ctime_ns)]
        return struct.pack(
            "<6Q10I", facts.st_ino, facts.st_size, facts.st_blocks, *times, *nanos, facts.st_mode, facts.st_nlink,
            facts.st_uid, facts.st_gid, 0, 4096, 0,
        )

    def lookup(self, parent, body):
        path = os.path.join(self.paths[parent], body.split(b"\0")[0].decode())
        attributes = self.attributes(path)
        number = self.numbers.setdefault(path, len(self.numbers) + 1)
        self.paths[number] = path
        return struct.pack("<4Q2I", number, 0, VALID_SECONDS, VALID_SECONDS, 0, 0) + attributes

    def entries(self, path, offset, size):
        found = b""
        for place, name in list(enumerate(sorted(os.listdir(path)), 1))[offset:]:
            kind = stat.S_IFMT(os.stat(os.path.join(path, name)).st_mode) >> 12
            entry = struct.pack("<2Q2I", place, place, len(name), kind) + name.encode()
            entry += b"\0" * (-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found

    def answer(self, opcode, node, body):
        if opcode == INIT:
            minor = struct.unpack_from("<2I", body)[1]
            return struct.pack(
                "<4I2H2I2H8I", 7, min(minor, 31), 0, ASYNC_READ | MAX_PAGES, 64, 48, 1 << 20, 1, 256, 0, *[0] * 8
            )
        if opcode == LOOKUP:
            return self.lookup(node, body)
        if opcode == GETATTR:
            return struct.pack("<Q2I", VALID_SECONDS, 0, 0) + self.attributes(self.paths[node])
        if opcode == OPEN:
            return struct.pack("<Q2I", os.open(self.paths[node], os.O_RDONLY), 0, 0)
        if opcode == READ:
            file, offset, size = struct.unpack_from("<2QI", body)
            time.sleep(self.latency)
            return os.pread(file, size, offset)
        if opcode == RELEASE:
            os.close(struct.unpack_from("<Q", body)[0])
            return b""
        if opcode == READDIR:
            _, offset, size = struct.unpack_from("<2QI", body)
            return self.entries(self.paths[node], offset, size)
        if opcode == STATFS:
            return struct.pack("<5Q10I", 0, 0, 0, 0, 0, 4096, 255, 4096, *[0] * 7)
        if opcode == OPENDIR:
            return bytes(16)
        if opcode in (RELEASEDIR, FLUSH, DESTROY):
            return b""
        raise OSError(errno.ENOSYS, "not needed here")


def serve(device, folder):
    while True:
        try:
            request = os.read(device, (1 << 20) + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:  # it was unmounted
                return
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue
            raise
        _, opcode, unique, node = struct.unpack_from("<2I2Q", request)
        if opcode in NO_REPLY:
            continue
        failed, answer = 0, b""
        try:
            answer = folder.answer(opcode, node, request[40:])
        except OSError as error:
            failed = -error.errno
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(answer), failed, unique) + answer)
        except OSError as error:
            if error.errno != errno.ENOENT:  # the request was interrupted
                raise


def main():
    root, place, latency = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]) / 1000
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={1 << 20}"
    if libc.mount(b"slow_folder", place.encode(), b"fuse", 1, options.encode()) != 0:
        sys.exit(f"cannot mount {place}: {os.strerror(ctypes.get_errno())}; it needs root")
    folder = Folder(root, latency)
    threads = [threading.Thread(target=serve, args=(device, folder)) for _ in range(32)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


if __name__ == "__main__":
    main()
