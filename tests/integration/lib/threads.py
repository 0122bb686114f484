# SPDX-License-Identifier: Apache-2.0
"""Stops one thread of a running program, as a deadlock does, or all of them. Call all of it from the thread that began."""
import ctypes
import os
import signal
import time
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


def _ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())


def find(pid, name):
    """The threads of this name; "main" is the first one."""
    if name == "main":
        return [pid]
    return [int(t.name) for t in Path(f"/proc/{pid}/task").iterdir() if (t / "comm").read_text() == name + "\n"]


def freeze(pid):
    """SIGSTOP. Returns when all threads have stopped: the kernel begins with one of them, once that one has a processor, and
    the others go on until then."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while any((t / "stat").read_text().rpartition(")")[2].split()[0] != "T" for t in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def stop(thread):
    _ptrace(PTRACE_SEIZE, thread)
    _ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)


def go_on(thread):
    _ptrace(PTRACE_DETACH, thread)


def reap(thread):
    """After its process was killed. Until then the parent of the process does not get its end."""
    os.waitpid(thread, WALL)
