# SPDX-License-Identifier: Apache-2.0
"""Odd replies, byte for byte. Replies that HTTP allows end with the right tree. Others end with an error that names the
object, and no wrong byte on the disk. The same command on a healthy server completes it. Proxies send all of these."""
import base64
import gzip
import hashlib
import itertools
import json
import os
import re
import socket
import subprocess
import threading
import urllib.parse

import pytest

from integration.lib.buckets import clean_environment, contents
from paths import CISTERN
from servers.bucket import KEYS

pytestmark = [pytest.mark.asan, pytest.mark.timeout(120)]
CONTENT = {"data/one": b"1", "data/two": b"2" * 100_000}
X = b"x"  # of every key that is listed and not in it
DATE = "Sat, 21 Nov 2026 09:00:00 GMT"
DONE, SOME_FAILED, DENIED, TRANSIENT, NO_SPACE, MISMATCH = 0, 1, 4, 5, 6, 7


def etag(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def entry(key, data, **other):
    fields = {"Key": key, "LastModified": "2026-01-01T00:00:00.000Z", "ETag": etag(data), "Size": len(data)} | other
    return "<Contents>" + "".join(f"<{k}>{v}</{k}>" for k, v in fields.items() if v is not None) + "</Contents>"


def listing(*entries, more="<IsTruncated>false</IsTruncated>"):
    return f"<ListBucketResult><EncodingType>url</EncodingType>{more}{''.join(entries)}</ListBucketResult>".encode()


def items(content):
    """The same, as Google lists it."""
    return json.dumps({"items": [{"name": key, "size": str(len(data)), "generation": "1", "updated": "2026-01-01T00:00:00Z",
                                  "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode()}
                                 for key, data in sorted(content.items())]}).encode()


def fair(data):
    return (f"HTTP/1.1 200 OK\r\nDate: {DATE}\r\nETag: {etag(data)}\r\nLast-Modified: {DATE}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class OddServer:
    """One reply a connection. A GET of a key in `odd` gets the result of its function for the bytes. A listing gets `page`,
    or its result for the path, or else the real listing."""

    def __init__(self):
        self.odd, self.content, self.page = {}, dict(CONTENT), None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def make_odd(self, ways):
        """An object for each."""
        keys = {f"data/odd-{i:02}": way for i, way in enumerate(ways.values())}
        self.odd |= keys
        self.content |= {key: key.encode() * 400 for key in keys}

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        with client:
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    got = client.recv(65536)
                    if not got:
                        return
                    head += got
                client.sendall(self.answer_to(head.split(b" ", 2)[1].decode()))
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except OSError:
                pass

    def answer_to(self, path):
        page = self.page(path) if callable(self.page) else self.page
        if path.startswith("/storage/v1/b/bench/o?"):
            return fair(items(self.content) if page is None else page)
        if path.startswith("/storage/v1/b/bench/o/"):
            path = urllib.parse.unquote(path.removeprefix("/storage/v1/b/bench/o/"))
        if "list-type" in path:
            return fair(listing(*(entry(k, v) for k, v in sorted(self.content.items()))) if page is None else page)
        key = path.removeprefix("/bench/").split("?")[0]
        return self.odd.get(key, fair)(self.content.get(key, X))

    def truth(self):
        return {key.removeprefix("data/"): data for key, data in self.content.items()}


@pytest.fixture
def server():
    running = OddServer()
    yield running
    running.listener.close()


def hydrate(server, folder, scheme="s3"):
    access = "--path-style" if scheme == "s3" else "--anonymous"
    return subprocess.run([CISTERN, "hydrate", "--no-progress", access, "--retries", "2", "--endpoint", server.url,
                           f"{scheme}://bench/data/", folder], env=clean_environment(**KEYS), capture_output=True,
                          text=True, timeout=60, check=False)


def chunks(data, size, extension=b""):
    pieces = [data[i:i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces)


def head(status="HTTP/1.1 200 OK", **fields):
    return (status + "\r\n" + "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in fields.items()) + "\r\n").encode()


RIGHT = {
    "HTTP/1.0 that ends with its connection": lambda d: head("HTTP/1.0 200 OK", ETag=etag(d)) + d,
    "HTTP/1.0 with a length": lambda d: head("HTTP/1.0 200 OK", Content_Length=len(d)) + d,
    "no length": lambda d: head(Connection="close") + d,
    "no reason": lambda d: head("HTTP/1.1 200", Content_Length=len(d)) + d,
    "lines that end in LF": lambda d: fair(d).split(b"\r\n\r\n")[0].replace(b"\r\n", b"\n") + b"\n\n" + d,
    "chunks": lambda d: head(Transfer_Encoding="chunked") + chunks(d, 1000) + b"0\r\n\r\n",
    "chunks of one byte": lambda d: head(Transfer_Encoding="chunked") + chunks(d, 1) + b"0\r\n\r\n",
    "chunks with extensions and a trailer": lambda d: head(Transfer_Encoding="chunked") + chunks(d, 999, b";a=\"b\"")
        + b"0\r\nx-trailer: 1\r\nETag: \"other\"\r\n\r\n",
    "a 100 before": lambda d: head("HTTP/1.1 100 Continue") + fair(d),
    "hints before": lambda d: head("HTTP/1.1 103 Early Hints", Link="</x>") * 3 + fair(d),
    "stored compressed": lambda d: head(Content_Encoding="gzip", Content_Length=len(d)) + d,
    "no ETag": lambda d: head(Content_Length=len(d)) + d,
    "an empty ETag": lambda d: head(ETag="", Content_Length=len(d)) + d,
    "a weak ETag": lambda d: head(ETag="W/" + etag(d), Content_Length=len(d)) + d,
    "an ETag without quotes": lambda d: head(ETag=etag(d).strip('"'), Content_Length=len(d)) + d,
    "a range of all, and no size": lambda d: head("HTTP/1.1 206 Partial Content", Content_Length=len(d),
                                                  Content_Range=f"bytes 0-{len(d) - 1}/*") + d,
    "a unit in capitals": lambda d: head("HTTP/1.1 206 Partial Content", Content_Length=len(d),
                                         Content_Range=f"BYTES 0-{len(d) - 1}/{len(d)}") + d,
    "a garbled time": lambda d: head(Last_Modified="yesterday", Date="\x7f", Content_Length=len(d)) + d,
    "a time before all times": lambda d: head(Last_Modified="Mon, 01 Jan 0001 00:00:00 GMT", Content_Length=len(d)) + d,
    "a time after all times": lambda d: head(Last_Modified="Fri, 31 Dec 9999 23:59:59 GMT", Content_Length=len(d)) + d,
    "the length twice": lambda d: head(content_length=len(d), Content_Length=len(d)) + d,
    "a hundred headers": lambda d: head(Content_Length=len(d), **{f"x-{i}": "v" * 200 for i in range(100)}) + d,
    "garbled checksums": lambda d: head(Content_Length=len(d), x_amz_checksum_crc32c="!!!!", x_amz_checksum_crc64nvme="=",
                                        x_amz_checksum_sha256="QQ==", x_amz_checksum_crc32="A" * 3000) + d,
    "a checksum of checksums": lambda d: head(Content_Length=len(d), x_amz_checksum_crc32c="AAAAAA==-3",
                                              x_amz_checksum_type="COMPOSITE") + d,
    "a Content-Range that nobody asked for": lambda d: head(Content_Length=len(d), Content_Range=f"bytes 0-{len(d) - 1}/{len(d)}") + d,
}


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_unusual_replies_that_http_allows_give_the_right_bytes(server, tmp_path, scheme):
    server.make_odd(RIGHT)
    run = hydrate(server, tmp_path / "out", scheme)
    assert run.returncode == DONE, f"{list(enumerate(RIGHT))}: {run.stderr}"
    assert contents(tmp_path / "out") == server.truth()


WRONG = {
    "a negative length": lambda d: head(Content_Length=-1) + d,
    "a length past all numbers": lambda d: head(Content_Length="9" * 30) + d,
    "a length that is no number": lambda d: head(Content_Length="5k") + d,
    "two lengths": lambda d: head(content_length=len(d), Content_Length=3) + d,
    "a header of a megabyte": lambda d: head(x="v" * (1 << 20), Content_Length=len(d)) + d,
    "headers without end": lambda d: b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000,
    "trailers of a megabyte": lambda d: head(Transfer_Encoding="chunked") + chunks(d, 1000) + b"0\r\n" + b"x: y\r\n" * 200_000 + b"\r\n",
    "a chunk of a negative length": lambda d: head(Transfer_Encoding="chunked") + b"-1\r\n" + d,
    "a chunk past all numbers": lambda d: head(Transfer_Encoding="chunked") + b"f" * 20 + b"\r\n" + d,
    "a chunk that is none": lambda d: head(Transfer_Encoding="chunked") + d,
    "chunks that end early": lambda d: head(Transfer_Encoding="chunked") + chunks(d, 1000),
    "chunks that bring more": lambda d: head(Transfer_Encoding="chunked") + chunks(d + b"!", 1000) + b"0\r\n\r\n",
    "chunks that bring less": lambda d: head(Transfer_Encoding="chunked") + chunks(d[:-1], 1000) + b"0\r\n\r\n",
    "compressed on the way": lambda d: head(Content_Encoding="gzip", Content_Length=len(gzip.compress(d))) + gzip.compress(d),
    "compressed on the way, in chunks": lambda d: head(Content_Encoding="gzip", Transfer_Encoding="chunked")
        + chunks(gzip.compress(d), 1000) + b"0\r\n\r\n",
    "a transfer encoding": lambda d: head(Transfer_Encoding="gzip, chunked") + chunks(gzip.compress(d), 1000) + b"0\r\n\r\n",
    "another's ETag": lambda d: head(ETag='"other"', Content_Length=len(d)) + d,
    "other bytes": lambda d: fair(d)[:-1] + b"!",
    "nothing": lambda d: b"",
    "an empty body": lambda d: head(Content_Length=0),
    "a hundred thousand 100s": lambda d: head("HTTP/1.1 100 Continue") * 100_000,
    "HTTP/2": lambda d: b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0d\0\x04\0\xa0\0\0\0\x02\0\0\0\0",
    "HTTP/0.9": lambda d: d,
    "HTTP/9.9": lambda d: head("HTTP/9.9 200 OK", Content_Length=len(d)) + d,
    "a TLS alert": lambda d: b"\x15\x03\x01\0\x02\x02\x46",
    "a login page": lambda d: head(Content_Type="text/html", Content_Length=20) + b"<html>log in</html>\n",
    "a status of no class": lambda d: head("HTTP/1.1 999 Odd", Content_Length=0),
    "a status of two digits": lambda d: head("HTTP/1.1 20 OK", Content_Length=len(d)) + d,
    "a NUL in a header": lambda d: b"HTTP/1.1 200 OK\r\nETag: \"a\0b\"\r\nContent-Length: 4400\r\n\r\n" + d,
} | {f"a {status}": lambda d, status=status: head(f"HTTP/1.1 {status} Odd", Content_Length=0)
     for status in (101, 201, 202, 203, 204, 205, 206, 207, 226, 300, 302, 303, 304, 305, 402, 406, 407, 411, 413, 414, 416,
                    417, 418, 421, 423, 425, 426, 428, 431, 451, 505, 507, 508, 511, 599)}


# There an ETag is nothing, and libcurl takes such a length for none: the bytes are right.
PASSED_BY_GS = {"another's ETag", "a length past all numbers"}


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_replies_that_http_forbids_are_errors_and_write_no_wrong_bytes(server, tmp_path, scheme):
    ways = WRONG if scheme == "s3" else {how: way for how, way in WRONG.items() if how not in PASSED_BY_GS}
    server.make_odd(ways)
    run = hydrate(server, tmp_path / "out", scheme)
    assert run.returncode in {SOME_FAILED, DENIED, TRANSIENT, MISMATCH}, run.stderr
    for i, how in enumerate(ways):
        assert re.search(rf"odd-{i:02}.*CIS\d{{4}}", run.stderr), f"{how} (odd-{i:02}): {run.stderr}"
    assert contents(tmp_path / "out") == {name: data for name, data in server.truth().items() if not name.startswith("odd-")}
    server.odd = {}
    run = hydrate(server, tmp_path / "out", scheme)
    assert run.returncode == DONE, run.stderr
    assert contents(tmp_path / "out") == server.truth()


# ---- what a listing may say ----------------------------------------------------------------------------------------

GOOD = [entry(k, v) for k, v in CONTENT.items()]
TRUTH = {key.removeprefix("data/"): data for key, data in CONTENT.items()}
# The entry, and the file that it makes; None: it is named in a sentence, and all else is there.
ENTRIES = {
    "a line break": (entry("data/a%0Ab", X), "a\nb"),
    "255 bytes": (entry("data/" + "n" * 255, X), "n" * 255),
    "not UTF-8": (entry("data/a%FF%FE", X), os.fsdecode(b"a\xff\xfe")),
    "another case": (entry("data/ODD", X), "ODD"),
    "a blank at the end": (entry("data/a+", X), "a "),
    "a weak ETag": (entry("data/w", X, ETag="W/" + etag(X)), "w"),
    "no ETag": (entry("data/e", X, ETag=None), "e"),
    "an ETag without quotes": (entry("data/u", X, ETag=etag(X).strip('"')), "u"),
    "a size and a time between blanks": (entry("data/b", X, Size=" 1\n", LastModified="\n2026-01-01T00:00:00Z "), "b"),
    "a garbled time": (entry("data/t", X, LastModified="soon"), None),
    "a NUL": (entry("data/a%00b", X), None),
    "dots": (entry("data/..", X), None),
    "up and out": (entry("data/../../etc/passwd", X), None),
    "a dot": (entry("data/./a", X), None),
    "an absolute path": (entry("data//etc/passwd", X), None),
    "256 bytes": (entry("data/" + "n" * 256, X), None),
    "a path of 5,000 bytes": (entry("data/" + "/".join(["p" * 250] * 20), X), None),
    "a folder that is a file too": (entry("data/one/below", X), None),
    "a folder with bytes": (entry("data/folder/", X), None),
    "more than the disk": (entry("data/big", X, Size=6 << 40), None),
    "a size of 2^63": (entry("data/big", X, Size=1 << 63), None),
    "a size of 2^64": (entry("data/big", X, Size=1 << 64), None),
    "a negative size": (entry("data/big", X, Size=-1), None),
    "a size that is none": (entry("data/big", X, Size="1e3"), None),
    "no size": (entry("data/big", X, Size=None), None),
    "no key": (entry(None, X), None),
    "an empty key": (entry("", X), None),
}


@pytest.mark.parametrize("how", ENTRIES)
def test_an_entry_of_a_listing_is_a_file_or_a_sentence(server, tmp_path, how):
    text, name = ENTRIES[how]
    server.page = listing(*GOOD, text)
    run = hydrate(server, tmp_path / "deep/out")
    found = contents(tmp_path / "deep")
    assert all(f.startswith(("out/", ".out.cistern/")) for f in found), found
    found = {f.removeprefix("out/"): data for f, data in found.items() if f.startswith("out/")}
    if name:
        assert run.returncode == DONE, run.stderr
        assert found == TRUTH | {name: X}
        return
    assert run.returncode in {SOME_FAILED, TRANSIENT, NO_SPACE, MISMATCH}, run.stderr
    assert re.search(r"CIS\d{4}", run.stderr), run.stderr
    assert all(data == (TRUTH | {"one/below": X})[f] for f, data in found.items()), found


def test_key_equal_to_the_prefix_is_the_directory(server, tmp_path):
    server.page = listing(entry("data/", b""), *GOOD)
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == DONE, run.stderr
    assert contents(tmp_path / "out") == TRUTH


def test_key_listed_twice_is_reported(server, tmp_path):
    """Two versions of it may have been listed: neither is the one."""
    server.page = listing(*GOOD, *GOOD)
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == MISMATCH and re.search("twice.*CIS1504", run.stderr), run.stderr
    assert "run the same command again" in run.stderr
    server.page = None
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == DONE and contents(tmp_path / "out") == TRUTH, run.stderr


def test_a_page_of_the_longest_keys_is_taken_and_one_past_all_is_a_sentence(server, tmp_path):
    folder = "/".join(["%C3%BC" * 120] * 4)  # 963 bytes, which take 2,883
    server.page = listing(*(entry(f"data/{folder}/{i:04}", b"") for i in range(1000)))
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == DONE and len(contents(tmp_path / "out")) == 1000, run.stderr
    server.page = listing(*GOOD, more=" " * (8 << 20))
    run = hydrate(server, tmp_path / "more")
    assert run.returncode == MISMATCH and re.search("more than 8388608 bytes.*CIS1601", run.stderr), run.stderr


PASSING = {"an error under 200": b"<Error><Code>InternalError</Code><Message>again</Message></Error>",
           "a proxy's page": b"<html><body>one moment<br></body></html>", "nothing": b"", "half a page": listing(*GOOD)[:-40]}


@pytest.mark.parametrize("how", PASSING)
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_invalid_page_is_requested_again(server, tmp_path, scheme, how):
    once = [PASSING[how]]
    server.page = lambda path: once.pop() if once else None
    run = hydrate(server, tmp_path / "out", scheme)
    assert run.returncode == DONE, run.stderr
    assert contents(tmp_path / "out") == TRUTH


MORE = "<NextContinuationToken>next</NextContinuationToken>"


@pytest.mark.parametrize("more", [f"<IsTruncated>{yes}</IsTruncated>{MORE}" for yes in ("true", "True", "1", " true ")] + [MORE])
def test_the_next_page_is_asked_for_and_may_begin_with_the_key_that_was_the_last(server, tmp_path, more):
    server.content = {f"data/{name}": name.encode() for name in "abcd"}
    entries = [entry(key, data) for key, data in server.content.items()]
    server.page = lambda path: listing(*entries[1:]) if "continuation-token=next" in path else listing(*entries[:2], more=more)
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == DONE, run.stderr
    assert contents(tmp_path / "out") == server.truth()


def test_a_refusal_has_a_ceiling(server, tmp_path):
    server.odd = {"data/one": lambda d: head("HTTP/1.1 500 Odd", Connection="close") + b"e" * (2 << 20)}
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == MISMATCH and re.search(r"one.*\(500\).*more than 1048576 bytes.*CIS1601", run.stderr), run.stderr


def error(status, code):
    return lambda d: head(f"HTTP/1.1 {status} X", Connection="close") + f"<Error><Code>{code}</Code></Error>".encode()


THROTTLED = {f"{status} {code}": error(status, code)
             for status in (400, 403) for code in ("KMS.ThrottlingException", "SlowDown", "RequestLimitExceeded", "RequestTimeout")}
PROXYS = lambda d: head(Content_Length=9) + b"<html>no\n"  # noqa: E731: a page for whatever was asked for


def test_temporary_errors_of_an_object_are_retried(server, tmp_path):
    server.make_odd(THROTTLED | {"a proxy's page": PROXYS})
    ways = {key: [way] for key, way in server.odd.items()}
    server.odd = {key: lambda d, once=once: (once.pop() if once else fair)(d) for key, once in ways.items()}
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == DONE, run.stderr
    assert contents(tmp_path / "out") == server.truth()


@pytest.mark.parametrize("code, status, id, words", [("KMS.ThrottlingException", TRANSIENT, 1429, "concurrency"),
                                                     ("RequestTimeout", TRANSIENT, 1408, "check the network"),
                                                     ("ExpiredToken", DENIED, 1401, "renew the credentials")])
def test_a_lasting_error_400_gives_advice_by_its_code(server, tmp_path, code, status, id, words):
    server.odd = {"data/one": error(400, code)}
    run = hydrate(server, tmp_path / "out")
    assert run.returncode == status and re.search(rf"one: 400 {code}.*CIS{id}.*{words}", run.stderr), run.stderr


@pytest.mark.parametrize("tokens", [["same"], ["one", "other"]], ids=["the same", "two in turns"])
@pytest.mark.parametrize("how", [[], ["--max", "1000000"], ["-r"]], ids=["a folder", "so many", "all"])
def test_pages_that_come_round_end_a_list(server, tokens, how):
    pages = itertools.count()
    server.page = lambda path: listing(*GOOD, more=f"<IsTruncated>true</IsTruncated><NextContinuationToken>"
                                                   f"{tokens[next(pages) % len(tokens)]}</NextContinuationToken>")
    run = subprocess.run([CISTERN, "ls", *how, "--path-style", "--endpoint", server.url, "s3://bench/data/"],
                         env=clean_environment(**KEYS), capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == MISMATCH and re.search("s3://bench/data/.*CIS1601", run.stderr), run.stderr
