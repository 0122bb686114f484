# SPDX-License-Identifier: Apache-2.0
"""A run that is stopped ends, whatever is on its way to the disk just then."""
import os
import signal
import subprocess
import time

import pytest

from paths import BUILD, CISTERN
from servers.bucket import KEYS

from .lib import DONE, INTERRUPTED, Bucket, cistern

pytestmark = pytest.mark.timeout(120)


def stop_when(reached, *words, **environment):
    """Its exit code, 20 seconds after SIGTERM at the latest."""
    with subprocess.Popen([CISTERN, *map(str, words)], env={**os.environ, **KEYS, **environment}) as run:
        try:
            while not reached():
                assert run.poll() is None, "it ended before"
                time.sleep(0.02)
            run.send_signal(signal.SIGTERM)
            return run.wait(timeout=20)
        finally:
            run.kill()


def test_a_part_that_reaches_the_disk_after_the_stop_does_not_hold_it_up(tmp_path):
    """All of it was received: what is left of it is a write, and what is left of its object are parts not asked for."""
    with Bucket("l/:1:40Mi") as bucket:
        words = ["hydrate", "s3://bench/l/", tmp_path / "out", "--endpoint", bucket.url, "--quiet", "--no-io-uring",
                 "--concurrency", "1"]

        def has_sent_a_part():
            if bucket.stats()["bytes_out"] < 8 << 20:
                return False
            time.sleep(0.5)  # on its way through our memory
            return True
        assert stop_when(has_sent_a_part, *words, LD_PRELOAD=str(BUILD / "tests/libfail_call.so"),
                         CISTERN_SLOW_PWRITE="2000") == INTERRUPTED
        assert cistern(*words).returncode == DONE
    assert [path.stat().st_size for path in (tmp_path / "out").iterdir()] == [40 << 20]


@pytest.mark.parametrize("uri", ["s3://bench/l", "s3://bench/l/"], ids=["before", "while"])
def test_a_listing_that_stands_still_does_not_hold_it_up(tmp_path, uri):
    """Also what is asked before it, when the URI may name one object."""
    with Bucket("l/:1:1Ki") as bucket:
        bucket.fault("op=list,do=stall")
        assert stop_when(lambda: bucket.stats()["requests"] >= 1, "hydrate", uri, tmp_path / "out", "--endpoint", bucket.url,
                         "--quiet") == INTERRUPTED
    assert os.listdir(tmp_path) == [], "not one object was listed: there is nothing to continue"
