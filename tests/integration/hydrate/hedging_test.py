# SPDX-License-Identifier: Apache-2.0
"""A read that does not answer is sent a second time: how many are, who wins, and when none is.

No test measures time: a request that is not sent again is one that no run outlives. A busy machine is late as well, so only
the budgets of second requests and of restarts bound their number: five, and one for each hundred reads."""
import pytest

from .lib import DONE, Bucket

pytestmark = [pytest.mark.timeout(300), pytest.mark.asan]
COUNT, FIRST = 2000, 5
ROUND_TRIP = "op=get,do=latency:5"
PATIENT = ("--stall", "600s")  # longer than hydrate() lets a run live


@pytest.fixture
def bucket():
    with Bucket(f"h/:{COUNT}:2000", "m/:600:300000-301000") as b:
        yield b


def first_reads(keys, how):
    return [f"op=get,key={key},nth=1,do={how}" for key in keys]


def hydrated(bucket, prefix, folder, *flags, count=COUNT):
    code, end, errors = bucket.hydrate(prefix, folder, *flags)
    assert (code, errors, end["hydrated"], end["verified"]) == (DONE, [], count, count)
    return end, bucket.stats()["get"] - count


def test_requests_that_stall_are_asked_for_again_within_the_budget(bucket, tmp_path):
    keys = [f"h/object-{i:09}" for i in range(500, COUNT, 200)]
    bucket.fault(*first_reads(keys, "latency:600000"), ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out", *PATIENT)
    assert bucket.fired()[:-1] == [1] * len(keys)
    assert len(keys) <= end["hedged"] <= FIRST + COUNT // 100 and extra >= len(keys)
    bucket.no_faults()
    bucket.prefix = "h/"
    assert bucket.objects_are_right(tmp_path / "out")


def test_answers_that_stand_still_in_their_middle_are_started_over(bucket, tmp_path):
    bucket.fault(*first_reads(["m/object-000000500", "m/object-000000550"], "stall:100000"), ROUND_TRIP)
    _, extra = hydrated(bucket, "m/", tmp_path / "out", *PATIENT, count=600)
    assert bucket.fired()[:2] == [1, 1] and 2 <= extra <= 2 * (FIRST + 600 // 100)
    bucket.no_faults()
    bucket.prefix = "m/"
    assert bucket.objects_are_right(tmp_path / "out")


def test_a_body_that_is_far_slower_than_others_is_started_over_once(tmp_path):
    with Bucket("s/a/:600:2000", "s/l/:30:4Mi") as bucket:
        bucket.fault("op=get,key=s/l/*27,nth=1,do=slow:10000", ROUND_TRIP)
        _, extra = hydrated(bucket, "s/", tmp_path / "out", *PATIENT, count=630)
        assert bucket.fired()[0] == 1 <= extra <= 2 * (FIRST + 630 // 100)
        bucket.no_faults()
        bucket.fault("op=get,key=s/l/*27,do=slow:400000", ROUND_TRIP)
        hydrated(bucket, "s/", tmp_path / "again", "--retries", "3", count=630)


@pytest.mark.parametrize("objects, rule", [
    ("f/:4:64Mi", "op=get,nth=7,do=slow:20000"),  # 8 MiB
    ("f/:500:100Ki", "op=get,nth=3,do=slow:200"),
    ("f/:40:1000", "op=get,nth=30,do=latency:600000"),
])
def test_a_small_run_does_not_wait_for_one_slow_answer(tmp_path, objects, rule):
    count = int(objects.split(":")[1])
    with Bucket(objects) as bucket:
        bucket.fault(rule)
        hydrated(bucket, "f/", tmp_path / "out", *PATIENT, count=count)
        assert bucket.fired() == [1]


def test_a_part_that_is_far_slower_than_others_is_started_over_though_the_store_refuses_some(tmp_path):
    """A 503 silenced all hedges for ten seconds, and each retry took one from their budget."""
    with Bucket("f/l/:4:64Mi", "f/s/:2000:20000") as bucket:
        bucket.fault("op=get,key=f/l/*0,nth=1,do=slow:2000", "op=get,permille=20,do=status:503")
        hydrated(bucket, "f/", tmp_path / "out", *PATIENT, count=2004)
        assert bucket.fired()[0] == 1 and bucket.fired()[1] > 10


def test_a_store_that_asks_for_less_is_not_asked_twice(bucket, tmp_path):
    bucket.fault("op=get,every=40,do=status:503", "op=get,after=500,every=500,do=latency:1500", ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out")
    refused, late, _ = bucket.fired()
    assert end["hedged"] == 0 and late > 0
    assert refused <= extra <= refused + FIRST + COUNT // 100


def test_the_second_answer_may_be_the_worse_one(bucket, tmp_path):
    """First ones that come after the second ones win against them, for those never answer."""
    late = ["h/object-000001777", "h/object-000001888"]
    held = [f"op=get,key={key},nth=1,do=hold:{len(late) + i}:rule" for i, key in enumerate(late, 1)]
    bucket.fault(*held, *first_reads(late, "stall"), ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out", *PATIENT)
    assert bucket.fired()[:4] == [1, 1, 1, 1]
    assert len(late) <= end["hedged"] <= FIRST + COUNT // 100 and extra >= len(late)


@pytest.mark.parametrize("number, how", [(1, "stall"), (1, "slow:1000"), (2, "stall:1000")])
def test_a_page_of_the_listing_that_hangs_or_crawls_is_asked_for_again(bucket, tmp_path, number, how):
    """The store has one address."""
    bucket.fault(f"op=list,nth={number},do={how}")
    hydrated(bucket, "h/", tmp_path / "out", *PATIENT)
    assert bucket.fired() == [1]


def test_a_head_of_a_large_object_that_hangs_is_asked_for_again(tmp_path):
    with Bucket("h/:2:32Mi") as bucket:
        bucket.fault("op=head,nth=1,do=stall")
        hydrated(bucket, "h/", tmp_path / "out", *PATIENT, count=2)
        assert bucket.fired() == [1]
