# SPDX-License-Identifier: Apache-2.0
"""A listing without the ETag of a large object, and a store without checksums: its parts are still of one version, within
a run and from one run to the next."""
import hashlib
import re
import threading

import pytest

from servers.answering import Answering

from .lib import DONE, MISMATCH, files, summary

pytestmark = [pytest.mark.timeout(120), pytest.mark.asan]
SIZE = (24 << 20) + 5  # four parts
LISTED = (f"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>data/large</Key>"
          f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>{SIZE}</Size></Contents></ListBucketResult>").encode()


class Store:
    """Of its one object it gives version after version: `versions` says which the Nth GET meets."""

    def __init__(self, versions, told, head=405):
        self.versions, self.told, self.head_status, self.gets, self.lock = versions, told, head, 0, threading.Lock()

    def describe(self, version):
        told = {"ETag": {"ETag": f'"version-{version}"'}, "Last-Modified": {"Last-Modified": f"Sat, 21 Nov 2026 09:00:0{version} GMT"},
                "nothing": {}}
        return told[self.told]

    def __call__(self, request):
        if "list-type" in request.path:
            return 200, {}, LISTED
        if request.method == "HEAD":
            return self.head_status, self.describe(self.versions(0)) | {"content-length": str(SIZE)}, b""
        first, last = map(int, re.search(r"bytes=(\d+)-(\d+)", request.headers["range"]).groups())
        with self.lock:
            version = self.versions(self.gets)
            self.gets += 1
        if version is None:
            return 403, {}, b"<Error><Code>AccessDenied</Code></Error>"
        headers = self.describe(version) | {"Content-Range": f"bytes {first}-{last}/{SIZE}"}
        return 206, headers, bytes([65 + version]) * (last - first + 1)


def hydrate(url, folder, *flags):
    return summary("hydrate", "s3://bench/data/", folder, "--endpoint", url, "--path-style", *flags)


def whole(version):
    return {b"large": hashlib.sha256(bytes([65 + version]) * SIZE).hexdigest()}


@pytest.mark.parametrize("at_once", ["1", "8"])
@pytest.mark.parametrize("told", ["ETag", "Last-Modified"])
def test_object_overwritten_between_two_parts_is_reported_and_not_kept(tmp_path, told, at_once):
    with Answering(Store(lambda n: int(n >= 2), told)) as server:
        code, end, errors = hydrate(server.url, tmp_path / "out", "--concurrency", at_once)
    assert (code, end["hydrated"], errors[0]["object"], errors[0]["error"]["id"]) == (MISMATCH, 0, "large", "CIS1409"), errors
    assert files(tmp_path / "out") == {}


@pytest.mark.parametrize("told", ["ETag", "Last-Modified"])
def test_object_overwritten_after_its_head_is_reported(tmp_path, told):
    store = Store(lambda n: 1, told, head=200)
    describe, heads = store.describe, []
    store.describe = lambda version: describe(0) if not heads and not heads.append(1) else describe(version)
    with Answering(store) as server:
        code, _, errors = hydrate(server.url, tmp_path / "out")
    assert (code, errors[0]["error"]["id"]) == (MISMATCH, "CIS1409"), errors


@pytest.mark.parametrize("told", ["ETag", "Last-Modified", "nothing"])
@pytest.mark.parametrize("head", [200, 405])
def test_object_that_is_not_overwritten_is_fetched(tmp_path, told, head):
    with Answering(Store(lambda n: 3, told, head)) as server:
        code, end, errors = hydrate(server.url, tmp_path / "out")
    assert (code, errors, end["size_only"]) == (DONE, [], 1)
    assert files(tmp_path / "out") == whole(3)


def test_parts_of_an_earlier_run_are_not_mixed_with_those_of_another_version(tmp_path):
    (tmp_path / "out").mkdir()
    store = Store(lambda n: 0 if n < 2 else None, "ETag")
    with Answering(store) as server:
        code, end, _ = hydrate(server.url, tmp_path / "out", "--concurrency", "1")
        assert code != DONE and end["hydrated"] == 0 and store.gets > 2
        store.versions = lambda n: 1
        code, _, errors = hydrate(server.url, tmp_path / "out")
    assert (code, errors) == (DONE, [])
    assert files(tmp_path / "out") == whole(1)
