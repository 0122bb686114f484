# SPDX-License-Identifier: Apache-2.0
"""A bucket that allows less than all: what can be read is read, and what cannot says why."""
import os

import pytest

from .lib import DENIED, DONE, MISMATCH, TRANSIENT, Bucket, cistern, files, summary

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(name="bucket")
def a_bucket():
    with Bucket("s/:20:1Ki", "l/:2:9Mi") as bucket:
        yield bucket


def hydrate(bucket, uri, out):
    return summary("hydrate", uri, out, "--endpoint", bucket.url)


@pytest.mark.parametrize("refusal", ["status:403", "status:405", "status:400"])
def test_large_objects_are_read_where_head_is_refused(bucket, tmp_path, refusal):
    bucket.fault(f"op=head,do={refusal}")
    code, told, errors = hydrate(bucket, "s3://bench/l/", tmp_path / "out")
    assert code == DONE, errors
    assert told["hydrated"] == 2 and told["size_only"] == 2, "said aloud"


def test_one_object_is_read_where_listing_is_refused(bucket, tmp_path):
    keys = [name for name in bucket.ask("/bench?list-type=2&prefix=l/").decode().split("<Key>")[1:]]
    key = keys[0].split("<")[0]
    bucket.fault("op=list,do=status:403")
    code, told, errors = hydrate(bucket, f"s3://bench/{key}", tmp_path / "out")
    assert code == DONE, errors
    assert told["verified"] == 1 and list(files(tmp_path / "out")) == [key.split("/")[1].encode()]
    code, _, errors = hydrate(bucket, "s3://bench/none", tmp_path / "none")
    assert code != DONE and errors
    code, _, errors = hydrate(bucket, "s3://bench/l/", tmp_path / "folder")
    assert code == DENIED and "s3:ListBucket" in errors[0]["error"]["message"]


@pytest.mark.parametrize("prefix", ["s/", "l/"])
def test_an_archived_object_says_that_it_is_archived(bucket, tmp_path, prefix):
    bucket.fault(f"op=get,key={prefix}*0,do=error:403:InvalidObjectState")
    done = cistern("hydrate", f"s3://bench/{prefix}", tmp_path / "out", "--endpoint", bucket.url)
    assert done.returncode not in (DONE, MISMATCH, DENIED)
    assert "CIS1424" in done.stderr and "archived" in done.stderr and "restore" in done.stderr


@pytest.mark.parametrize("where", ["out", "new/parents/out", "exists"])
def test_failed_run_without_a_listing_leaves_nothing_behind(bucket, tmp_path, where):
    (tmp_path / "exists").mkdir()
    bucket.fault("op=list,do=status:403")
    refused = ["hydrate", "s3://bench/s/", tmp_path / where, "--endpoint", bucket.url]
    dead = ["hydrate", "s3://bench/s/", tmp_path / where, "--endpoint", "http://127.0.0.1:1", "--retries", "1"]
    for words, code in ((refused, DENIED), (dead, TRANSIENT)):
        assert cistern(*words).returncode == code
        assert os.listdir(tmp_path) == ["exists"] and os.listdir(tmp_path / "exists") == []
