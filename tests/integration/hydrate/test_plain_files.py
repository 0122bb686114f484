# SPDX-License-Identifier: Apache-2.0
"""A file system that has little: no files without a name, no careful renames, no room made beforehand, and nothing to say
of its space (NFS; overlays of older kernels; btrfs, which counts no files; some of FUSE)."""
import pytest

from bench import BUILD, DENIED, DONE, Bucket, files, summary

pytestmark = pytest.mark.timeout(120)
PLAIN = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_PLAIN_FILES": "1"}


@pytest.fixture(name="bucket", scope="module")
def a_bucket():
    with Bucket("p/:3500:100", "p/large:1:17Mi") as bucket:
        yield bucket


def test_a_folder_is_filled(bucket, tmp_path):
    words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", bucket.url]
    code, told, errors = summary(*words, **PLAIN)
    assert code == DONE, errors
    assert told["hydrated"] == 3501 == len(files(tmp_path / "out"))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_listing_that_was_cut_off_is_gone_on_with(bucket, tmp_path):
    words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", bucket.url]
    bucket.fault("op=list,after=2,do=status:403")
    code, told, errors = summary(*words, **PLAIN)
    bucket.heal()
    assert code == DENIED and 0 < told["hydrated"] < 3501, errors
    code, told, errors = summary(*words, **PLAIN)
    assert code == DONE, errors
    assert told["requests"] < 3501, "begun anew"
    assert len(files(tmp_path / "out")) == 3501
