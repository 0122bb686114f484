# SPDX-License-Identifier: Apache-2.0
"""A volume whose pool is filled by other files until not a block is left."""
import pytest

from integration.lib.disk import Disk, fill
from servers.bucket import BucketServer

from .volume_test import Volume

FILES = [f"{n:04d}-{'x' * 240}" for n in range(1500)]


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk", "400M", "xfs")
    yield made
    made.unmount()


def test_the_first_run_begins_on_a_full_disk(disk):
    with BucketServer() as bucket:
        volume = Volume(disk.path, bucket)
        volume.write("first", b"x")
        assert volume.export().returncode == 0
        records = volume.folder / "export"
        assert {"lock", "reserve"} < {p.name for p in records.iterdir()}
        for record in records.iterdir():  # a publish makes these two (unit-export-verdict)
            if record.name not in ("lock", "reserve"):
                record.unlink()
        volume.write("second", b"y")
        fill(disk.path / "large")
        done = volume.export("--for", "release")
        assert done.returncode == 0 and volume.verdict()["state"] == "done", done
        assert set(bucket.uploads()) == {"p/first", "p/second"}


def test_a_run_whose_records_fill_the_disk_ends_as_failed_with_the_cause(disk):
    with BucketServer() as bucket:
        volume = Volume(disk.path, bucket)
        volume.write("first", b"x")
        assert volume.export().returncode == 0  # makes the reserve, as a publish does
        for name in FILES:
            volume.write(name, b"x")
        fill(disk.path / "large")
        done = volume.export("--for", "release")
        verdict = volume.verdict()
        assert done.returncode != 0 and verdict["state"] == "failed", (done, verdict)
        assert "No space left on device" in verdict["failures"][0]["text"], verdict["failures"]
        assert 100 < verdict["done"]["files"] < len(FILES)
        (disk.path / "large").unlink()
        assert volume.export("--for", "release").returncode == 0
        assert volume.verdict()["state"] == "done" and len(bucket.uploads()) == len(FILES) + 1
