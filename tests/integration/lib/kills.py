# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a program in place of one of its system calls. A kill after a random time comes late on a busy machine, when
the program has ended."""

import signal
import subprocess

from paths import BUILD

PRELOAD = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so")}


def count_calls(command, env, folder):
    """The calls of a whole run: it must succeed."""
    count = folder / "calls"
    subprocess.run(command, env={**env, **PRELOAD, "CISTERN_FAIL_COUNT": str(count)}, stdout=subprocess.DEVNULL, timeout=300,
                   check=True)
    return int(count.read_text())


def kill_at(call, command, env, **which):
    """Kills a run in place of that call; `which`: other variables of fail_call.c. False: the run ended before."""
    done = subprocess.run(command, env={**env, **PRELOAD, **which, "CISTERN_FAIL_AT": str(call), "CISTERN_FAIL_KILL": "1"},
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode == -signal.SIGKILL


def kill_after_a_part(command, env):
    """Kills an export in place of the record of its second part: the logbook has the first."""
    assert kill_at(2, command, env, CISTERN_FAIL_NAME="write", CISTERN_FAIL_TEXT=" P ")
