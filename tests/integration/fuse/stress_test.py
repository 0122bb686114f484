# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of the mount process at 50 random moments under readers, writers, and processes that create and remove names."""

import json
import os
import random
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from . import mounts

KILLS = 50
WORKER = Path(__file__).with_name("stress_worker.py")
USERS = ("reader", "reader", "appender", "appender", "namer", "namer", "namer")


def furnish(data):
    (data / "static").mkdir()
    for size in (1, 4096, 100_000, 3_000_000):
        content = os.urandom(size)
        (data / "static" / str(zlib.crc32(content))).write_bytes(content)


@pytest.mark.parametrize("way", ["must", "plain"])
def test_fifty_kills_at_random_moments_are_invisible_to_users(volumes, way):
    volume = volumes("v", "exclusive", way)
    furnish(volume.data)
    seed = int(os.environ.get("CISTERN_TEST_SEED", random.randrange(1 << 30)))
    chance = random.Random(seed)
    pauses = [chance.choice((0.02, 0.1, 0.2, 0.3, 0.5)) * chance.random() + 0.03 for _ in range(KILLS)]
    seconds = sum(pauses) + 3
    users = [
        subprocess.Popen(
            [sys.executable, WORKER, kind, volume.path, str(seconds), str(seed + i)], stdout=subprocess.PIPE, text=True
        )
        for i, kind in enumerate(USERS)
    ]
    time.sleep(0.5)
    for pause in pauses:
        volume.kill()
        time.sleep(pause)
    reports = [json.loads(user.communicate(timeout=90)[0]) for user in users]
    print("seed", seed, "restarts", volume.status()["restarts"], reports)
    assert [error for report in reports for error in report["errors"]] == []
    assert all(report["rounds"] > 10 for report in reports)
    assert max(report["longest"] for report in reports) < 10
    subprocess.run(["rm", "-rf", *volume.path.iterdir()], check=True)

    # The kernel does not resend a `FORGET`: a few nodes too many may stay in the table, but no opens.
    mounts.wait_for("every open to be counted back", lambda: volume.status()["opens"] == "0")
    assert int(volume.status()["nodes"]) < 200
    assert os.listdir(volume.data) == []
