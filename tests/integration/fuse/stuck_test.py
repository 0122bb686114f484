# SPDX-License-Identifier: Apache-2.0
"""Mount processes that answer nothing: the keeper kills those that are stopped, and not those that wait for the disk."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from . import mounts

SECONDS = 180  # the keeper acts after 25 s, and takes longer on a busy machine


class Worker(threading.Thread):
    """Calls `act` again and again; the first error ends it."""

    def __init__(self, act):
        super().__init__(daemon=True)
        self.act, self.rounds, self.error, self.stop_now = act, 0, None, False
        self.start()

    def run(self):
        try:
            while not self.stop_now:
                self.act()
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def goes_on(self, rounds=3):
        end = self.rounds + rounds
        mounts.wait_for("the work to go on", lambda: self.error or self.rounds >= end, SECONDS)
        assert self.error is None, self.error

    def stop(self):
        self.stop_now = True
        self.join(SECONDS)
        assert not self.is_alive() and self.error is None, self.error


def stopped(pid):
    return "State:\tT" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.timeout(600)
def test_stopped_mount_process_is_killed_and_its_callers_get_no_error(volumes):
    volume = volumes("v", "exclusive", "must")
    content = os.urandom(100_000)
    (volume.path / "file").write_bytes(content)

    def read():
        assert (volume.path / "file").read_bytes() == content
        assert not (volume.path / "absent").exists()

    def write():
        path, other = volume.path / "new", volume.path / "renamed"
        path.write_bytes(content)
        os.rename(path, other)
        assert other.read_bytes() == content
        os.unlink(other)

    workers = [Worker(read), Worker(write)]
    for worker in workers:
        worker.goes_on()
    pid = volume.keeper.pid("v")
    os.kill(pid, signal.SIGSTOP)
    try:
        mounts.wait_for("another mount process", lambda: volume.keeper.pid("v") != pid, SECONDS)
    finally:
        volume.kill(signal.SIGCONT)
    for worker in workers:
        worker.goes_on()
        worker.stop()
    assert os.listdir(volume.path) == ["file"]
    log = volume.keeper.log.read_text()
    assert "mount process is stuck" in log and f"mount process {pid} is killed" in log
    assert int(volume.status()["restarts"]) == 1


def test_stopped_mount_process_without_requests_stays(volumes):
    idle, volume = volumes("idle", "exclusive"), volumes("v", "exclusive")
    pids = [volume.keeper.pid(name) for name in ("idle", "v")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        caller = Worker(lambda: (volume.path / "absent").exists())
        mounts.wait_for("the end of the one that has requests", lambda: volume.keeper.pid("v") != pids[1], SECONDS)
        caller.goes_on()
        caller.stop()
        assert stopped(pids[0]) and volume.keeper.pid("idle") == pids[0]
    finally:
        os.kill(pids[0], signal.SIGCONT)
    assert os.listdir(idle.path) == []


@pytest.mark.timeout(600)
def test_mount_process_that_waits_for_its_disk_is_not_killed(disk, volumes):
    volume = volumes("v", "exclusive", "must")
    pid = volume.keeper.pid("v")
    subprocess.run(["fsfreeze", "--freeze", disk.path], check=True)
    try:
        maker = subprocess.Popen(["mkdir", volume.path / "made"])
        mounts.wait_for("the keeper's word", lambda: "mount waits for its disk" in volume.keeper.log.read_text(), SECONDS)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", disk.path], check=True)
    assert maker.wait(SECONDS) == 0
    assert volume.keeper.pid("v") == pid and int(volume.status()["restarts"]) == 0
    assert "is stuck" not in volume.keeper.log.read_text()


@pytest.mark.timeout(900)
def test_mount_whose_processes_never_answer_is_aborted(disk, tmp_path):
    """Each stops after it has read its only request, so no request is left in the kernel's queue."""
    keeper = mounts.Keeper(tmp_path)
    keeper.stop()
    keeper.env["CISTERN_TEST_STOP"] = "mkdir:before"
    keeper.start()
    volume = mounts.Volume(keeper, disk, tmp_path, "v", "exclusive")
    try:
        maker = subprocess.Popen(["mkdir", volume.path / "made"], stderr=subprocess.PIPE, text=True)
        mounts.wait_for("the mount to be given up", lambda: "mount given up" in keeper.log.read_text(), 4 * SECONDS)
        _, error = maker.communicate(timeout=SECONDS)
        assert maker.returncode != 0 and ("not connected" in error or "abort" in error), error
        assert "NOT_FOUND" in keeper.ask("status", "v", check=False).stderr
    finally:
        keeper.ask("unmount", "v", 0, check=False)
        subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", volume.data], check=True)
        keeper.stop()
