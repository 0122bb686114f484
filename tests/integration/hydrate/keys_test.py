# SPDX-License-Identifier: Apache-2.0
"""Keys as people really have them: each lands under its own name, or is reported by it, and nothing lands outside."""
import pytest

from .lib import DONE, SOME_FAILED, Bucket, files, tree

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
def test_a_name_that_is_an_object_and_a_folder_ends_the_same_way_always(bucket, tmp_path, size):
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


def test_excluding_what_cannot_be_a_file_makes_the_run_whole(bucket, tmp_path):
    for key in ["good", "bad//x"]:
        bucket.put("w/" + key, key.encode())
    code, end, _ = bucket.hydrate("w/", tmp_path / "out", "--exclude", "bad/**")
    assert code == DONE and end["found"] == end["hydrated"] == 1
