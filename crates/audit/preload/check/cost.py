#!/usr/bin/env python3
"""Measures what the library adds to a pread, to an open and close, and to a stat, in ns of CPU time. Something drains the
ring meanwhile, as feedline does."""

import os
import struct
import threading

import check
import ring


def drain(bench, stop):
    """Takes all events at once, unread, so that the ring is never full."""
    while not stop.wait(0.005):
        for number in range(16):
            at = ring.CONTROL_BYTES + number * ring.SLOT_BYTES
            head = struct.unpack("<Q", os.pread(bench.ring.fd, 8, at + ring.HEAD_AT))[0]
            os.pwrite(bench.ring.fd, struct.pack("<Q", head), at + ring.TAIL_AT)


def main():
    bench = check.Bench(check.build())
    try:
        bench.files(1)
        program = bench.compiled("cost")
        path = os.path.join(bench.data, "00000.bin")
        stop = threading.Event()
        thread = threading.Thread(target=drain, args=(bench, stop))
        thread.start()
        alone, observed = [], []
        try:
            for _ in range(5):
                alone.append([float(part) for part in bench.alone(program, path).split()])
                observed.append([float(part) for part in bench.run(program, path).split()])
        finally:
            stop.set()
            thread.join()
        for index, name in enumerate(("pread", "open+close", "stat")):
            before, after = min(one[index] for one in alone), min(one[index] for one in observed)
            print("%-11s %5.0f -> %5.0f ns: +%.0f" % (name, before, after, after - before))
        print("events dropped: %d" % sum(slot.dropped for slot in bench.ring.slots()))
    finally:
        bench.close()


if __name__ == "__main__":
    main()
