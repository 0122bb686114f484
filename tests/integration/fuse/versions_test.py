# SPDX-License-Identifier: Apache-2.0
"""Keepers, mount processes and drivers of neighbouring versions roll forward and back under load."""

import os
import subprocess
import threading

import pytest

from . import mounts

TESTS = mounts.BUILD / "tests"
TODAY = (mounts.KEEPER, mounts.MOUNT_PROCESS, mounts.CLIENT)
NEWER = (TESTS / "keeper_newer", TESTS / "mount_newer", TESTS / "client_newer")
NEWEST = (TESTS / "keeper_newest", TESTS / "mount_newest", TESTS / "client_newest")


class Load:
    """A reader of one file and a writer of many, until stop(). Either reports its first error."""

    def __init__(self, path):
        self.path, self.errors, self.turns, self.ending = path, [], [0, 0], threading.Event()
        (path / "read").write_bytes(b"content" * 10_000)
        self.threads = [threading.Thread(target=self.run, args=(n, work)) for n, work in enumerate((self.read, self.write))]
        for t in self.threads:
            t.start()

    def read(self, _):
        assert (self.path / "read").read_bytes() == b"content" * 10_000

    def write(self, turn):
        path = self.path / f"written-{turn % 50}"
        path.write_bytes(b"%d" % turn)
        os.rename(path, self.path / "renamed")
        assert (self.path / "renamed").read_bytes() == b"%d" % turn
        os.unlink(self.path / "renamed")

    def run(self, n, work):
        while not self.ending.is_set() and not self.errors:
            try:
                work(self.turns[n])
                self.turns[n] += 1
            except (OSError, AssertionError) as e:
                self.errors.append(e)

    def goes_on(self):
        before = list(self.turns)
        mounts.wait_for("reads and writes", lambda: self.errors or all(a > b + 20 for a, b in zip(self.turns, before)), 30)
        assert not self.errors, self.errors

    def stop(self):
        self.ending.set()
        for t in self.threads:
            t.join(30)
        assert not self.errors, self.errors


@pytest.fixture
def mirror():
    made = []

    def make(client, socket):
        made.append(subprocess.Popen([client, socket, "mirror"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return made[-1]
    yield make
    for m in made:
        m.stdin.close()
        m.wait(60)


def holds(mirror):
    mirror.stdin.write("\n")
    mirror.stdin.flush()
    return mirror.stdout.readline().split() == ["1", "1"]


def status(client, socket):
    return subprocess.run([client, socket, "status", "v"], capture_output=True, text=True, check=False)


def roll(keeper, programs):
    older = keeper.process
    keeper.binary, keeper.program, _ = programs
    keeper.start()
    assert older.wait(60) == 0


def test_keepers_roll_forward_and_back_under_load_without_an_error(volumes, mirror):
    volume = volumes("v", "exclusive")
    keeper = volume.keeper
    drivers = [mirror(TODAY[2], keeper.socket), mirror(NEWER[2], keeper.socket)]
    load = Load(volume.path)
    for programs in (NEWER, TODAY, NEWER, TODAY):
        roll(keeper, programs)
        load.goes_on()
        for client in (TODAY[2], NEWER[2]):
            assert "state=serving" in status(client, keeper.socket).stdout
        mounts.wait_for("the mirrors", lambda: all(holds(d) for d in drivers), 30)
    load.stop()


def test_mirrors_of_other_versions_give_back_what_a_killed_keeper_held(volumes, mirror):
    volume = volumes("v", "exclusive")
    keeper = volume.keeper
    driver = mirror(NEWER[2], keeper.socket)
    mounts.wait_for("the mirror", lambda: holds(driver), 30)
    load = Load(volume.path)
    for programs in (NEWER, TODAY):
        keeper.process.kill()
        keeper.process.wait()
        keeper.binary, keeper.program, _ = programs
        keeper.start()
        load.goes_on()
        mounts.wait_for("the mirror", lambda: holds(driver), 30)
    load.stop()


@pytest.fixture
def newest(disk, tmp_path):
    """A volume whose table today's programs cannot read."""
    keeper = mounts.Keeper(tmp_path, program=NEWEST[1], binary=NEWEST[0])
    volume = mounts.Volume(keeper, disk, tmp_path, "v", "exclusive")
    yield volume
    keeper.ask("unmount", "v", 0, check=False)
    keeper.stop()
    subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
    subprocess.run(["rm", "-rf", volume.data], check=True)


def test_take_over_that_cannot_read_the_tables_is_refused_and_the_other_keeper_goes_on(newest, mirror):
    volume, keeper = newest, newest.keeper
    driver = mirror(TODAY[2], keeper.socket)
    mounts.wait_for("the mirror", lambda: holds(driver), 30)
    load = Load(volume.path)
    pid = keeper.pid("v")
    for _ in range(3):
        done = subprocess.run([TODAY[0], "--socket", keeper.socket, "--mount-program", TODAY[1]], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode != 0 and "is of version 2" in done.stderr and "reads 1" in done.stderr
    assert keeper.pid("v") == pid and keeper.process.poll() is None
    load.goes_on()
    # The keeper dies, and the next is too old: the mirror keeps the mount for one that is not.
    keeper.process.kill()
    keeper.process.wait()
    keeper.binary, keeper.program, _ = TODAY
    keeper.start()
    mounts.wait_for("the refusal", lambda: "reads versions 1 to 1" in keeper.log.read_text(), 30)
    roll(keeper, NEWEST)
    load.goes_on()
    load.stop()


def test_tables_of_the_version_before_are_read(volumes):
    volume = volumes("v", "exclusive")
    load = Load(volume.path)
    roll(volume.keeper, NEWEST)
    load.goes_on()
    roll(volume.keeper, TODAY)
    load.goes_on()
    load.stop()
