# SPDX-License-Identifier: Apache-2.0
"""Of the volumes that share a bucket each gets its part: all objects once, and the same bytes within a few percent."""
import pytest

from paths import files_below

from .lib import DONE, SOME_FAILED, USAGE, Bucket, cistern, files, is_tidy

pytestmark = [pytest.mark.timeout(120), pytest.mark.asan]
SHARDS = 3


@pytest.fixture(scope="module")
def bucket():
    """Small ones of all sizes, medium ones, and few large ones that no chance would spread."""
    with Bucket("d/a/:600:1-20000", "d/b/:40:400Ki", "d/c/:6:2Mi") as b:
        yield b


@pytest.fixture(autouse=True)
def healed(bucket):
    yield
    bucket.no_faults()


def shard(bucket, folder, which, *flags):
    return bucket.hydrate("d/", folder, "--shard", f"{which}/{SHARDS}", *flags)


def test_shards_are_disjoint_even_and_together_the_whole(bucket, tmp_path):
    bucket.prefix, seen, bytes_of = "d/", {}, []
    for which in range(SHARDS):
        code, end, errors = shard(bucket, tmp_path / f"{which}", which)
        assert (code, errors) == (DONE, [])
        assert end["found"] == end["hydrated"] == len(files_below(tmp_path / f"{which}"))
        assert bucket.objects_are_right(tmp_path / f"{which}")
        assert not set(seen) & set(files(tmp_path / f"{which}"))
        seen |= files(tmp_path / f"{which}")
        bytes_of.append(end["bytes"])
    code, _, _ = bucket.hydrate("d/", tmp_path / "whole")
    assert code == DONE and seen == files(tmp_path / "whole")
    assert max(bytes_of) - min(bytes_of) < 0.04 * max(bytes_of), bytes_of


def test_a_shard_that_was_interrupted_ends_as_the_same_one(bucket, tmp_path):
    bucket.fault("op=get,after=40,do=status:403")
    code, _, _ = shard(bucket, tmp_path / "out", 1, "--max-errors", "3")
    assert code != DONE
    bucket.no_faults()
    code, end, errors = shard(bucket, tmp_path / "out", 1)
    assert (code, errors) == (DONE, [])
    assert shard(bucket, tmp_path / "once", 1)[0] == DONE
    assert files(tmp_path / "out") == files(tmp_path / "once")
    assert is_tidy(tmp_path)


def test_shard_of_a_changed_bucket_is_listed_again(bucket, tmp_path):
    """And assigned again: the shard may have other objects then."""
    bucket.prefix = "d/"
    bucket.fault("op=get,key=d/a/*,after=40,times=1,do=change", "op=get,key=d/a/*,after=60,times=1,do=remove")
    code, end, errors = shard(bucket, tmp_path / "out", 1)
    assert (code, end["failed"], len(errors)) == (SOME_FAILED, 2, 3)
    code, end, errors = shard(bucket, tmp_path / "out", 1, "--delete")
    assert (code, errors) == (DONE, [])
    assert bucket.objects_are_right(tmp_path / "out")
    assert shard(bucket, tmp_path / "once", 1)[0] == DONE
    assert files(tmp_path / "out") == files(tmp_path / "once")


def test_another_shard_does_not_continue_this_one(bucket, tmp_path):
    bucket.fault("op=get,after=10,do=status:403")
    assert shard(bucket, tmp_path / "out", 1, "--max-errors", "3")[0] != DONE
    bucket.no_faults()
    code, _, errors = shard(bucket, tmp_path / "out", 2)
    assert code != DONE and errors


@pytest.mark.parametrize("text", ["3/3", "x", "1/0", "0/2000"])
def test_invalid_shard_is_refused(tmp_path, text):
    run = cistern("hydrate", "s3://b/", tmp_path / "out", "--shard", text)
    assert run.returncode == USAGE and "--shard" in run.stderr and "0/4 to 3/4" in run.stderr
