# SPDX-License-Identifier: Apache-2.0
"""The keeper and a mount process with the Nth call to the system failing, once. Every caller gets a reply or an
error, no process hangs or crashes, and the mount works afterwards.
CISTERN_FAIL_EVERY=1 fails every call; without it a few are drawn by CISTERN_SEED."""
import errno
import os
import random
import subprocess
import sys

import pytest

from . import mounts

EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SEED = int(os.environ.get("CISTERN_SEED", "1"))
DRAWN = 2
WORK = """
import os, sys
top = sys.argv[1]
path, other = os.path.join(top, "a"), os.path.join(top, "b")
with open(path, "wb") as f:
    f.write(b"words" * 1000); f.flush(); os.fsync(f.fileno())
assert open(path, "rb").read() == b"words" * 1000
os.rename(path, other)
assert os.listdir(top) == ["b"] and os.stat(other).st_size == 5000
os.mkdir(path); os.rmdir(path); os.symlink("b", path); assert os.readlink(path) == "b"
os.unlink(path); os.truncate(other, 10); os.chmod(other, 0o600)
assert open(other, "rb").read() == b"wordswords"
os.unlink(other)
"""
TIDY = 'import os, sys, shutil\nfor e in os.scandir(sys.argv[1]):\n    shutil.rmtree(e.path) if e.is_dir(follow_symlinks=False) else os.unlink(e.path)'


def on_mount(text, path):
    """In a process of its own: what hangs is seen."""
    return subprocess.run([sys.executable, "-c", text, str(path)], capture_output=True, text=True, timeout=30, check=False)


class Hurt(mounts.Keeper):
    def __init__(self, folder, program, **fail):
        self.fail = {"LD_PRELOAD": str(mounts.BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_PROGRAM": program,
                     "CISTERN_FAIL_ONCE": str(folder / "failed")} | {f"CISTERN_FAIL_{k}": str(v) for k, v in fail.items()}
        super().__init__(folder)

    def start(self):
        self.env |= self.fail
        super().start()


def walk(keeper, disk, folder, patience):
    """Mount, work, unmount; each is asked for again until `patience` is over."""
    data, path = disk.path / folder.name, folder / "mnt"
    data.mkdir(exist_ok=True)
    path.mkdir(exist_ok=True)
    for _ in range(patience):
        done = keeper.ask("mount", "v", data, path, check=False)
        if done.returncode == 0:
            break
        assert done.stderr.strip(), "refused without a sentence"
    assert done.returncode == 0, done.stderr
    for _ in range(patience):
        work = on_mount(WORK, path)
        if work.returncode == 0:
            break
        assert "OSError" in work.stderr or "Error: [Errno" in work.stderr, work.stderr
        on_mount(TIDY, path)
    assert work.returncode == 0, work.stderr
    for _ in range(patience):
        done = keeper.ask("unmount", "v", 5000, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    data.rmdir()


def start(folder, program, **fail):
    """NULL: it says that it cannot, which is an answer too."""
    try:
        return Hurt(folder, program, **fail)
    except AssertionError:
        log = (folder / "keeper.log").read_text()
        assert "cistern-keeper: " in log or "error" in log, log
        return None


@pytest.fixture(scope="module", params=["cistern-keeper", "mount_process"])
def program(request):
    return request.param


@pytest.fixture(scope="module")
def total(disk, tmp_path_factory, program):
    folder = tmp_path_factory.mktemp("whole")
    keeper = Hurt(folder, program, COUNT=folder / "count")
    walk(keeper, disk, folder, 1)
    keeper.stop()
    found = int((folder / "count").read_text())
    assert found > 5, "the harness does not see the calls"
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_mount_outlives_the_failure_of_any_one_call(disk, tmp_path, program, total, number):
    drawn = sorted(random.Random(f"{SEED} {number} {program}").sample(range(1, total + 1), min(DRAWN, total)))
    for n in range(1, total + 1, EVERY) if EVERY else drawn:
        folder = tmp_path / f"n{n}"
        folder.mkdir()
        keeper = start(folder, program, AT=n, ERRNO=number)
        if not keeper:
            keeper = start(folder, program, AT=n, ERRNO=number)
        assert keeper, f"call {n} of {total}: it does not start a second time"
        try:
            walk(keeper, disk, folder, 5)
            keeper.stop()
            assert keeper.process.returncode >= 0, f"call {n} of {total}: {keeper.process.returncode}"
        finally:
            if keeper.process.poll() is None:
                keeper.process.kill()
            subprocess.run(["umount", "-l", folder / "mnt"], capture_output=True, check=False)
