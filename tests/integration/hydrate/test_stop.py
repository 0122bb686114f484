# SPDX-License-Identifier: Apache-2.0
"""A run that is stopped ends, whatever is on its way to the disk just then."""
import os
import signal
import subprocess
import time

import pytest

from bench import BUILD, CISTERN, DONE, INTERRUPTED, S3, Bucket, cistern

pytestmark = pytest.mark.timeout(120)


def test_a_part_that_reaches_the_disk_after_the_stop_does_not_hold_it_up(tmp_path):
    """All of it was received: what is left of it is a write, and what is left of its object are parts not asked for."""
    slow = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_SLOW_PWRITE": "2000"}
    with Bucket("l/:1:40Mi") as bucket:
        words = ["hydrate", "s3://bench/l/", tmp_path / "out", "--endpoint", bucket.url, "--quiet", "--no-io-uring",
                 "--concurrency", "1"]
        with subprocess.Popen([CISTERN, *map(str, words)], env={**os.environ, **S3, **slow}) as run:
            while bucket.stats()["bytes_out"] < 8 << 20:
                time.sleep(0.05)
            time.sleep(0.5)
            run.send_signal(signal.SIGTERM)
            try:
                assert run.wait(timeout=20) == INTERRUPTED
            finally:
                run.kill()
        assert cistern(*words).returncode == DONE
    assert [path.stat().st_size for path in (tmp_path / "out").iterdir()] == [40 << 20]
