# SPDX-License-Identifier: Apache-2.0
"""In which order objects are asked for: priorities first, prefixes in turns, and no faster than the store bears."""
import hashlib
import threading
import time

import pytest

from servers.answering import Answering

from .lib import DONE, Bucket, cistern

pytestmark = pytest.mark.timeout(120)


def order(bucket):
    """The keys as they were requested first: on a busy machine, a slow reply may be requested twice."""
    return list(dict.fromkeys(bucket.ask("/_order").decode().split()))


@pytest.mark.asan
def test_priorities_land_first_in_the_order_given(tmp_path):
    with Bucket("p/a/:300:500", "p/m/:30:500", "p/z/:30:500") as bucket:
        code, _, _ = bucket.hydrate("p/", tmp_path / "out", "--priority", "z/**", "--priority", "m/*7", "--concurrency", "1",
                                    "--workers", "1")
        assert code == DONE
        came = order(bucket)
        assert len(came) == 360
        assert all(key.startswith("p/z/") for key in came[:30])
        assert all(key.startswith("p/m/") and key.endswith("7") for key in came[30:33])


@pytest.mark.asan
def test_priorities_land_first_with_many_requests_at_once(tmp_path):
    with Bucket("p/a/:600:500", "p/z/:200:500") as bucket:
        bucket.fault("op=get,do=latency:3")
        assert bucket.hydrate("p/", tmp_path / "out", "--priority", "z/**", "--concurrency", "16")[0] == DONE
        came = order(bucket)
        assert sum(key.startswith("p/z/") for key in came[:232]) >= 200 - 16  # those that passed others on their way


@pytest.mark.asan
@pytest.mark.parametrize("threads", [1, 3, 32])
def test_no_more_requests_at_once_than_asked_for_however_many_threads(tmp_path, threads):
    body, lock, now, most = b"x" * 100, threading.Lock(), 0, 0
    keys = "".join(f"<Contents><Key>p/{i:03}</Key><Size>100</Size><ETag>{hashlib.md5(body).hexdigest()}</ETag></Contents>"
                   for i in range(60))

    def answer(request):
        nonlocal now, most
        if "list-type" in request.path:
            return 200, {}, f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode()
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return 200, {"etag": hashlib.md5(body).hexdigest()}, body

    with Answering(answer) as server:
        run = cistern("hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", server.url, "--concurrency", 2,
                      "--workers", threads)
    assert run.returncode == DONE, run.stderr
    assert 1 <= most <= 2


@pytest.mark.asan
def test_priorities_that_are_listed_later_pass_what_waits(tmp_path):
    with Bucket("p/a/:3000:500", "p/z/:20:500") as bucket:
        bucket.fault("op=get,after=500,do=hold:4:list", "op=get,do=latency:20")
        assert bucket.hydrate("p/", tmp_path / "out", "--priority", "z/**", "--concurrency", "8")[0] == DONE
        came = order(bucket)
        assert max(i for i, key in enumerate(came) if key.startswith("p/z/")) < 1500


@pytest.mark.asan
def test_prefixes_are_asked_in_turns(tmp_path):
    with Bucket("p/a/:2000:500", "p/b/:2000:500") as bucket:
        bucket.fault("op=get,do=latency:3")
        assert bucket.hydrate("p/", tmp_path / "out", "--concurrency", "16")[0] == DONE
        came = order(bucket)
        assert 500 < sum(key.startswith("p/b/") for key in came[1000:3000]) < 1500


def test_a_store_that_asks_for_less_above_a_rate_gets_less(tmp_path):
    """300 a second and 1,500 objects: at least five seconds, and few refused requests."""
    with Bucket("p/:1500:500") as bucket:
        bucket.fault("op=get,do=limit:300")
        code, end, errors = bucket.hydrate("p/", tmp_path / "out")
        assert (code, errors, end["hydrated"], end["hedged"]) == (DONE, [], 1500, 0)
        assert end["seconds"] > 4.8
        assert bucket.stats()["get"] < 1500 * 1.4
