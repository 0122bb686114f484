# SPDX-License-Identifier: Apache-2.0
"""A run that is stopped ends, whatever is on its way to the disk just then."""
import json
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


@pytest.mark.parametrize("uri", ["s3://bench/l", "s3://bench/l/"], ids=["before", "while"])
def test_a_listing_that_stands_still_does_not_hold_it_up(tmp_path, uri):
    """Also what is asked before it, when the URI may name one object."""
    with Bucket("l/:1:1Ki") as bucket:
        bucket.fault("op=list,do=stall")
        words = ["hydrate", uri, tmp_path / "out", "--endpoint", bucket.url, "--quiet"]
        with subprocess.Popen([CISTERN, *map(str, words)], env={**os.environ, **S3}) as run:
            while bucket.stats()["requests"] < 1:
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            try:
                assert run.wait(timeout=20) == INTERRUPTED
            finally:
                run.kill()
    assert json.loads((tmp_path / ".out.cistern/status.json").read_text())["phase"] == "stopped"
