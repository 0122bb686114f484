# SPDX-License-Identifier: Apache-2.0
"""An export in a control group with little memory takes what fits, or says what it lacks."""

import os
import subprocess

import pytest

from integration.lib.memory import MIB, group, run_in
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

pytestmark = pytest.mark.timeout(180)
NO_SPACE = 6


@pytest.fixture(scope="module", name="source")
def a_source(tmp_path_factory):
    """Large files, whose parts fill all buffers, and small ones, of which many are open at once."""
    top = tmp_path_factory.mktemp("source")
    for i in range(4):
        (top / f"large-{i}").write_bytes(bytes([i]) * (64 * MIB))
    for i in range(2000):
        (top / f"small-{i}").write_bytes(b"x" * (100 << 10))
    return top


def export_in(folder, bucket, source, *flags):
    return run_in(folder, CISTERN, "export", "--no-progress", "--path-style", "--endpoint", bucket.url, *flags, source,
                  "s3://bench/out/", env=KEYS)


@pytest.mark.parametrize("mib", [32, 128])
def test_an_export_takes_what_a_group_lets_it_have(bucket, source, mib):
    with group(mib * MIB) as folder:
        done = export_in(folder, bucket, source)
    assert done.returncode == 0 and "sent 2004," in done.stdout, (done.stdout, done.stderr)


def test_too_little_is_a_sentence(bucket, source):
    with group(24 * MIB) as folder:
        done = export_in(folder, bucket, source)
        assert done.returncode == NO_SPACE and "CIS1516" in done.stderr, done.stderr
        assert "the control group of this process has 24.0 MiB of memory, and 32.0 MiB are needed" in done.stderr
        assert export_in(folder, bucket, source, "--dry-run").returncode == 0, "it needs no buffers"


def test_files_whose_parts_do_not_fit_are_named_and_the_others_are_sent(bucket, tmp_path):
    """Sparse, on a file system that lets them be. S3 takes 10,000 parts. More files than make a run give up."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path], check=True)
    try:
        for i in range(20):
            (tmp_path / f"huge-{i:02}").touch()
            os.truncate(tmp_path / f"huge-{i:02}", 3 << 40)
        (tmp_path / "small").write_bytes(b"x")
        with group(128 * MIB) as folder:
            done = export_in(folder, bucket, tmp_path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert done.returncode == 1 and "sent 1, already there 0, failed 20" in done.stdout + done.stderr, done.stderr
    for i in range(20):
        assert f"'huge-{i:02}' has 3.00 TiB: to send it needs a memory limit of 632 MiB" in done.stderr
