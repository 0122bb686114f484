# SPDX-License-Identifier: Apache-2.0
"""The same promises of store.h, held against every kind of store."""

import gzip
import json
import os
import time
import urllib.request

import pytest

MIB = 1 << 20


def test_put_objects_come_back_byte_for_byte(bucket):
    data = os.urandom(300_000)
    put = bucket.put("a/b", data)
    assert put.code == "OK" and put.size == len(data)
    answer, got = bucket.get("a/b", len(data))
    assert answer.code == "OK" and got == data


def test_an_empty_object_is_an_object(bucket):
    assert bucket.put("empty", b"").code == "OK"
    assert bucket.head("empty").size == 0
    answer, got = bucket.get("empty", 0)
    assert answer.code == "OK" and got == b""
    assert [o["size"] for o in bucket.list()] == [0]


def test_a_range_is_just_that_range(bucket):
    data = bytes(range(256)) * 100
    bucket.put("r", data)
    for offset, length in [(0, 1), (5, 7), (25_599, 1), (0, 25_599), (1, 25_599)]:
        answer, got = bucket.get("r", len(data), offset=offset, len=length)
        assert answer.code == "OK", answer
        assert got == data[offset:offset + length]


def test_head_returns_size_and_the_checksum_that_was_sent(bucket):
    bucket.put("h", b"123456789")
    head = bucket.head("h")
    assert head.size == 9 and abs(head.mtime_ns / 1e9 - time.time()) < 60
    if bucket.kind != "file":
        assert head.digest_kind == "crc32c" and head.digest == "e3069283"


def test_a_missing_object_is_named(bucket):
    for answer in (bucket.head("no/such"), bucket.get("no/such", 1)[0]):
        assert answer.code == "NOT_FOUND" and answer.id == 1404
        assert "no/such" in answer.text


def test_a_replaced_object_is_an_error_with_both_states(bucket):
    bucket.put("k", b"before")
    listed = bucket.list()[0]
    bucket.put("k", b"after!")
    now = bucket.list()[0]
    pin = {"etag": listed["etag"]} if listed["etag"] else {"generation": listed["generation"]}
    answer, got = bucket.get("k", 6, **pin)
    assert answer.code == "CHANGED" and answer.id == 1409 and got == b""
    for state in (listed, now):
        said = str(state["generation"]) if state["generation"] else state["etag"]
        # versitygw does not say what the object has become
        assert said in answer.text or (bucket.kind == "s3-versitygw" and state is now)


def test_a_deleted_object_is_gone_not_changed(bucket):
    bucket.put("k", b"before")
    listed = bucket.list()[0]
    assert bucket.delete("k").code == "OK"
    assert bucket.delete("k").code == "OK"
    pin = {"etag": listed["etag"]} if listed["etag"] else {"generation": listed["generation"]}
    answer, _ = bucket.get("k", 6, **pin)
    assert answer.code == "NOT_FOUND"
    if listed["generation"]:
        assert str(listed["generation"]) in answer.text


def test_nothing_is_overwritten_unasked(bucket):
    assert bucket.put("k", b"mine", "--if-absent", "--upload-id", "one").code == "OK"
    assert bucket.put("k", b"mine", "--if-absent", "--upload-id", "one").code == "OK"  # its answer might have been lost
    refused = bucket.put("k", b"other", "--if-absent", "--upload-id", "two")
    assert refused.code == "EXISTS" and refused.id == 1412 and "/k:" in refused.text
    assert bucket.put("k", b"other", "--if-absent").code == "EXISTS"
    assert bucket.get("k", 4)[1] == b"mine"
    assert bucket.put("k", b"other").code == "OK"
    assert bucket.get("k", 5)[1] == b"other"


def test_put_over_a_replaced_object_is_refused(bucket):
    bucket.put("k", b"before")
    listed = bucket.list()[0]
    tag = str(listed["generation"] or listed["etag"])
    bucket.put("k", b"by another")
    refused = bucket.put("k", b"after", "--if-same", tag)
    assert refused.code == "EXISTS" and refused.id == 1412 and "replaced or deleted" in refused.text
    assert bucket.get("k", 10)[1] == b"by another"


def test_bytes_that_do_not_match_their_checksum_are_not_stored(bucket):
    answer = bucket.put("k", b"some bytes", "--wrong-digest")
    assert answer.code == "CORRUPT" and answer.id == 1423
    assert bucket.list() == []


def test_parts_make_one_object_with_one_checksum(bucket):
    data = os.urandom(2 * 5 * MIB + 12_345)
    done = bucket.upload("big/one", data, 5 * MIB, "--upload-id", "u1")
    assert done.code == "OK" and done.size == len(data)
    head = bucket.head("big/one")
    assert head.size == len(data)
    if bucket.kind != "file":
        assert head.digest_kind in ("crc64nvme", "crc32c")
    answer, got = bucket.get("big/one", len(data))
    assert answer.code == "OK" and got == data
    assert bucket.keys() == [b"big/one"]


def test_a_completed_upload_may_be_completed_again(bucket):
    data = os.urandom(100_000)
    assert bucket.upload("k", data, 5 * MIB, "--upload-id", "u1", "--twice").code == "OK"


def test_an_upload_with_a_wrong_checksum_of_the_whole_gets_no_name(bucket):
    answer = bucket.upload("k", os.urandom(5 * MIB + 1), 5 * MIB, "--wrong-digest")
    assert answer.code == "CORRUPT" and answer.id == 1423
    assert b"k" not in bucket.keys()


def test_an_upload_does_not_overwrite_unasked(bucket):
    bucket.put("k", b"mine", "--upload-id", "one")
    answer = bucket.upload("k", b"other", 5 * MIB, "--if-absent", "--upload-id", "two")
    assert answer.code == "EXISTS", answer
    assert bucket.get("k", 4)[1] == b"mine"


def test_an_aborted_upload_leaves_nothing(bucket):
    assert bucket.upload("k", os.urandom(1000), 5 * MIB, "--abort").code == "OK"
    assert bucket.list() == []


def test_an_upload_under_way_is_swept_by_its_key_alone(bucket):
    bucket.upload("k", os.urandom(1000), 5 * MIB, "--stop", "parts")
    bucket.upload("k2", os.urandom(1000), 5 * MIB, "--stop", "parts")
    swept = bucket.call("sweep", "k")
    assert swept.code == "OK" and (bucket.kind == "file" or swept.requests >= 2)
    assert bucket.call("sweep", "k").requests == 1
    again = bucket.call("sweep", "k2")
    assert bucket.kind == "file" or again.requests >= 2


def test_a_listing_is_in_order_and_its_pages_join(bucket):
    keys = sorted([f"p/{i:03d}".encode() for i in range(40)] + [b"a", b"p.x", b"p-y", b"p0", b"\xc3\xa9"])
    for key in keys:
        assert bucket.put(key, b"x").code == "OK", key
    assert bucket.keys() == keys
    assert bucket.keys("--page", 7) == keys
    assert bucket.keys("--prefix", "p/") == [k for k in keys if k.startswith(b"p/")]
    assert bucket.keys("--start-after", "p/010") == [k for k in keys if k > b"p/010"]
    assert bucket.keys("--prefix", "p/", "--start-after", "p/010", "--page", 3) == [
        k for k in keys if k.startswith(b"p/") and k > b"p/010"]
    folders = bucket.keys("--folders")
    assert b"p/" in folders and b"a" in folders and b"p/001" not in folders
    assert folders == sorted(folders)


def test_bytes_arrive_as_they_are_stored_also_when_they_are_said_to_be_gzip(s3_bucket):
    data = gzip.compress(b"hello " * 1000)
    s3_bucket.put("z", data, "--content-type", "text/plain")
    answer, got = s3_bucket.get("z", len(data))
    assert answer.code == "OK" and got == data


def test_a_gzip_object_of_gcs_is_not_decompressed_on_the_way(gs_bucket):
    data = gzip.compress(b"hello " * 1000)
    boundary = "b"
    body = (f"--{boundary}\r\ncontent-type: application/json\r\n\r\n"
            + json.dumps({"name": "z", "contentEncoding": "gzip", "contentType": "text/plain"})
            + f"\r\n--{boundary}\r\ncontent-type: text/plain\r\n\r\n").encode() + data + f"\r\n--{boundary}--".encode()
    urllib.request.urlopen(urllib.request.Request(
        f"{gs_bucket.endpoint}/upload/storage/v1/b/{gs_bucket.name}/o?uploadType=multipart", data=body, method="POST",
        headers={"content-type": f"multipart/related; boundary={boundary}"}), timeout=10).read()
    listed = gs_bucket.list()[0]
    assert listed["size"] == len(data)
    answer, got = gs_bucket.get("z", len(data), generation=listed["generation"])
    assert answer.code == "OK" and got == data
    answer, got = gs_bucket.get("z", len(data), offset=3, len=10)
    assert got == data[3:13]


def test_an_anonymous_caller_is_refused_with_the_right_that_was_missing(s3_bucket):
    answer = s3_bucket.call("list", flags=["--anonymous"])
    assert answer.code == "DENIED" and answer.id == 1403
    assert "s3:ListBucket" in answer.text and "grant" in answer.advice


def test_wrong_secret_is_reported_and_not_shown(s3_bucket):
    env = dict(s3_bucket.env, AWS_SECRET_ACCESS_KEY="not-the-secret")
    answer = s3_bucket.call("list", env=env)
    assert answer.code == "DENIED" and answer.id == 1401
    assert "SignatureDoesNotMatch" in answer.text
    assert "not-the-secret" not in repr(answer)


def test_unknown_access_key_is_reported_as_rejected_credentials(s3_bucket):
    answer = s3_bucket.call("list", env=dict(s3_bucket.env, AWS_ACCESS_KEY_ID="no-such-key"))
    assert answer.code == "DENIED" and answer.id == 1401, answer
    assert "rejected the access key" in answer.text


def test_the_right_to_write_is_tested_without_a_trace(bucket):
    assert bucket.call("writable").code == "OK"
    assert bucket.keys() == [] and bucket.call("sweep", ".cistern-probe").requests <= 1
    assert bucket.kind != "file" or [p for p in bucket.folder.rglob("*") if not p.is_dir()] == []
    if bucket.kind != "file":
        bucket.uri = f"{bucket.scheme}://no-such-bucket-here/runs/"
        answer = bucket.call("writable")
        assert answer.code == "NOT_FOUND" and answer.id == 1405, answer


def test_missing_bucket_differs_from_a_missing_object(bucket):
    if bucket.kind == "file":
        bucket.uri = bucket.uri + "no-such-folder/"
    else:
        bucket.uri = f"{bucket.scheme}://no-such-bucket-here/"
    answer = bucket.call("list")
    assert answer.code == "NOT_FOUND" and answer.id == 1405, answer


@pytest.mark.parametrize("bucket", ["s3-versitygw", "gs-fake"], indirect=True)
def test_a_server_that_is_not_there_is_an_error_at_once(bucket):
    answer = bucket.call("list", flags=["--endpoint", "http://127.0.0.1:1", "--retries", "2"])
    assert answer.code in ("IO", "AGAIN") and answer.may_retry and answer.requests == 2
    assert "127.0.0.1" in answer.text
