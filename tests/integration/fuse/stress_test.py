# SPDX-License-Identifier: Apache-2.0
"""The mount process or the keeper dies at random moments under users who know what must be there afterwards."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from . import mounts
from .keeper_test import mirrors  # noqa: F401

KILLS, KEEPERS = 50, 12
WORKER = Path(__file__).with_name("stress_worker.py")
USERS = {
    "names": ("reader", "reader", "appender", "appender", "namer", "namer", "namer"),
    "calls": ("mapper", "direct", "holes", "copier", "locker", "locker", "range locker", "range locker", "nameless",
              "attributes", "mover", "lister"),
    "programs": ("database", "repository", "builder", "loader"),
}


def furnish(data):
    (data / "static").mkdir()
    for size in (1, 4096, 100_000, 3_000_000):
        content = os.urandom(size)
        (data / "static" / str(zlib.crc32(content))).write_bytes(content)


class Crowd:
    """Users, each a process, that work until they are asked for their reports, and at least for some rounds."""

    LONGEST = 60  # seconds: a round that waits for a lost reply never ends

    def __init__(self, volume, kinds, rounds, seed):
        furnish(volume.data)
        self.volume, self.seed = volume, seed
        self.users = [
            subprocess.Popen([sys.executable, WORKER, kind, volume.path, str(rounds), str(seed + i)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
            for i, kind in enumerate(kinds)
        ]
        for user in self.users:
            assert user.stdout.readline() == "begins\n"

    def reports(self):
        for user in self.users:
            user.stdin.close()
            user.stdin = None  # communicate() would flush it
        said = [user.communicate(timeout=240)[0] for user in self.users]
        assert [user.returncode for user in self.users] == [0] * len(self.users), said
        found = [json.loads(line) for line in said]
        print("seed", self.seed, "restarts", self.volume.status()["restarts"], found)
        assert [error for report in found for error in report["errors"]] == []
        assert max(report["longest"] for report in found) < self.LONGEST


@pytest.fixture
def seed():
    return int(os.environ.get("CISTERN_TEST_SEED", random.randrange(1 << 30)))


@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("way", ["must", "plain"])
def test_fifty_kills_at_random_moments_are_invisible_to_users(volumes, seed, way, who):
    volume = volumes("v", "exclusive", way)
    chance = random.Random(seed)
    pauses = [chance.choice((0.01, 0.05, 0.1, 0.15, 0.25)) * chance.random() + 0.02 for _ in range(KILLS)]
    crowd = Crowd(volume, USERS[who], 1 if who == "programs" else 11, seed)
    for pause in pauses:
        volume.kill()
        time.sleep(pause)
    crowd.reports()
    subprocess.run(["rm", "-rf", *volume.path.iterdir()], check=True)

    # The kernel does not resend a `FORGET`: a few nodes too many may stay in the table, but no opens.
    mounts.wait_for("every open to be counted back", lambda: volume.status()["opens"] == "0")
    assert int(volume.status()["nodes"]) < 200
    assert os.listdir(volume.data) == []


def test_mount_processes_that_are_stopped_and_then_killed_or_not_are_only_slow(volumes, seed):
    volume = volumes("v", "exclusive", "must")
    chance = random.Random(seed)
    crowd = Crowd(volume, USERS["calls"], 11, seed)
    for _ in range(30):
        volume.kill(signal.SIGSTOP)
        time.sleep(chance.random() / 5)
        volume.kill(chance.choice((signal.SIGCONT, signal.SIGKILL)))
        time.sleep(chance.random() / 5)
    crowd.reports()


def test_keepers_killed_with_their_mount_process_are_not_noticed(volumes, mirrors, seed):  # noqa: F811
    volume = volumes("v", "exclusive", "must")
    mirror, chance = mirrors(volume.keeper), random.Random(seed)
    mirror.wait_for(1)
    crowd = Crowd(volume, USERS["calls"], 11, seed)
    for _ in range(KEEPERS):
        if chance.random() < 0.5:
            volume.kill()
        volume.keeper.process.kill()
        volume.keeper.process.wait()
        volume.keeper.start()
        mounts.wait_for("the mount", lambda: volume.keeper.ask("status", "v", check=False).returncode == 0)
        mirror.wait_for(1)
        time.sleep(chance.random() / 2)
    crowd.reports()
