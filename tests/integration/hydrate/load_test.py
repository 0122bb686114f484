# SPDX-License-Identifier: Apache-2.0
"""Thousands of objects, with hedges, faults and interruptions beside each other: for the thread sanitizer above all."""
import os
import random
import signal
import subprocess
import time

import pytest

from paths import CISTERN
from servers.bucket import KEYS

from .lib import DONE, INTERRUPTED, Bucket

SMALL, LARGE = 3000, 6
FAULTS = ("op=get,percent=1,do=status:503", "op=get,percent=1,do=reset:700", "op=get,percent=1,do=truncate:500",
          "op=get,after=100,every=701,times=3,do=corrupt", "op=list,percent=20,do=status:500",
          "op=get,after=600,every=300,do=latency:2500", "op=get,do=latency:2")


def blocks(pid, number):
    """Whether the process blocks the signal. Before it does, the signal kills it."""
    with open(f"/proc/{pid}/status") as status:
        mask = next(line.split()[1] for line in status if line.startswith("SigBlk"))
    return int(mask, 16) >> (number - 1) & 1


@pytest.mark.tsan
@pytest.mark.timeout(900)
def test_under_faults_hedges_and_interruptions_thousands_of_objects_arrive(tmp_path):
    dice = random.Random(int(os.environ.get("CISTERN_SEED", "1")))
    out = tmp_path / "out"
    with Bucket(f"l/small/:{SMALL}:500-20000", f"l/large/:{LARGE}:9000000-12000000") as bucket:
        bucket.fault(*FAULTS)
        command = [CISTERN, "hydrate", "s3://bench/l/", out, "--endpoint", bucket.url, "--quiet", "--concurrency", "64"]
        for _ in range(4):
            with subprocess.Popen(command, env=os.environ | KEYS) as run:
                while run.poll() is None and not blocks(run.pid, signal.SIGINT):
                    time.sleep(0.01)
                time.sleep(dice.uniform(0, 1))
                run.send_signal(signal.SIGINT)
                assert run.wait(timeout=180) in (INTERRUPTED, DONE)
        assert subprocess.run(command, env=os.environ | KEYS, timeout=300, check=False).returncode == DONE
        bucket.no_faults()
        files = [p for p in out.rglob("*") if p.is_file()]
        assert len(files) == SMALL + LARGE
        for path in dice.sample(files, 100):
            assert path.read_bytes() == bucket.content(f"l/{path.relative_to(out)}"), path
