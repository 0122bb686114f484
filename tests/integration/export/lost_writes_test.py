# SPDX-License-Identifier: Apache-2.0
"""A disk that fails after a program has closed its file: the kernel drops the data, and the file then has zeros."""
import errno
import os
import subprocess

import pytest

from integration.lib.kills import PRELOAD
from paths import BUILD
from servers.bucket import BucketServer

from .volume_test import Volume

MIB = 1 << 20


class ThinDisk:
    """An XFS on a loop device whose image cannot grow: writes to new blocks fail below, as on a broken disk."""

    def __init__(self, top, at):
        self.store, self.at = top / "thin", at
        self.store.mkdir()
        at.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M", "thin", self.store], check=True)
        image = self.store / "image"
        subprocess.run(["truncate", "-s", "400M", image], check=True)
        subprocess.run(["mkfs.xfs", "-q", "-K", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, at], check=True)

    def break_down(self):
        os.sync()
        with open(self.store / "fill", "wb", buffering=0) as f, pytest.raises(OSError):
            while True:
                f.write(bytes(MIB))

    def repair(self):
        (self.store / "fill").unlink()

    def remove(self):
        subprocess.run(["umount", self.at], check=True)
        subprocess.run(["umount", "--lazy", self.store], check=True)  # another test's machine may have a copy of the other mount


@pytest.fixture
def bucket():
    with BucketServer() as running:
        yield running


@pytest.fixture(params=["loop", "quota"])
def disk(request, tmp_path, bucket):
    """The volume's own file system, or that of its pool."""
    if request.param == "quota":
        made = ThinDisk(tmp_path, tmp_path / "pool")
        made.volume = Volume(tmp_path / "pool", bucket)
    else:
        volume = Volume(tmp_path, bucket)
        spec = volume.folder / "volume.json"
        spec.write_text(spec.read_text().replace('"quota"', '"loop"'))
        made = ThinDisk(tmp_path, volume.folder / "data")
        made.volume = volume
    yield made
    made.remove()


def write(path, content):
    path.write_bytes(content)
    os.sync()  # as the kernel does it half a minute later; reports no error


def outcome(volume, **environment):
    done = volume.export("--for", "unpublish", **environment)
    return done.returncode == 0, done.stderr, volume.verdict()["state"]


def test_a_file_of_which_the_disk_lost_data_is_not_exported_until_it_is_written_again(disk, bucket):
    volume, bad = disk.volume, disk.volume.folder / "data/bad"
    write(volume.folder / "data/good", b"x" * MIB)
    disk.break_down()
    write(bad, b"b" * 8 * MIB)
    disk.repair()
    for _ in range(2):  # the kernel reports it to the first run only
        succeeded, said, state = outcome(volume)
        assert not succeeded and state == "failed" and "CIS4024" in said and "'bad'" in said, said
        assert set(bucket.uploads()) == {"p/good"}
    for name in ("renamed/bad", "renamed/again"):
        new = volume.folder / "data" / name
        new.parent.mkdir(exist_ok=True)
        bad = bad.rename(new)
        assert f"'{name}'" in outcome(volume)[1]
    bad = bad.rename(volume.folder / "data/bad")
    write(bad, b"b" * 8 * MIB)
    succeeded, said, state = outcome(volume)
    assert not succeeded and "one of 1 files" in said and "'bad'" not in said, said
    assert set(bucket.uploads()) == {"p/good", "p/bad"}
    (volume.folder / "data/good").touch()
    assert outcome(volume) == (True, "", "done")


@pytest.mark.parametrize("clock", [{}, {"CISTERN_CLOCK_BEHIND": "10000"} | PRELOAD], ids=["steady clock", "clock set back"])
def test_a_loss_whose_file_the_kernel_does_not_name_fails_the_export(disk, bucket, clock):
    volume, bad = disk.volume, disk.volume.folder / "data/bad"
    disk.break_down()
    write(bad, b"b" * 8 * MIB)
    with open(bad, "rb") as f, pytest.raises(OSError):
        os.fsync(f.fileno())  # a program that asks takes the report of the file
    disk.repair()
    for environment in clock, {}:  # in the end the clock has caught up
        succeeded, said, state = outcome(volume, **environment)
        assert not succeeded and state == "failed" and "CIS4024" in said and "one of 1 files" in said, said
    assert set(bucket.uploads()) == {"p/bad"}
    bad.touch()
    assert outcome(volume) == (True, "", "done")


def test_a_seccomp_profile_that_denies_the_question_does_not_fail_the_export(tmp_path, bucket):
    volume = Volume(tmp_path, bucket)
    volume.write("file", b"x")
    denied = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_NAME": "sync_file_range", "CISTERN_FAIL_AT": "1",
              "CISTERN_FAIL_ERRNO": str(errno.EPERM)}
    assert volume.export(**denied).returncode == 0
