# SPDX-License-Identifier: Apache-2.0
"""A bad day of a store: every fault ends in the right tree, or in a sentence that names the object."""
import json
import os
import re
import subprocess
import time

import pytest

from paths import CISTERN, files_below
from servers.answering import Answering
from servers.bucket import KEYS

from .lib import DONE, MISMATCH, SOME_FAILED, TRANSIENT, Bucket

pytestmark = [pytest.mark.timeout(120), pytest.mark.asan]
OBJECTS = ("s/:200:30Ki", "l/:2:20Mi")
QUICK = ("--retries", "4")


@pytest.fixture(scope="module")
def bucket():
    with Bucket(*OBJECTS) as b:
        yield b


@pytest.fixture(autouse=True)
def healed(bucket):
    yield
    bucket.no_faults()


def check(bucket, folder, prefix):
    bucket.no_faults()
    bucket.prefix = prefix
    assert bucket.objects_are_right(folder)


@pytest.mark.parametrize("prefix, count", [("s/", 200), ("l/", 2)])
@pytest.mark.parametrize("rule", [
    "op=get,every=7,times=4,do=reset:1000", "op=get,every=5,times=4,do=truncate:100", "op=get,every=3,times=4,do=status:503",
    "op=get,every=5,times=4,do=status:500", "op=get,every=5,times=4,do=status:429", "op=get,nth=2,do=corrupt",
    "op=list,nth=1,do=status:503", "op=list,nth=1,do=reset:10", "op=get,nth=3,do=garbage-body"])
def test_a_passing_fault_is_survived(bucket, tmp_path, prefix, count, rule):
    bucket.fault(rule)
    code, end, errors = bucket.hydrate(prefix, tmp_path / "out")
    assert (code, errors) == (DONE, []), rule
    assert bucket.fired()[0] > 0
    assert end["found"] == end["hydrated"] == end["verified"] == count
    check(bucket, tmp_path / "out", prefix)


@pytest.mark.parametrize("prefix", ["s/", "l/"])
@pytest.mark.parametrize("rule", ["op=get,every=5,do=long:10", "op=get,every=5,do=wrong-length:1",
                                  "op=get,every=5,do=wrong-range", "op=get,every=5,do=no-range",
                                  "op=get,every=5,do=other-range", "op=get,every=4,do=no-checksum"])
def test_a_lie_about_length_or_range_is_a_sentence_or_the_right_bytes(bucket, tmp_path, prefix, rule):
    bucket.fault(rule)
    code, end, errors = bucket.hydrate(prefix, tmp_path / "out", *QUICK)
    assert bucket.fired()[0] > 0 and code in (DONE, MISMATCH, SOME_FAILED, TRANSIENT)
    assert len([e for e in errors if "object" in e]) == end["failed"] == end["found"] - end["hydrated"]
    assert len(files_below(tmp_path / "out")) == end["hydrated"]
    check(bucket, tmp_path / "out", prefix)


@pytest.mark.parametrize("prefix", ["s/", "l/"])
def test_an_object_that_changed_is_an_error_with_both_generations(bucket, tmp_path, prefix):
    bucket.fault(f"op=get,key={prefix}*1,nth=1,do=change")
    code, end, errors = bucket.hydrate(prefix, tmp_path / "out", *QUICK)
    assert code == MISMATCH
    assert end["failed"] == 1 and end["hydrated"] == end["found"] - 1
    assert errors[0]["error"]["code"] == "CHANGED"
    assert errors[-1]["error"]["id"] == "CIS1513" and "list the source again" in errors[-1]["error"]["message"]
    assert len(files_below(tmp_path / "out")) == end["hydrated"]  # nothing of it is kept


@pytest.mark.parametrize("prefix", ["s/", "l/"])
def test_bytes_that_stay_wrong_are_never_kept(bucket, tmp_path, prefix):
    bucket.fault(f"op=get,key={prefix}*1,do=corrupt")
    code, end, errors = bucket.hydrate(prefix, tmp_path / "out", *QUICK)
    assert code == MISMATCH
    assert errors[0]["error"]["id"] == "CIS1422"
    assert errors[0]["object"].endswith("1")
    assert len(files_below(tmp_path / "out")) == end["hydrated"] < end["found"]


MALFORMED = [
    ("s/", "get,key=s/object-000000001", fault) for fault in ("garbage", "truncate:100", "long:7", "wrong-length:7")] + [
    ("l/", "get,key=l/object-000000001", fault) for fault in ("garbage", "truncate:100", "wrong-range", "other-range", "no-range")
] + [("s/", "list", fault) for fault in ("garbage", "garbage-body", "truncate:100", "long:7", "wrong-length:7", "body:200:")]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("prefix, op, fault", MALFORMED)
def test_malformed_answers_are_asked_for_again_as_often_as_is_said(bucket, tmp_path, scheme, prefix, op, fault):
    """They were given up after three, whatever --retries said. Each further one doubles the wait before the next."""
    if fault == "body:200:":  # of another server
        (tmp_path / "page").write_text('{"kind": "page"' if scheme == "gs" else "<html><body>log in</html>")
        fault += str(tmp_path / "page")
    bucket.fault(f"op={op},times=4,do={fault}")
    code, _, errors = bucket.hydrate(prefix, tmp_path / "out", "--retries", "5", scheme=scheme)
    assert (code, errors, bucket.fired()) == (DONE, [], [4])
    bucket.no_faults()
    bucket.fault(f"op={op},do={fault}")
    code, _, errors = bucket.hydrate(prefix, tmp_path / "again", "--retries", "2", scheme=scheme)
    assert code in (SOME_FAILED, TRANSIENT, MISMATCH)
    assert re.search(rf"{scheme}://bench/{prefix}", errors[0]["error"]["message"]) and errors[0]["error"]["id"]


def test_a_store_that_stays_away_is_exit_5_and_the_run_continues_when_it_is_back(bucket, tmp_path):
    bucket.fault("op=get,do=status:503")
    code, end, _ = bucket.hydrate("s/", tmp_path / "out", "--retries", "2", "--timeout", "2s", "--max-errors", "5")
    assert code == TRANSIENT
    bucket.no_faults()
    code, end, errors = bucket.hydrate("s/", tmp_path / "out")
    assert (code, errors) == (DONE, [])
    assert end["hydrated"] == 200


def test_one_object_that_is_gone_fails_alone(bucket, tmp_path):
    bucket.fault("op=get,key=s/*7,nth=1,do=remove")
    code, end, errors = bucket.hydrate("s/", tmp_path / "out", *QUICK)
    assert code == SOME_FAILED
    assert end["failed"] == 1 == len([e for e in errors if "object" in e])


@pytest.mark.parametrize("prefix, key, found", [("s/", "s/*7", 200), ("l/", "l/*1", 2)])
def test_one_object_that_is_gone_is_left_out_if_that_is_asked_for(bucket, tmp_path, prefix, key, found):
    bucket.fault(f"op=get,key={key},after=1,times=1,do=remove")
    code, end, errors = bucket.hydrate(prefix, tmp_path / "out", "--skip-missing", *QUICK)
    assert (code, errors) == (DONE, [])
    assert (end["missing"], end["failed"], end["hydrated"]) == (1, 0, found - 1)
    assert len(files_below(tmp_path / "out")) == found - 1
    check(bucket, tmp_path / "out", prefix)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("text", ["404 page not found\n", "<html><head><title>404 Not Found</title></head></html>", ""])
def test_404_of_a_proxy_is_not_a_missing_object(bucket, tmp_path, scheme, text):
    page = tmp_path / "page"
    page.write_text(text)
    bucket.fault(*(f"op={op},key=s/*7,nth=1,do=body:404:{page}" for op in (["get"] if scheme == "s3" else ["get", "head"])))
    code, end, errors = bucket.hydrate("s/", tmp_path / "out", "--skip-missing", *QUICK, scheme=scheme)
    assert (code, errors, set(bucket.fired())) == (DONE, [], {1})
    assert (end["missing"], end["hydrated"]) == (0, 200)
    check(bucket, tmp_path / "out", "s/")


def test_deleted_bucket_is_not_a_missing_object(bucket, tmp_path):
    bucket.fault("op=get,nth=5,do=error:404:NoSuchBucket")
    code, end, errors = bucket.hydrate("s/", tmp_path / "out", "--skip-missing", *QUICK)
    assert (code, end["missing"], end["failed"]) == (SOME_FAILED, 0, 1), errors


def test_a_store_without_checksums_is_said_aloud(tmp_path):
    with Bucket("s/:50:30Ki", "l/:1:20Mi", flags=("--checksums", "none")) as plain:
        for prefix, count in (("s/", 50), ("l/", 1)):
            code, end, _ = plain.hydrate(prefix, tmp_path / prefix[0])
            assert code == DONE and end["hydrated"] == count
            assert end["size_only"] + end["verified"] == count


def test_md5_is_taken_where_there_is_nothing_else(tmp_path):
    with Bucket("s/:50:30Ki", "l/:1:20Mi", flags=("--checksums", "md5")) as old:
        for prefix, count in (("s/", 50), ("l/", 1)):
            code, end, errors = old.hydrate(prefix, tmp_path / prefix[0])
            assert (code, errors) == (DONE, [])
            assert end["verified"] == count
            old.prefix = prefix
            assert old.objects_are_right(tmp_path / prefix[0])


def test_the_first_object_is_fetched_before_the_listing_ends(tmp_path):
    """Else its third page would never come."""
    with Bucket("p/:5000:10") as slow:
        slow.fault("op=list,after=2,do=hold:1:get")
        code, end, errors = slow.hydrate("p/", tmp_path / "out")
        assert (code, errors, end["hydrated"]) == (DONE, [], 5000)
        assert slow.fired()[0] >= 3


@pytest.mark.parametrize("objects, rate, expected", [("b/:1200:1000-2000", "300000", 6.0), ("b/:6:8Mi", "8Mi", 6.0),
                                                     ("b/:2:20Mi", "10Mi", 4.0)])
def test_a_bandwidth_cap_holds_for_objects_of_any_size(tmp_path, objects, rate, expected):
    """That it is reached, too, is the row `bandwidth` of tests/bench: it depends on the machine."""
    with Bucket(objects) as capped:
        code, end, _ = capped.hydrate("b/", tmp_path / "out", "--bandwidth", rate)
        assert code == DONE
        assert end["seconds"] > 0.95 * expected


def test_under_a_cap_little_is_on_its_way(tmp_path):
    """A kill loses no more than about a second's worth: of large objects a part or two."""
    with Bucket("b/:8:32Mi") as capped:
        began = time.monotonic()
        with subprocess.Popen([CISTERN, "hydrate", "s3://bench/b/", tmp_path / "out", "--endpoint", capped.url,
                               "--bandwidth", "16Mi", "--quiet"], env={**os.environ, **KEYS}) as run:
            while (asked := capped.stats()["get"]) < 8:  # of 32
                assert run.poll() is None
                time.sleep(0.02)
            seconds = time.monotonic() - began
            run.kill()
        assert asked * (8 << 20) <= (seconds + 0.5 + 1.2) * (16 << 20)


def test_faults_that_are_not_read_in_time_are_counted(tmp_path):
    """The program that prints them waits: its pipe is full."""
    keys = "".join(f"<Contents><Key>p/bad//{i:05}</Key><Size>1</Size></Contents>" for i in range(5000))
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode()
    status = tmp_path / ".out.cistern/status.json"
    with Answering(lambda request: (200, {}, listing)) as server:
        words = [CISTERN, "hydrate", "--no-progress", "--path-style", "--endpoint", server.url, "--max-errors", "5000",
                 "s3://bench/p/", tmp_path / "out"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, **KEYS}) as run:
            deadline = time.monotonic() + 60
            while not (status.exists() and json.loads(status.read_text())["phase"] == "failed"):
                assert run.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            told = run.communicate()[1].splitlines()
    named = sum("bad//" in line for line in told)
    unnamed = [int(re.search(r"(\d+) more objects failed and are not listed", line)[1]) for line in told
               if "are not listed" in line]
    assert run.returncode == SOME_FAILED and len(unnamed) == 1 and named + unnamed[0] == 5000
    assert named >= 1000
