"""Prints what a process inherits from its parent. With arguments: runs them, with signals that are ignored and blocked."""

import os
import resource
import signal
import subprocess
import sys

if len(sys.argv) > 1:
    for ignored in (signal.SIGPIPE, signal.SIGUSR2):
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGRTMIN])
    os.nice(1)
    os.umask(0o027)
    sys.exit(subprocess.call(sys.argv[1:], restore_signals=False))

WANTED = ("Umask", "SigBlk", "ShdPnd", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Groups", "Uid", "Gid")
for line in open("/proc/self/status"):
    if line.startswith(WANTED):
        print(line.strip())
    if line.startswith("SigIgn"):
        # Without the two that the C library keeps for itself.
        print("ignored", hex(int(line.split()[1], 16) & ~0x180000000))
print([(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name.startswith("RLIMIT")])
print(sorted(os.listdir("/proc/self/fd")), os.getcwd(), os.nice(0), os.getsid(0), os.getpgid(0) == os.getpgid(os.getppid()))
print(open("/proc/self/oom_score_adj").read(), open("/proc/self/timerslack_ns").read())
own = ("FEEDLINE", "LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS")
print(sorted(item for item in os.environ.items() if not item[0].startswith(own)))
