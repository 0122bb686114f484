# SPDX-License-Identifier: Apache-2.0
"""A store that contradicts itself. A reply that does not hold is requested or sent again. If it stays so, the error
names the file and the store's reply. Nothing is left behind."""

import os
import subprocess

import pytest

from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS

MIB = 1 << 20
FILES = {"small": 1000, "large": 20 * MIB + 7}
COMPLETE = "op=post,key=p/large,after=1,every=2"  # each second POST: the others begin an upload


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "src").mkdir()
    for name, size in FILES.items():
        (tmp_path / "src" / name).write_bytes(noise(name, size))
    return tmp_path


def export(bucket, folder, *flags, scheme="s3"):
    return subprocess.run([CISTERN, "export", "--endpoint", bucket.url, "--quiet", *(["--anonymous"] if scheme == "gs" else []),
                           "--state", folder / "state", *flags, folder / "src", f"{scheme}://bench/p/"], env=os.environ | KEYS,
                          timeout=120, capture_output=True, text=True)


def assert_nothing_half(bucket):
    assert b"<Upload>" not in bucket.ask("/bench?uploads&prefix=")
    assert not [key for key in bucket.uploads() if not key.startswith("p/")]


def assert_whole(bucket, folder):
    assert_nothing_half(bucket)
    for name in FILES:
        assert bucket.content(f"p/{name}") == (folder / "src" / name).read_bytes(), name


@pytest.mark.parametrize("rule, parts", [
    (f"{COMPLETE},times=1,do=error:412:PreconditionFailed", 3),  # for a missing object
    (f"{COMPLETE},times=1,do=error:400:InvalidPart", 6),
    (f"{COMPLETE},times=2,do=error:404:NoSuchUpload", 9),
    ("op=put,key=p/large,nth=2,do=body:200:/dev/null", 6),  # and no part is there
], ids=["412", "InvalidPart", "NoSuchUpload twice", "a part that is not there"])
def test_an_upload_that_the_store_lost_is_begun_again_and_one_that_it_has_is_completed(bucket, folder, rule, parts):
    bucket.fault(rule)
    done = export(bucket, folder)
    assert done.returncode == 0 and sum(bucket.fired()) > 0, done.stderr
    assert bucket.stats()["put"] == parts + 1 + 2  # the small file, and the two of the probe
    bucket.no_faults()
    assert_whole(bucket, folder)


@pytest.mark.parametrize("scheme, rule, file, words", [
    ("s3", f"{COMPLETE},do=error:400:InvalidPart", "large", "CIS4012"),
    ("s3", "op=put,key=p/large,do=error:404:NoSuchUpload", "large", "CIS4012"),
    ("s3", "op=put,key=p/small,do=error:412:PreconditionFailed", "small", "CIS1412"),
    ("s3", "op=put,key=p/small,do=body:200:/dev/null", "small", "accepted it, and does not have it (CIS4022"),
    ("gs", "op=post,key=.cistern*/compose,do=status:404", "large", "CIS4012"),
], ids=["InvalidPart", "NoSuchUpload", "412", "taken and not there", "sources that are not there"])
def test_a_lasting_contradiction_fails_the_file_with_the_text_of_the_store_and_leaves_nothing(bucket, folder, scheme, rule, file, words):
    bucket.fault(rule)
    done = export(bucket, folder, "--retries", "2", scheme=scheme)
    assert done.returncode == 1 and f"p/{file}: " in done.stderr and words in done.stderr, done.stderr
    assert "the object does not exist" not in done.stderr, done.stderr
    bucket.no_faults()
    assert_nothing_half(bucket)
    assert export(bucket, folder, scheme=scheme).returncode == 0
    assert_whole(bucket, folder)


def test_gcs_412_for_a_free_name_is_retried(bucket, folder):
    bucket.fault("op=post,key=p/large/compose,times=1,do=status:412")
    done = export(bucket, folder, scheme="gs")
    assert done.returncode == 0 and bucket.fired() == [1], done.stderr
    assert_whole(bucket, folder)
