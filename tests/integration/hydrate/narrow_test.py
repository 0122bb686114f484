# SPDX-License-Identifier: Apache-2.0
"""A server, a proxy or a translator of addresses that bears few connections and resets the rest: nothing fails for it,
and after a while next to nothing is sent away."""
import concurrent.futures

import pytest

from .lib import DONE, SOME_FAILED, TRANSIENT, Bucket, cistern

pytestmark = pytest.mark.timeout(180)
FEW_TRIES = ("--retries", "1", "--timeout", "30s")  # far too few for who is sent away again and again


def narrow(most, *objects, flags=()):
    return Bucket(*objects, flags=("--connections", str(most), *flags))


def arrives(bucket, folder, count, *flags, patience=FEW_TRIES):
    code, end, errors = bucket.hydrate("n/", folder, *patience, *flags)
    assert (code, errors) == (DONE, [])
    assert end["hydrated"] == end["verified"] == count
    stats = bucket.stats()
    assert stats["turned_away"] > 0
    return end, stats


@pytest.mark.asan
@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize("objects, count", [(["n/:250:2000"], 250), (["n/:5:20Mi"], 5), (["n/a/:150:30Ki", "n/b/:3:20Mi"], 153)],
                         ids=["small", "large", "both"])
def test_a_server_of_few_connections_serves_the_run_by_those(tmp_path, most, objects, count):
    with narrow(most, *objects) as bucket:
        bucket.fault("op=get,do=latency:10")
        arrives(bucket, tmp_path / "out", count)
        bucket.prefix = "n/"
        assert bucket.objects_are_right(tmp_path / "out")


@pytest.mark.parametrize("most", [4, 16])
def test_so_few_are_tried_that_hardly_any_is_sent_away(tmp_path, most):
    """More than stand are tried when the run begins, and one more every second and a half."""
    with narrow(most, "n/:2500:2000") as bucket:
        bucket.fault("op=get,do=latency:10")
        end, stats = arrives(bucket, tmp_path / "out", 2500)
        assert stats["turned_away"] < 100 + 4 * end["seconds"]
        assert stats["connections"] < 100 + 8 * end["seconds"], "those that stand are kept"


@pytest.mark.asan
def test_a_listing_of_many_pages_goes_through_as_well(tmp_path):
    with narrow(4, "n/:20000:10") as bucket:
        bucket.fault("op=list,do=latency:20")
        arrives(bucket, tmp_path / "out", 20000)


@pytest.mark.asan
def test_over_tls_as_well(tmp_path):
    certificate = tmp_path / "certificate.pem"
    with narrow(6, "n/:800:2000", flags=("--tls", str(certificate))) as bucket:
        bucket.fault("op=get,do=latency:10")
        arrives(bucket, tmp_path / "out", 800, "--ca-file", certificate)


@pytest.mark.asan
def test_two_runs_share_the_few(tmp_path):
    """One of them may see no served request at first."""
    with narrow(8, "n/:600:2000") as bucket, concurrent.futures.ThreadPoolExecutor(2) as pool:
        bucket.fault("op=get,do=latency:10")
        for run in [pool.submit(arrives, bucket, tmp_path / f"out{i}", 600, patience=()) for i in range(2)]:
            run.result()


def test_one_object_that_breaks_every_connection_fails_when_the_others_are_there(tmp_path):
    """It is given up in time, and does not take the window from the others."""
    with Bucket("n/:400:2000") as bucket:
        bucket.fault("op=get,key=n/*77,do=reset", "op=get,do=latency:5")
        code, end, errors = bucket.hydrate("n/", tmp_path / "out", *FEW_TRIES)
        assert code == TRANSIENT
        named = sorted(e["object"] for e in errors if "object" in e)
        assert named == [f"object-{i:09}" for i in range(77, 400, 100)]
        assert end["hydrated"] == 400 - len(named)


@pytest.mark.parametrize("transport", ["http", "tls"])
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("operation, scheme, size, exports", [
    ("list", "s3", "2000", False), ("get", "s3", "2000", False), ("get", "gs", "2000", False), ("head", "s3", "9Mi", False),
    ("put", "s3", "2000", True), ("post", "gs", "2000", True), ("post", "s3", "17Mi", True)])
def test_request_that_is_read_and_not_answered_is_tried_as_often_as_allowed(
        tmp_path, transport, attempts, operation, scheme, size, exports):
    """Before, 27 requests were sent for one attempt: while others were served, the closed connection counted as refused. libcurl
    repeats a request once if a kept connection is closed, and a late HEAD is sent a second time."""
    certificate = tmp_path / "certificate.pem"
    tls, trust = (("--tls", str(certificate)), ("--ca-file", certificate)) if transport == "tls" else ((), ())
    is_only = (operation, scheme) in (("list", "s3"), ("post", "gs"))  # its URL has no key, by which to serve the others
    with Bucket(f"n/:{1 if is_only else 3}:{size}", flags=tls) as bucket:
        if exports:
            assert bucket.hydrate("n/", tmp_path / "in", *trust, scheme=scheme)[0] == DONE
        bucket.fault(f"op={operation},{'' if is_only else 'key=*1,'}do=lost")
        access = ("--anonymous",) if scheme == "gs" else ()
        way = ("export", tmp_path / "in", f"{scheme}://bench/x/") if exports else (
            "hydrate", f"{scheme}://bench/n/", tmp_path / "out")
        done = cistern(*way, "--endpoint", bucket.url, *access, *trust, "--retries", attempts)
        assert done.returncode in (SOME_FAILED, TRANSIENT)
        assert attempts <= bucket.fired()[0] <= 4 * attempts
