# SPDX-License-Identifier: Apache-2.0
"""Unusual keys. Each is stored under exactly that name, or refused by name. The tables below have the behaviour of each
server, so that a change of it, or of Cistern, is noticed."""

import pytest

KEYS = {
    "unicode": "ü/日本/🐳".encode(),
    "blanks": b" a b ",
    "plus": b"a+b",
    "percent": b"100%25%",
    "doubled slash": b"a//b",
    "leading slash": b"/a",
    "folder marker": b"dir/",
    "the longest": b"/".join([b"k" * 200] * 5) + b"/" + b"z" * 19,
    "a segment over 255 bytes": b"s" * 256,
    "dot dot": b"x/../y",
    "dot": b"x/./y",
    "out and up": b"../z",
    "just dot dot": b"..",
    "control character": b"a\x01b",
    "line break": b"a\nb",
    "backslash": b"a\\b",
    "query": b"a?b#c&d=e",
    "markup": b"<&>\"'",
    "not UTF-8": b"a\xff\xfe",
    "punctuation": b"~*()!:@,;=$",
}

# Refused by the store, with a sentence that names the key.
NO_PATHS = {"doubled slash", "leading slash", "folder marker", "a segment over 255 bytes", "dot dot", "dot", "out and up",
            "just dot dot"}
REFUSED = {
    "file": NO_PATHS,
    # versitygw keeps objects as files; a marker may hold no bytes there
    "s3-versitygw": {"folder marker", "a segment over 255 bytes", "out and up", "just dot dot"},
    "s3-minio": {"doubled slash", "a segment over 255 bytes", "dot dot", "dot", "out and up", "just dot dot", "not UTF-8"},
    "gs-fake": {"line break", "not UTF-8"},  # by Google's rules for names, which the fake does not keep
}

# Taken by the server, and listed under another name.
RENAMED = {
    "s3-versitygw": {"doubled slash": b"a/b", "leading slash": b"a", "dot dot": b"y", "dot": b"x/y",  # cleaned as a path
                     "control character": "a\ufffdb".encode(), "not UTF-8": "a\ufffd\ufffd".encode()},
    "s3-minio": {"leading slash": b"a"},
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_stored_under_its_name_or_refused_by_name(bucket, name):
    key, data = KEYS[name], name.encode()
    assert len(KEYS["the longest"]) == 1024
    put = bucket.put(key, data)
    if name in REFUSED[bucket.kind]:
        assert put.code in ("INVALID", "DENIED")
        assert bucket.list() == []
        return
    assert put.code == "OK", put
    answer, got = bucket.get(key, len(data))
    assert answer.code == "OK" and got == data
    assert bucket.keys() == [RENAMED.get(bucket.kind, {}).get(name, key)]
    assert bucket.delete(key).code == "OK"
    assert bucket.list() == []


def test_key_that_is_also_a_directory_is_kept_or_refused(bucket):
    assert bucket.put(b"m", b"one").code == "OK"
    beneath = bucket.put(b"m/n", b"two")
    if bucket.kind in ("file", "s3-versitygw"):  # files and directories of the same name
        assert beneath.code == "INVALID" and "m/n" in beneath.text and not beneath.may_retry
        assert bucket.keys() == [b"m"]
    elif bucket.kind == "s3-minio":  # keeps it, and does not list it
        assert bucket.get(b"m/n", 3)[1] == b"two"
        assert bucket.keys() == [b"m"]
    else:
        assert bucket.keys() == [b"m", b"m/n"]


def test_directory_marker_is_an_object_of_no_bytes(bucket):
    put = bucket.put(b"dir/", b"")
    if bucket.kind == "file":
        assert put.code == "INVALID" and "dir/" in put.text
        return
    assert put.code == "OK", put
    assert [(o["key"], o["size"]) for o in bucket.list()] == [("dir/", 0)]


def test_nothing_is_read_or_written_outside_the_directory(file_bucket):
    outside = file_bucket.folder / "outside"
    outside.write_text("secret")
    (file_bucket.folder / "data/link").symlink_to(outside)
    (file_bucket.folder / "data/up").symlink_to("..")
    for key in (b"../outside", b"link", b"up/outside", b"up"):
        answer, got = file_bucket.get(key, 6)
        assert answer.code in ("NOT_FOUND", "INVALID", "DENIED"), answer
        assert got == b""
    for key in (b"../new", b"up/new"):
        assert file_bucket.put(key, b"x").code != "OK"
    assert not (file_bucket.folder / "new").exists()
    assert file_bucket.put(b"link", b"mine").code == "OK"  # the link is replaced, its target stays
    assert outside.read_text() == "secret"
