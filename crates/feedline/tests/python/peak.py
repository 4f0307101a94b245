"""Runs feedline with the given arguments and prints the most memory that it had resident, in bytes, by the kernel's
account of an ended process."""

import os
import subprocess
import sys

child = subprocess.Popen([os.environ["FEEDLINE_TEST_PROGRAM"], *sys.argv[1:]], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
assert status == 0, status
print(usage.ru_maxrss * 1024)
