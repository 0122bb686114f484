# SPDX-License-Identifier: Apache-2.0
"""A control group with little memory: without a flag a run takes what fits, or says what it lacks."""
import pytest

from integration.lib.memory import MIB, group, run_in
from paths import CISTERN, files_below
from servers.bucket import KEYS

from .lib import DONE, NO_SPACE, Bucket

pytestmark = pytest.mark.timeout(180)


def hydrate_in(folder, bucket, prefix, out, *flags):
    return run_in(folder, CISTERN, "hydrate", f"s3://bench/{prefix}", out, "--endpoint", bucket.url, "--no-progress",
                  *flags, env=KEYS)


@pytest.fixture(scope="module", name="bucket")
def a_bucket():
    with Bucket("m/small/:3000:100Ki", "m/large/:6:64Mi") as bucket:
        bucket.fault("op=get,do=latency:20")  # so that the window opens
        yield bucket


@pytest.mark.parametrize("mib", [64, 128])
@pytest.mark.parametrize("prefix, count", [("m/small/", 3000), ("m/large/", 6), ("m/", 3006)])
def test_a_run_without_flags_takes_what_a_group_lets_it_have(bucket, tmp_path, mib, prefix, count):
    with group(mib * MIB) as folder:
        done = hydrate_in(folder, bucket, prefix, tmp_path / "out")
    assert done.returncode == DONE, done.stderr
    assert len(files_below(tmp_path / "out")) == count


def test_too_little_is_a_sentence_and_what_it_advises_works(bucket, tmp_path):
    with group(48 * MIB) as folder:
        done = hydrate_in(folder, bucket, "m/small/", tmp_path / "out")
        assert done.returncode == NO_SPACE
        assert "the control group" in done.stderr and "48.0 MiB" in done.stderr and "CIS1516" in done.stderr, done.stderr
        done = hydrate_in(folder, bucket, "m/small/", tmp_path / "out", "--memory", "4Mi", "--concurrency", "8")
        assert done.returncode == DONE, done.stderr
