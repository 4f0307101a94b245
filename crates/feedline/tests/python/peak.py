"""Runs feedline with the given arguments and prints its peak resident memory in bytes, as reported by the kernel."""

import os
import subprocess
import sys

child = subprocess.Popen([os.environ["FEEDLINE_TEST_PROGRAM"], *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
assert status == 0, status
print(usage.ru_maxrss * 1024)
