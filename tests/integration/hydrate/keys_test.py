# SPDX-License-Identifier: Apache-2.0
"""Keys as people really have them: each lands under its own name, or is reported by it, and nothing lands outside."""
import json

import pytest

from servers.answering import Answering

from .lib import DONE, SOME_FAILED, Bucket, files, summary, tree

pytestmark = [pytest.mark.timeout(120), pytest.mark.asan]
GOOD = ["plain", "a b", "a+b%2F", "ünï/ç", "tab\there", "new\nline", "-dash", ".hidden", "long/" + "k" * 250, "zero"]
BAD = ["x//y", "/lead", "../up", "a/../b", "./dot", "q/./r", "s" * 256]


@pytest.fixture
def bucket():
    with Bucket("n/:1:1") as b:
        yield b


def test_each_lands_or_is_named_and_nothing_is_outside(bucket, tmp_path):
    for key in GOOD + BAD:
        bucket.put("w/" + key, b"" if key == "zero" else key.encode())
    bucket.put("w/folder/", b"")
    code, end, errors = bucket.hydrate("w/", tmp_path / "deep/out")
    assert code == SOME_FAILED
    assert end["found"] == len(GOOD + BAD) + 1 and end["failed"] == len(BAD)
    assert sorted(e["object"] for e in errors if "object" in e) == sorted(BAD)
    assert {e["error"]["id"] for e in errors if "object" in e} == {"CIS1512"}
    assert files(tmp_path / "deep/out").keys() == {key.encode() for key in GOOD}
    assert tree(tmp_path / "deep/out")[b"folder"] == "folder"
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_name_of_an_object_and_a_directory_always_ends_the_same_way(bucket, tmp_path, size):
    for key in ["both", "both/child", "both/deeper/child", "also/", "also", "other"]:
        bucket.put("w/" + key, b"" if key.endswith("/") else key[0].encode() * size)
    want = None
    for i in range(5):
        code, end, errors = bucket.hydrate("w/", tmp_path / f"out{i}", "--workers", str(i % 2 + 1))
        assert code == SOME_FAILED
        assert sorted(e["object"] for e in errors if "object" in e) == ["also", "both"]
        assert end["hydrated"] == 4 and end["failed"] == 2
        want = want or tree(tmp_path / f"out{i}")
        assert tree(tmp_path / f"out{i}") == want
        assert set(want) == {b"also", b"both", b"both/child", b"both/deeper", b"both/deeper/child", b"other"}


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
@pytest.mark.parametrize("is_link", [False, True])
def test_users_file_in_place_of_a_directory_is_kept_and_named(bucket, tmp_path, size, is_link):
    for key in ["theirs/child", "theirs/deeper/child", "other"]:
        bucket.put("w/" + key, b"c" * size)
    theirs = tmp_path / "out/theirs"
    (tmp_path / "elsewhere").mkdir()
    theirs.parent.mkdir()
    if is_link:
        theirs.symlink_to(tmp_path / "elsewhere")
    else:
        theirs.write_bytes(b"mine")
    code, end, errors = bucket.hydrate("w/", tmp_path / "out")
    assert (code, end["hydrated"], end["failed"]) == (SOME_FAILED, 1, 2), errors
    assert sorted(e["object"] for e in errors if "object" in e) == ["theirs/child", "theirs/deeper/child"]
    assert {e["error"]["id"] for e in errors if "object" in e} == {"CIS1531" if is_link else "CIS1525"}, errors
    assert theirs.is_symlink() if is_link else theirs.read_bytes() == b"mine"
    assert not list((tmp_path / "elsewhere").iterdir())
    theirs.unlink()
    code, end, errors = bucket.hydrate("w/", tmp_path / "out")
    assert (code, errors) == (DONE, [])
    assert (theirs / "deeper/child").read_bytes() == b"c" * size


@pytest.mark.parametrize("size", [0, 10, 20 << 20])
@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_users_directory_in_place_of_an_object_is_kept_and_named(bucket, tmp_path, size, flags):
    for key in ["theirs", "other"]:
        bucket.put("w/" + key, b"c" * size)
    theirs = tmp_path / "out/theirs"
    theirs.mkdir(parents=True)
    (theirs / "file").write_bytes(b"mine")
    code, end, errors = bucket.hydrate("w/", tmp_path / "out", "--verify", "size", *flags)
    assert (code, end["hydrated"], end["failed"], end["size_only"]) == (SOME_FAILED, 1, 1, size > 0), errors
    assert [(e["object"], e["error"]["id"]) for e in errors if "object" in e] == [("theirs", "CIS1525")], errors
    assert "'theirs' exists and is a directory" in str(errors) and (theirs / "file").read_bytes() == b"mine"
    theirs.rename(tmp_path / "away")
    code, end, errors = bucket.hydrate("w/", tmp_path / "out", *flags)
    assert (code, errors) == (DONE, []) and theirs.read_bytes() == b"c" * size


def test_excluding_what_cannot_be_a_file_makes_the_run_whole(bucket, tmp_path):
    for key in ["good", "bad//x"]:
        bucket.put("w/" + key, key.encode())
    code, end, _ = bucket.hydrate("w/", tmp_path / "out", "--exclude", "bad/**")
    assert code == DONE and end["found"] == end["hydrated"] == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_directory_marker_precedes_its_objects_across_pages(tmp_path, scheme):
    with Bucket("w/a/:999:10") as bucket:
        for key in ["m/", "m/child", "m/deeper/", "n/", "z/"]:
            bucket.put("w/" + key, b"" if key.endswith("/") else b"c")
        access = "--path-style" if scheme == "s3" else "--anonymous"
        code, end, errors = summary("hydrate", f"{scheme}://bench/w/", tmp_path / "out", "--endpoint", bucket.url, access)
        assert bucket.stats()["list"] >= 2
    assert (code, errors, end["found"], end["hydrated"]) == (DONE, [], 1004, 1004)
    found = tree(tmp_path / "out")
    assert {name for name, value in found.items() if value == "folder"} == {b"a", b"m", b"m/deeper", b"n", b"z"}
    assert len(found) == 5 + 1000


# ---- a NUL, which no file's name can have ------------------------------------------------------------------------------

def s3_page(key):
    return (f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key>w/{key}</Key><Size>1"
            "</Size></Contents><Contents><Key>w/good</Key><Size>1</Size></Contents></ListBucketResult>").encode()


def gs_page(key):
    return json.dumps({"items": [{"name": f"w/{name}", "size": "1", "generation": "1"} for name in (key, "good")]}).encode()


def hydrate_page(tmp_path, scheme, page):
    def answer(request):
        is_listing = "list-type" in request.path or "/o?" in request.path
        return (200, {}, page) if is_listing else (200, {"x-goog-generation": "1"} if scheme == "gs" else {}, b"x")

    with Answering(answer) as server:
        return summary("hydrate", f"{scheme}://bench/w/", tmp_path / "out", "--endpoint", server.url, "--retries", "2",
                       "--path-style" if scheme == "s3" else "--anonymous")


def test_a_key_with_a_nul_is_reported_by_its_name_and_the_others_land(tmp_path):
    code, end, errors = hydrate_page(tmp_path, "s3", s3_page("a%00b"))
    assert (code, end["found"], end["hydrated"], end["failed"]) == (SOME_FAILED, 2, 1, 1), errors
    assert errors[0]["error"]["id"] == "CIS1512" and errors[0]["object"].startswith("a"), errors
    assert files(tmp_path / "out").keys() == {b"good"}


@pytest.mark.parametrize("scheme, page", [("gs", gs_page("a\0b")), ("s3", s3_page("a&#0;b")), ("s3", s3_page("a\0b"))],
                         ids=["JSON", "XML, as a reference", "XML, as a byte"])
def test_a_listing_with_a_nul_where_its_format_has_none_is_refused_by_a_sentence(tmp_path, scheme, page):
    code, end, errors = hydrate_page(tmp_path, scheme, page)
    assert code not in (DONE, SOME_FAILED) and end["hydrated"] == 0, errors
    assert errors[-1]["error"]["id"].startswith("CIS16"), errors
    assert not (tmp_path / "out").exists()
