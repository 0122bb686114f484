# SPDX-License-Identifier: Apache-2.0
"""A read that does not answer is sent a second time: how many are, who wins, and when none is."""
import pytest

from .lib import DONE, Bucket

pytestmark = [pytest.mark.timeout(300), pytest.mark.asan]
COUNT, STALL_S = 2000, 90
# Without a second request a slow reply takes minutes, and the run more than the limit of its time.
PATIENT, SOON_S = ("--stall", "1h"), 90
ROUND_TRIP, STALLS = "op=get,do=latency:5", f"op=get,after=400,every=200,do=latency:{STALL_S * 1000}"


@pytest.fixture
def bucket():
    with Bucket(f"h/:{COUNT}:2000", "m/:600:300000-301000") as b:
        yield b


def hydrated(bucket, prefix, folder, *flags, count=COUNT):
    code, end, errors = bucket.hydrate(prefix, folder, *flags)
    assert (code, errors, end["hydrated"], end["verified"]) == (DONE, [], count, count)
    return end, bucket.stats()["get"] - count


def test_requests_that_stall_are_asked_for_again_and_at_most_one_in_a_hundred(bucket, tmp_path):
    bucket.fault(STALLS, ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out")
    assert end["seconds"] < STALL_S
    assert (COUNT - 400) // 200 <= extra == end["hedged"] <= COUNT // 100
    bucket.no_faults()
    bucket.prefix = "h/"
    assert bucket.objects_are_right(tmp_path / "out")


def test_answers_that_stand_still_in_their_middle_are_started_over(bucket, tmp_path):
    bucket.fault("op=get,after=500,every=20,times=2,do=stall:100000", ROUND_TRIP)
    end, extra = hydrated(bucket, "m/", tmp_path / "out", "--stall", f"{STALL_S}s", count=600)
    assert 2 <= extra - end["hedged"] <= 6
    assert end["seconds"] < STALL_S
    bucket.no_faults()
    bucket.prefix = "m/"
    assert bucket.objects_are_right(tmp_path / "out")


def test_a_body_that_is_far_slower_than_others_is_started_over_once(tmp_path):
    """4 MiB at 20 KB a second take 200 s, while the others come at once."""
    with Bucket("s/a/:600:2000", "s/l/:30:4Mi") as bucket:
        bucket.fault("op=get,key=s/l/*27,nth=1,do=slow:20000", ROUND_TRIP)
        end, extra = hydrated(bucket, "s/", tmp_path / "out", *PATIENT, count=630)
        assert end["seconds"] < SOON_S
        assert 1 <= extra - end["hedged"] <= 6
        bucket.no_faults()
        bucket.fault("op=get,key=s/l/*27,do=slow:400000", ROUND_TRIP)
        hydrated(bucket, "s/", tmp_path / "again", "--retries", "3", count=630)


@pytest.mark.parametrize("objects, rule", [
    ("f/:4:64Mi", "op=get,nth=7,do=slow:20000"),  # 8 MiB take 420 s
    ("f/:500:100Ki", "op=get,nth=3,do=slow:500"),  # 100 KiB take 200 s
    ("f/:40:1000", "op=get,nth=30,do=latency:250000"),
])
def test_a_small_run_does_not_wait_for_one_slow_answer(tmp_path, objects, rule):
    count = int(objects.split(":")[1])
    with Bucket(objects) as bucket:
        bucket.fault(rule)
        end, _ = hydrated(bucket, "f/", tmp_path / "out", *PATIENT, count=count)
        assert end["seconds"] < SOON_S


def test_a_part_that_is_far_slower_than_others_is_started_over_though_the_store_refuses_some(tmp_path):
    """A 503 silenced all hedges for ten seconds, and each retry took one from their budget."""
    with Bucket("f/l/:4:64Mi", "f/s/:2000:20000") as bucket:
        bucket.fault("op=get,key=f/l/*0,nth=1,do=slow:10000", "op=get,permille=20,do=status:503")
        end, _ = hydrated(bucket, "f/", tmp_path / "out", *PATIENT, count=2004)
        assert bucket.fired()[0] == 1 and bucket.fired()[1] > 10 and end["seconds"] < SOON_S


def test_a_store_that_asks_for_less_is_not_asked_twice(bucket, tmp_path):
    bucket.fault("op=get,after=400,every=40,times=60,do=status:503", "op=get,after=500,every=500,do=latency:1500", ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out")
    assert end["hedged"] == 0
    assert extra <= 60 + 1


def test_under_a_cap_that_is_the_limit_nothing_is_asked_twice(bucket, tmp_path):
    end, extra = hydrated(bucket, "h/", tmp_path / "out", "--bandwidth", "2Mi")
    if end["seconds"] < 1.05 * COUNT * 2000 / (2 << 20):  # else the machine was
        assert (end["hedged"], extra) == (0, 0)


def test_the_second_answer_may_be_the_worse_one(bucket, tmp_path):
    """First ones that come late win against second ones that never do."""
    late = ["h/object-000001777", "h/object-000001888"]
    rules = [[f"op=get,key={key},nth=1,do=latency:3000", f"op=get,key={key},nth=1,do=stall"] for key in late]
    bucket.fault(*sum(rules, []), ROUND_TRIP)
    end, extra = hydrated(bucket, "h/", tmp_path / "out")
    assert extra == end["hedged"] >= len(late)
    assert end["seconds"] < STALL_S


@pytest.mark.parametrize("number, how", [(1, "stall"), (1, "slow:2000"), (2, "stall:1000")])
def test_a_page_of_the_listing_that_hangs_or_crawls_is_asked_for_again(bucket, tmp_path, number, how):
    """The store has one address. The page was asked for again after the stall timeout."""
    bucket.fault(f"op=list,nth={number},do={how}")
    end, _ = hydrated(bucket, "h/", tmp_path / "out", *PATIENT)
    assert bucket.fired() == [1]
    assert end["seconds"] < SOON_S


def test_a_head_of_a_large_object_that_hangs_is_asked_for_again(tmp_path):
    with Bucket("h/:2:32Mi") as bucket:
        bucket.fault("op=head,nth=1,do=stall")
        end, _ = hydrated(bucket, "h/", tmp_path / "out", *PATIENT, count=2)
        assert bucket.fired() == [1]
        assert end["seconds"] < SOON_S
