# SPDX-License-Identifier: Apache-2.0
"""The server that so many other tests rely on."""

import http.client
import json
import os
import urllib.parse

import pytest

from servers.bucket import BucketServer

MIB = 1 << 20
GCS = "/upload/storage/v1/b/bench/o"


@pytest.fixture
def bucket(monkeypatch):
    """With AddressSanitizer, which would keep 256 MiB of freed memory."""
    monkeypatch.setenv("ASAN_OPTIONS", f"{os.environ.get('ASAN_OPTIONS', '')}:quarantine_size_mb=1")
    with BucketServer() as running:
        yield running


def resident_bytes(bucket):
    with open(f"/proc/{bucket.process.pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def replace(bucket, body):
    bucket.put("one", body)


def put_and_remove(bucket, body):
    bucket.put("gone", body)
    bucket.remove("gone")


def begin_and_abort(bucket, body):
    upload = bucket.ask("/bench/many?uploads", "POST").split(b"<UploadId>")[1].split(b"<")[0].decode()
    bucket.ask(f"/bench/many?partNumber=1&uploadId={upload}", "PUT", body)
    bucket.ask(f"/bench/many?uploadId={upload}", "DELETE")


def complete(bucket, body):
    upload = bucket.ask("/bench/many?uploads", "POST").split(b"<UploadId>")[1].split(b"<")[0].decode()
    for number in 1, 2:
        bucket.ask(f"/bench/many?partNumber={number}&uploadId={upload}", "PUT", body)
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber></Part>" for number in (1, 2))
    bucket.ask(f"/bench/many?uploadId={upload}", "POST", f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode())


def compose(bucket, body):
    bucket.put("source", body)
    sources = {"sourceObjects": [{"name": "source"}] * 2, "destination": {}}
    bucket.ask("/storage/v1/b/bench/o/whole/compose", "POST", json.dumps(sources).encode())


def session(bucket, *requests):
    """Of a resumable upload: the status of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", bucket.port, timeout=30)
    connection.request("POST", f"{GCS}?uploadType=resumable&name=resumed", b"", {})
    begun = connection.getresponse()
    begun.read()
    place = urllib.parse.urlsplit(begun.headers["Location"])
    found = []
    for method, body, headers in requests:
        connection.request(method, f"{place.path}?{place.query}", body, headers)
        reply = connection.getresponse()
        reply.read()
        found.append(reply.status)
    connection.close()
    return found


def resume_and_cancel(bucket, body):
    chunk = {"Content-Range": f"bytes 0-{len(body) - 1}/*"}
    assert session(bucket, ("PUT", body, chunk), ("DELETE", b"", {})) == [308, 499]


def refuse(bucket, body):
    """Expects 412 for each existing object."""
    bucket.put("there", b"x")
    connection = http.client.HTTPConnection("127.0.0.1", bucket.port, timeout=30)
    connection.request("POST", f"{GCS}?uploadType=media&name=there&ifGenerationMatch=0", body)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    assert reply.status == 412


@pytest.mark.parametrize("what", [replace, put_and_remove, begin_and_abort, complete, compose, resume_and_cancel, refuse],
                         ids=lambda what: what.__name__)
def test_replaced_removed_and_aborted_objects_take_no_memory(bucket, what):
    body = bytes(16 * MIB)
    what(bucket, body)
    before = resident_bytes(bucket)
    for _ in range(16):
        what(bucket, body)
    assert resident_bytes(bucket) < before + 64 * MIB


def test_an_object_that_is_replaced_while_it_is_read_stays_whole_for_its_reader(bucket):
    bucket.put("one", b"a" * 16 * MIB)
    connection = http.client.HTTPConnection("127.0.0.1", bucket.port, timeout=30)
    connection.request("GET", "/bench/one")
    reply = connection.getresponse()
    found = reply.read(1000)
    for _ in range(3):
        bucket.put("one", b"b" * 16 * MIB)
    bucket.remove("one")
    assert found + reply.read() == b"a" * 16 * MIB
    connection.close()


def test_a_completion_with_a_wrong_checksum_leaves_what_was_there(bucket):
    bucket.put("many", b"old")
    upload = bucket.ask("/bench/many?uploads", "POST").split(b"<UploadId>")[1].split(b"<")[0].decode()
    bucket.ask(f"/bench/many?partNumber=1&uploadId={upload}", "PUT", b"new")
    connection = http.client.HTTPConnection("127.0.0.1", bucket.port, timeout=30)
    connection.request("POST", f"/bench/many?uploadId={upload}", b"<Part><PartNumber>1</PartNumber></Part>",
                       {"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="})
    assert b"BadDigest" in connection.getresponse().read()
    connection.close()
    assert bucket.content("many") == b"old"
