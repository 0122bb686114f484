# SPDX-License-Identifier: Apache-2.0
"""A control group with little memory, and programs in it."""

import contextlib
import os
import pathlib
import subprocess

ROOT = pathlib.Path("/sys/fs/cgroup")
MIB = 1 << 20


@contextlib.contextmanager
def group(limit):
    """A directory of its own in the hierarchy that has memory; processes enter it by its cgroup.procs."""
    one = (ROOT / "memory").exists()
    folder = (ROOT / "memory" if one else ROOT) / f"cistern-test-{os.getpid()}"
    if not one:
        (ROOT / "cgroup.subtree_control").write_text("+memory")
    folder.mkdir()
    try:
        (folder / ("memory.limit_in_bytes" if one else "memory.max")).write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def run_in(folder, *words, env):
    """In a process that is in the group before it begins."""
    return subprocess.run(["sh", "-c", 'echo $$ > "$0" && exec "$@"', folder / "cgroup.procs", *map(str, words)],
                          env=os.environ | env, capture_output=True, text=True, timeout=170, check=False)
