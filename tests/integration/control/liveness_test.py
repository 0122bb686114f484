# SPDX-License-Identifier: Apache-2.0
"""The liveness probe of the controller."""

import ctypes
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from integration.lib.control import Controller, eventually

PTRACE_DETACH, PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 24, 0x4206, 0x4207
WALL = 0x40000000
EPOLL_WAITS = {"232", "281"} if os.uname().machine == "x86_64" else {"22"}


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())


def stop_within_a_turn(thread):
    """A loop that waits for events is healthy for any time: stops it at another system call."""
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
    while Path(f"/proc/{thread}/syscall").read_text().split()[0] in EPOLL_WAITS:
        ptrace(PTRACE_SYSCALL, thread)
        os.waitpid(thread, WALL)


def health(controller):
    """(status, body) of /healthz."""
    port = re.search(r'event="metrics are served" port=(\d+)', controller.log_text()).group(1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


@pytest.mark.timeout(300)
def test_controller_whose_api_loop_is_stuck_is_not_alive(cluster, tmp_path):
    controller = Controller(cluster, tmp_path, flags=["--metrics=127.0.0.1:0"]).start()
    try:
        assert health(controller)[0] == 200
        threads = Path(f"/proc/{controller.process.pid}/task").iterdir()
        loop, = [int(t.name) for t in threads if (t / "comm").read_text() == "loop/0\n"]
        stop_within_a_turn(loop)
        status, text = eventually(lambda: (h := health(controller))[0] != 200 and h, 120)
        assert status == 503 and "loop of the API client is stuck" in text
        ptrace(PTRACE_DETACH, loop)
        eventually(lambda: health(controller)[0] == 200)
    finally:
        controller.kill()
