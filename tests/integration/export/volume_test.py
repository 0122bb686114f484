# SPDX-License-Identifier: Apache-2.0
"""The export of a volume, by its own parameters and policy."""

import errno
import json
import os
import subprocess

import pytest

from paths import BUILD, CISTERN
from servers.bucket import KEYS, BucketServer

MIB = 1 << 20


@pytest.fixture
def bucket():
    with BucketServer("--latency", "20ms") as running:
        yield running


class Volume:
    """A volume's directory as the driver makes it, without a driver."""

    def __init__(self, top, bucket, policy=None, **parameters):
        self.folder = top / "volume"
        (self.folder / "data").mkdir(parents=True)
        export = {"uri": "s3://bench/p/", "endpoint": bucket.url, "settle": "0s"} | (policy or {})
        (self.folder / "volume.json").write_text(json.dumps({
            "version": 1, "id": "v1-0123456789ab-0123456789ab", "name": "pvc-1", "capacityBytes": 1 << 30,
            "createdAt": "2026-11-21T09:00:00Z", "backend": "quota", "project": 0, "parameters": parameters,
            "source": {"pathStyle": True, "export": export}}))

    def write(self, name, content):
        path = self.folder / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    def export(self, *flags, **environment):
        return subprocess.run([CISTERN, "export", "--volume", self.folder, "--quiet", *flags], timeout=120, text=True,
                              env=os.environ | KEYS | environment, stderr=subprocess.PIPE, check=False)

    def verdict(self):
        return json.loads((self.folder / "export/verdict.json").read_text())


def test_the_bandwidth_of_a_volume_is_that_of_its_export_too(tmp_path, bucket):
    volume = Volume(tmp_path, bucket, bandwidth=2 * MIB)
    volume.write("large", os.urandom(6 * MIB))
    assert volume.export().returncode == 0
    verdict = volume.verdict()
    assert verdict["updatedNs"] - verdict["startedNs"] > 1.5e9  # a tenth of a second of it at once, a second may be caught up


def test_the_concurrency_of_a_volume_is_that_of_its_export_too_and_a_flag_says_otherwise(tmp_path, bucket):
    volume = Volume(tmp_path, bucket, concurrency=2)
    for flags, most in ((), 2), (("--concurrency", "8"), 8):
        for i in range(40):
            volume.write(f"{len(flags)}-{i}", b"x")
        bucket.forget_stats()
        assert volume.export(*flags).returncode == 0
        assert bucket.stats()["connections"] - 1 <= most


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV, errno.ENXIO], ids=os.strerror)
def test_metrics_that_the_disk_does_not_give_fail_the_export_by_name(tmp_path, bucket, number):
    """They may be those of the best checkpoint, whose loss would stay unnoticed."""
    best = {"group": "directory", "best": {"file": "metrics.json", "key": "loss", "order": "min", "count": 1}}
    volume = Volume(tmp_path, bucket, policy={"select": best})
    for step in 1, 2:
        volume.write(f"step-{step}/metrics.json", b'{"loss":%d}' % step)
        volume.write(f"step-{step}/weights", b"x")
    failing = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_NAME": "pread", "CISTERN_FAIL_AT": "1",
               "CISTERN_FAIL_ERRNO": str(number)}
    done = volume.export(**failing)
    assert done.returncode != 0 and "step-1/metrics.json" in done.stderr, done.stderr
    assert volume.verdict()["state"] == "failed"
    assert volume.export().returncode == 0
    assert {"p/step-1/metrics.json", "p/step-1/weights"} <= set(bucket.uploads())


@pytest.mark.parametrize("flag", [("--since", "2030-01-01T00:00:00Z"), ("--include", "*.pt"), ("--exclude", "*")])
def test_only_its_policy_says_what_of_a_volume_is_exported(tmp_path, bucket, flag):
    """A verdict for release lets all go that the policy asks for."""
    volume = Volume(tmp_path, bucket)
    volume.write("weights", b"x")
    done = volume.export("--for", "release", *flag)
    assert done.returncode == 2 and flag[0] in done.stderr, done.stderr
    assert not (volume.folder / "export/verdict.json").exists()
