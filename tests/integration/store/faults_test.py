# SPDX-License-Identifier: Apache-2.0
"""Faults during a call: the bucket server has faults by rule, which real servers have not. Each call succeeds after a
retry, or ends with an error that names the object."""

import json
import time
import urllib.parse

import pytest

from integration.lib.buckets import clean_environment, run_tool
from servers.answering import Answering
from servers.bucket import KEYS, BucketServer


class Faulty(BucketServer):
    def __init__(self, *rules, latency="0ms"):
        super().__init__("--objects", "k/:2500:1000", "--latency", latency, *(word for rule in rules for word in ("--fault", rule)))

    def call(self, scheme, *arguments, retries=4):
        return run_tool("--endpoint", self.url, "--retries", retries, *(["--anonymous"] if scheme == "gs" else []),
                        f"{scheme}://bench/", *arguments, env=clean_environment(**KEYS))


schemes = pytest.mark.parametrize("scheme", ["s3", "gs"])


@schemes
@pytest.mark.parametrize("action", ["status:500", "status:503", "status:429", "status:408", "reset", "reset:10", "truncate",
                                    "truncate:100"])
def test_a_passing_fault_of_a_listing_is_tried_again(scheme, action):
    with Faulty(f"op=list,nth=2,do={action}") as server:
        answer = server.call(scheme, "list", "--prefix", "k/")
        assert answer.code == "OK", answer
        keys = [line["key"] for line in answer.lines]
        assert len(keys) == 2500 and keys == sorted(set(keys))


@schemes
@pytest.mark.parametrize("action", ["status:500", "status:503", "reset"])
def test_lasting_fault_is_reported_after_the_last_attempt(scheme, action):
    with Faulty(f"op=list,do={action}") as server:
        answer = server.call(scheme, "list", "--prefix", "k/", retries=3)
        assert answer.code in ("AGAIN", "IO") and answer.requests == 3 and answer.may_retry
        assert f"{scheme}://bench/k/" in answer.text


@schemes
def test_slow_refusals_cost_no_attempt(scheme):
    with Faulty("op=list,do=status:503", latency="300ms") as server:
        assert server.call(scheme, "list", "--prefix", "k/", retries=3).requests == 3


@schemes
@pytest.mark.parametrize("action", ["garbage", "garbage:1000000", "garbage-body", "garbage-body:1000000"])
def test_garbage_instead_of_a_listing_is_an_error(scheme, action):
    with Faulty(f"op=list,do={action}") as server:
        answer = server.call(scheme, "list", "--prefix", "k/", retries=2)
        assert answer.code not in ("OK", "INTERNAL"), answer
        assert f"{scheme}://bench/k/" in answer.text


@schemes
@pytest.mark.parametrize("action, codes", [
    ("status:500", ["AGAIN"]), ("status:404", ["NOT_FOUND", "AGAIN"]), ("status:403", ["DENIED"]), ("reset", ["IO", "AGAIN"]),
    ("reset:100", ["IO", "AGAIN"]), ("truncate:100", ["IO", "AGAIN"]), ("long:50", ["CORRUPT", "IO", "CHANGED"]),
    ("wrong-length:50", ["IO", "CORRUPT", "CHANGED"]), ("change", ["CHANGED"]), ("remove", ["NOT_FOUND"])])
def test_a_get_ends_whole_or_in_an_error(scheme, action, codes):
    with Faulty(f"op=get,do={action}") as server:
        listed = server.call(scheme, "list", "--prefix", "k/", "--page", 1).lines[0]
        pin = ["--etag", listed["etag"]] if scheme == "s3" else ["--generation", listed["generation"]]
        answer = server.call(scheme, "get", listed["key"], "--size", 1000, "--out", "/dev/null", *pin)
        assert answer.code in codes, answer
        assert listed["key"] in answer.text
        assert answer.may_retry == (answer.code in ("IO", "AGAIN"))


@schemes
@pytest.mark.parametrize("action", ["wrong-range", "other-range", "no-range"])
def test_another_range_than_was_asked_for_is_refused(scheme, action):
    with Faulty(f"op=get,do={action}") as server:
        listed = server.call(scheme, "list", "--prefix", "k/", "--page", 1).lines[0]
        answer = server.call(scheme, "get", listed["key"], "--size", 1000, "--offset", 10, "--len", 20, "--out", "/dev/null")
        assert answer.code == "CORRUPT" and answer.id == 1601, answer


def test_retry_after_of_a_server_is_obeyed():
    with Faulty("op=list,nth=1,do=status:503:2") as server:
        began = time.monotonic()
        answer = server.call("s3", "list", "--prefix", "k/", "--page", 1000)
        assert answer.code == "OK" and server.fired() == [1]
        assert time.monotonic() - began >= 2


# ---- stores that are elsewhere ---------------------------------------------------------------------------------------

EMPTY_PAGE = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


@pytest.fixture
def two_regions():
    """us-east-1 says that the bucket is elsewhere; a signature for eu-west-3 is content."""
    def answer(request):
        if "/eu-west-3/" in request.headers.get("authorization", ""):
            return 200, {}, EMPTY_PAGE
        return (301, {"x-amz-bucket-region": "eu-west-3"},
                b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>")

    with Answering(answer) as server:
        yield server


def list_bucket(url, *flags, **environment):
    return run_tool("--endpoint", url, *flags, "s3://bucket/", "list", env=clean_environment(**KEYS | environment))


def test_a_bucket_in_another_region_is_followed_there(two_regions):
    answer = list_bucket(two_regions.url)
    assert answer.code == "OK" and answer.requests == 2, answer
    assert ["/us-east-1/" in r.headers["authorization"] for r in two_regions.seen] == [True, False]
    assert "/eu-west-3/" in two_regions.seen[1].headers["authorization"]


@pytest.fixture
def sent_on():
    """Requests to other hosts than s3.eu-west-3.store.localhost are sent there, or to `location`, with `status`."""
    def answer(request):
        if request.headers["host"].startswith("s3.eu-west-3.store.localhost:"):
            return 200, {"etag": '"e"'}, EMPTY_PAGE
        there = f"http://s3.eu-west-3.store.localhost:{server.port}{request.path}"
        return server.status, {"location": server.location or there}, b"elsewhere"

    with Answering(answer) as server:
        server.status, server.location = 307, None
        server.url = f"http://s3.store.localhost:{server.port}"
        yield server


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_of_the_provider_is_followed_with_a_signature_for_it(sent_on, status):
    sent_on.status = status
    answer = list_bucket(sent_on.url, "--path-style")
    assert answer.code == "OK" and answer.requests == 2, answer
    first, second = sent_on.seen
    assert "/eu-west-3/" in second.headers["authorization"] != first.headers["authorization"]
    assert first.path == second.path


def test_an_upload_that_is_sent_on_is_sent_whole(sent_on, tmp_path):
    (tmp_path / "data").write_bytes(b"bytes" * 1000)
    answer = run_tool("--endpoint", sent_on.url, "--path-style", "s3://bucket/", "put", "key", tmp_path / "data",
                      env=clean_environment(**KEYS))
    assert answer.code == "OK" and answer.requests == 2, answer
    assert sent_on.seen[1].path == "/bucket/key" and sent_on.seen[1].body == b"bytes" * 1000


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/", "http://evil.example/bucket/?X-Amz-Signature=secret",
                                      "https://s3.eu-west-3.store.localhost/", "http://s3.eu-west-3.store.localhost:1/"])
def test_redirect_to_another_host_is_reported_and_not_followed(sent_on, two_regions, location):
    sent_on.location = location.format(port=two_regions.port)
    answer = list_bucket(sent_on.url, "--path-style", "--retries", "2")
    assert answer.code == "AGAIN" and answer.id == 1301, answer
    assert sent_on.location.split("?")[0] in answer.text and "secret" not in repr(answer)
    assert len(sent_on.seen) == 2 and not two_regions.seen


def test_redirects_that_lead_in_a_circle_end(sent_on):
    sent_on.location = sent_on.url.replace("s3.store", "s3.us-west-9.store") + "/bucket/"
    answer = list_bucket(sent_on.url, "--path-style", "--retries", "3")
    assert answer.code == "AGAIN" and answer.id == 1301 and len(sent_on.seen) <= 4, answer


def test_the_one_who_asks_says_that_he_pays(two_regions):
    assert list_bucket(two_regions.url, "--billing", "requester", AWS_REGION="eu-west-3").code == "OK"
    headers = two_regions.seen[0].headers
    assert headers["x-amz-request-payer"] == "requester"
    assert "x-amz-request-payer" in headers["authorization"]


def test_the_bucket_is_in_the_hosts_name_where_the_host_has_one(two_regions):
    url = two_regions.url.replace("127.0.0.1", "s3.localhost")
    assert list_bucket(url, AWS_REGION="eu-west-3").code == "OK"
    assert list_bucket(url, "--path-style", AWS_REGION="eu-west-3").code == "OK"
    by_host, by_path = two_regions.seen
    assert by_host.headers["host"].startswith("bucket.s3.localhost:") and by_host.path.startswith("/?")
    assert by_path.headers["host"].startswith("s3.localhost:") and by_path.path.startswith("/bucket/?")


def test_a_proxy_from_the_environment_is_used(two_regions):
    assert list_bucket("http://s3.example.com", AWS_REGION="eu-west-3", http_proxy=two_regions.url).code == "OK"
    asked = two_regions.seen[0]
    assert asked.headers["host"] == "bucket.s3.example.com" and asked.path.startswith("http://bucket.s3.example.com/")


# ---- sweeps ----------------------------------------------------------------------------------------------------------

@pytest.fixture
def listing_of():
    """A server of gs:// whose every listing is `names(prefix)`, each with `fields`, or `text`. It notes what is `deleted`."""
    def answer(request):
        url = urllib.parse.urlsplit(request.path)
        if request.method == "DELETE":
            server.deleted.append(urllib.parse.unquote(url.path.split("/o/")[1]))
            return 204, {}, b""
        prefix = urllib.parse.parse_qs(url.query).get("prefix", [""])[0]
        return 200, {}, server.text or json.dumps(
            {"items": [{"name": n} | server.fields for n in server.names(prefix)]}).encode()

    with Answering(answer) as server:
        server.text, server.deleted, server.fields = None, [], {}
        yield server


def sweep(server):
    return run_tool("--endpoint", server.url, "--anonymous", "--retries", "2", "gs://bucket/", "sweep", "key",
                    env=clean_environment())


def test_a_sweep_deletes_nothing_that_it_did_not_ask_for(listing_of):
    listing_of.names = lambda prefix: [prefix + "/part-1", "somebody's/object"]
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and answer.id == 1601 and "somebody's/object" in answer.text, answer
    assert listing_of.deleted == []


def test_sweep_of_undeletable_parts_ends(listing_of):
    listing_of.names = lambda prefix: [prefix + "/part-1"]
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and "keeps listing objects" in answer.text, answer
    assert len(listing_of.deleted) == 100


@pytest.mark.parametrize("text", [b"\x84{}", b'{"kin'])
def test_sweep_with_an_invalid_listing_blames_the_store(listing_of, text):
    listing_of.text = text
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and answer.id == 1601, answer


def test_sweep_deletes_parts_whose_time_is_the_year_1(listing_of):
    listing_of.fields = {"updated": "0001-01-01T00:00:00Z"}
    listing_of.names = lambda prefix: [] if listing_of.deleted else [prefix + "/part-1"]
    answer = sweep(listing_of)
    assert answer.code == "OK", answer
    assert [name.rsplit("/", 1)[1] for name in listing_of.deleted] == ["part-1"]


# ---- a 404 that no store sends ---------------------------------------------------------------------------------------

ELSEWHERE = [b"404 page not found\n", b"<html><head><title>404 Not Found</title></head></html>", b""]
UPLOADS = b"<ListMultipartUploadsResult><Upload><Key>key</Key><UploadId>old</UploadId></Upload></ListMultipartUploadsResult>"
BEGUN = b"<InitiateMultipartUploadResult><UploadId>old</UploadId></InitiateMultipartUploadResult>"


@pytest.fixture
def ingress():
    """Deletes nothing before it has answered `left` requests of `method` with a 404 of its own."""
    def answer(request):
        if request.method == server.method and server.left:
            server.left -= 1
            return 404, {}, server.page
        if request.method == "DELETE":
            server.deleted += 1
            return 204, {}, b""
        if request.method in ("POST", "PUT"):
            return 200, {"etag": '"e"'}, BEGUN
        if "/storage/v1/" in request.path:
            names = [] if server.deleted else [urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)["prefix"][0] + "/0-1"]
            return 200, {}, json.dumps({"items": [{"name": name} for name in names]}).encode()
        return 200, {}, UPLOADS

    with Answering(answer) as server:
        server.method, server.left, server.deleted = "DELETE", 1, 0
        yield server


def call(server, scheme, *words):
    access = ["--anonymous"] if scheme == "gs" else []
    return run_tool("--endpoint", server.url, "--path-style", "--retries", "2", *access, f"{scheme}://bucket/", *words,
                    env=clean_environment(**KEYS))


@pytest.mark.parametrize("page", ELSEWHERE)
@pytest.mark.parametrize("scheme, method, words", [
    ("s3", "DELETE", ["delete", "key"]), ("s3", "DELETE", ["sweep", "key"]),
    ("s3", "DELETE", ["upload", "key", "/etc/passwd", 5 << 20, "--abort"]),
    ("gs", "DELETE", ["delete", "key"]), ("gs", "DELETE", ["sweep", "key"]), ("gs", "GET", ["sweep", "key"])])
def test_404_of_a_proxy_does_not_count_as_a_deletion(ingress, page, scheme, method, words):
    ingress.page, ingress.method = page, method
    answer = call(ingress, scheme, *words)
    assert answer.code == "OK" and ingress.left == 0, answer
    assert ingress.deleted == 1


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_lasting_404_of_a_proxy_is_an_invalid_reply(ingress, scheme):
    ingress.page, ingress.left = ELSEWHERE[0], 10
    answer = call(ingress, scheme, "delete", "key")
    assert (answer.code, answer.id, ingress.left) == ("AGAIN", 1601, 8), answer


def test_unknown_access_key_is_not_a_deletion():
    """versitygw answers so, with a 404."""
    with Answering(lambda request: (404, {}, b"<Error><Code>XAdminUserNotFound</Code></Error>")) as server:
        answer = call(server, "s3", "delete", "key")
    assert (answer.code, answer.id) == ("DENIED", 1401), answer
