"""Runs a command that may not record perf events, as in many containers: `perf_event_open` fails with EPERM."""

import ctypes
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}[platform.machine()]

statements = [
    (LOAD, 0, 0, 0),  # The number of the system call.
    (JUMP_IF_EQUAL, 0, 1, PERF_EVENT_OPEN),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *statement) for statement in statements))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(statements), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
