# SPDX-License-Identifier: Apache-2.0
"""A file system without O_TMPFILE, renameat2 flags, fallocate and statvfs counts, such as NFS, overlays of older kernels,
btrfs, and some FUSE file systems."""
import pytest

from paths import BUILD, files_below

from .lib import DENIED, DONE, SOME_FAILED, Bucket, cistern, files, is_tidy, make_source, summary

pytestmark = pytest.mark.timeout(120)
PLAIN = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_PLAIN_FILES": "1"}


@pytest.fixture(name="bucket", scope="module")
def a_bucket():
    with Bucket("p/s/:3500:100", "p/l/:1:17Mi") as bucket:
        yield bucket


def test_plain_directory_is_filled(bucket, tmp_path):
    words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", bucket.url]
    code, told, errors = summary(*words, **PLAIN)
    assert code == DONE, errors
    assert told["hydrated"] == 3501 == len(files_below(tmp_path / "out"))
    assert is_tidy(tmp_path)


def test_a_listing_that_was_cut_off_is_gone_on_with(bucket, tmp_path):
    words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", bucket.url]
    bucket.fault("op=list,after=2,do=status:403")
    code, told, errors = summary(*words, **PLAIN)
    bucket.no_faults()
    assert code == DENIED and 0 < told["hydrated"] < 3501, errors
    code, told, errors = summary(*words, **PLAIN)
    assert code == DONE, errors
    assert told["requests"] < 3501, "begun anew"
    assert len(files_below(tmp_path / "out")) == 3501


def test_export_to_a_plain_directory_arrives_and_replaces_nothing(tmp_path):
    source = make_source(tmp_path / "source", small=8, large=((9 << 20) + 1,))
    words = ["export", source, f"file://{tmp_path}/out", "--state", tmp_path / "state"]
    theirs = tmp_path / "out" / "d0" / "s0" / "f0"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"theirs")
    done = cistern(*words, **PLAIN)
    assert done.returncode == SOME_FAILED and "CIS4409" in done.stderr, done.stderr
    assert theirs.read_bytes() == b"theirs"
    theirs.unlink()
    done = cistern(*words, **PLAIN)
    assert done.returncode == DONE, done.stderr
    assert files(tmp_path / "out") == files(source)
