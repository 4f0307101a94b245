"""Reads files in the ways that Python has, and prints a digest."""
import hashlib
import mmap
import os
import sys

digest = hashlib.sha256()
paths = sorted(os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]))
for path in paths:
    with open(path, "rb") as file:
        digest.update(file.read())
    with open(path, "rb") as file:
        file.seek(100)
        digest.update(file.read(500))
        digest.update(file.read())
    with open(path, "rb", buffering=0) as file:
        while True:
            part = file.read(4096)
            if not part:
                break
            digest.update(part)
    fd = os.open(path, os.O_RDONLY)
    digest.update(os.pread(fd, 1000, 77))
    space = bytearray(300)
    os.readv(fd, [space])
    os.preadv(fd, [space], 5)
    digest.update(space)
    copy = os.dup(fd)
    digest.update(os.read(copy, 50))
    os.close(fd)
    digest.update(os.read(copy, 50))
    os.close(copy)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        digest.update(view[10:20])
print(digest.hexdigest())
