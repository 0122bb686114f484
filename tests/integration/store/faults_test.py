# SPDX-License-Identifier: Apache-2.0
"""What a bad day does to a call: a server of ours with faults by rule, since the real ones cannot be told to fail. Each
call ends well after a retry, or in a sentence that names the object."""

import http.server
import json
import subprocess
import threading
import urllib.parse

import pytest

from integration.lib.buckets import BUILD, clean_environment, run_tool

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


class Faulty:
    def __init__(self, *rules):
        faults = [word for rule in rules for word in ("--fault", rule)]
        self.child = subprocess.Popen([BUILD / "tests/bucket_server", "--objects", "k/:2500:1000", "--die-with-parent",
                                       *faults], stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{self.child.stdout.readline().split()[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait()
        self.child.stdout.close()

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
def test_a_fault_that_stays_is_told_after_the_last_attempt(scheme, action):
    with Faulty(f"op=list,do={action}") as server:
        answer = server.call(scheme, "list", "--prefix", "k/", retries=3)
        assert answer.code in ("AGAIN", "IO") and answer.requests == 3 and answer.may_retry
        assert f"{scheme}://bench/k/" in answer.text


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


def test_a_server_that_asks_for_patience_is_heard(tmp_path):
    with Faulty("op=list,nth=1,do=status:503:1") as server:
        answer = server.call("s3", "list", "--prefix", "k/", "--page", 1000)
        assert answer.code == "OK"


@pytest.fixture
def two_regions():
    """us-east-1 says that the bucket is elsewhere; a signature for eu-west-3 is content."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append({k.lower(): v for k, v in self.headers.items()} | {"path": self.path})
            right = "/eu-west-3/" in self.headers.get("authorization", "")
            body = (b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>" if right else
                    b"<Error><Code>PermanentRedirect</Code><Message>elsewhere</Message></Error>")
            self.send_response(200 if right else 301)
            if not right:
                self.send_header("x-amz-bucket-region", "eu-west-3")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()


def test_a_bucket_in_another_region_is_followed_there(two_regions):
    url, seen = two_regions
    answer = run_tool("--endpoint", url, "s3://bucket/", "list", env=clean_environment(**KEYS))
    assert answer.code == "OK" and answer.requests == 2, answer
    assert "/us-east-1/" in seen[0]["authorization"] and "/eu-west-3/" in seen[1]["authorization"]


@pytest.fixture
def sent_on():
    """Whoever is not asked as s3.eu-west-3.store.localhost points there, or where `location` says."""
    seen, place = [], {"location": None, "status": 307}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            length = int(self.headers.get("content-length", 0))
            seen.append({k.lower(): v for k, v in self.headers.items()} | {"path": self.path, "body": self.rfile.read(length)})
            right = self.headers["host"].startswith("s3.eu-west-3.store.localhost:")
            body = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>" if right else b"elsewhere"
            self.send_response(200 if right else place["status"])
            if not right:
                port = self.server.server_address[1]
                self.send_header("location", place["location"] or f"http://s3.eu-west-3.store.localhost:{port}{self.path}")
            self.send_header("content-length", str(len(body)))
            self.send_header("etag", '"e"')
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://s3.store.localhost:{server.server_address[1]}", seen, place
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_of_the_provider_is_followed_with_a_signature_for_it(sent_on, status):
    url, seen, place = sent_on
    place["status"] = status
    answer = run_tool("--endpoint", url, "--path-style", "s3://bucket/", "list", env=clean_environment(**KEYS))
    assert answer.code == "OK" and answer.requests == 2, answer
    assert "/eu-west-3/" in seen[1]["authorization"] and seen[0]["authorization"] != seen[1]["authorization"]
    assert seen[0]["path"] == seen[1]["path"]


def test_an_upload_that_is_sent_on_is_sent_whole(sent_on, tmp_path):
    url, seen, _ = sent_on
    (tmp_path / "data").write_bytes(b"bytes" * 1000)
    answer = run_tool("--endpoint", url, "--path-style", "s3://bucket/", "put", "key", tmp_path / "data",
                      env=clean_environment(**KEYS))
    assert answer.code == "OK" and answer.requests == 2, answer
    assert seen[1]["path"] == "/bucket/key" and seen[1]["body"] == b"bytes" * 1000


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/", "http://evil.example/bucket/?X-Amz-Signature=secret",
                                      "https://s3.eu-west-3.store.localhost/", "http://s3.eu-west-3.store.localhost:1/"])
def test_a_redirect_to_anybody_else_is_told_and_not_followed(sent_on, two_regions, location):
    url, seen, place = sent_on
    other, seen_there = two_regions
    place["location"] = location.format(port=other.rsplit(":", 1)[1])
    answer = run_tool("--endpoint", url, "--path-style", "--retries", "2", "s3://bucket/", "list", env=clean_environment(**KEYS))
    assert answer.code == "AGAIN" and answer.id == 1301, answer
    assert place["location"].split("?")[0] in answer.text and "secret" not in repr(answer)
    assert len(seen) == 2 and not seen_there


def test_redirects_that_lead_in_a_circle_end(sent_on):
    url, seen, place = sent_on
    place["location"] = url.replace("s3.store", "s3.us-west-9.store") + "/bucket/"
    answer = run_tool("--endpoint", url, "--path-style", "--retries", "3", "s3://bucket/", "list", env=clean_environment(**KEYS))
    assert answer.code == "AGAIN" and answer.id == 1301 and len(seen) <= 4, answer


def test_the_one_who_asks_says_that_he_pays(two_regions):
    url, seen = two_regions
    answer = run_tool("--endpoint", url, "--billing", "requester", "s3://bucket/", "list",
                      env=clean_environment(AWS_REGION="eu-west-3", **KEYS))
    assert answer.code == "OK"
    assert seen[0]["x-amz-request-payer"] == "requester"
    assert "x-amz-request-payer" in seen[0]["authorization"]


def test_the_bucket_is_in_the_hosts_name_where_the_host_has_one(two_regions):
    url, seen = two_regions
    url = url.replace("127.0.0.1", "s3.localhost")
    env = clean_environment(AWS_REGION="eu-west-3", **KEYS)
    assert run_tool("--endpoint", url, "s3://bucket/", "list", env=env).code == "OK"
    assert seen[0]["host"].startswith("bucket.s3.localhost:") and seen[0]["path"].startswith("/?")
    assert run_tool("--endpoint", url, "--path-style", "s3://bucket/", "list", env=env).code == "OK"
    assert seen[1]["host"].startswith("s3.localhost:") and seen[1]["path"].startswith("/bucket/?")


def test_a_proxy_from_the_environment_is_used(two_regions):
    url, seen = two_regions
    env = clean_environment(AWS_REGION="eu-west-3", http_proxy=url, **KEYS)
    assert run_tool("--endpoint", "http://s3.example.com", "s3://bucket/", "list", env=env).code == "OK"
    assert seen[0]["host"] == "bucket.s3.example.com" and seen[0]["path"].startswith("http://bucket.s3.example.com/")


@pytest.fixture
def listing_of():
    """A server of gs:// whose every listing is `names`, or `text`, and which notes what is deleted."""
    told = {"names": lambda prefix: [], "text": None, "deleted": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            prefix = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("prefix", [""])[0]
            self.reply(200, told["text"] or json.dumps({"items": [{"name": n} for n in told["names"](prefix)]}).encode())

        def do_DELETE(self):
            told["deleted"].append(urllib.parse.unquote(self.path.split("?")[0].split("/o/")[1]))
            self.reply(204, b"")

        def reply(self, status, body):
            self.send_response(status)
            if body:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told["url"] = f"http://127.0.0.1:{server.server_address[1]}"
    yield told
    server.shutdown()
    server.server_close()


def sweep(told):
    return run_tool("--endpoint", told["url"], "--anonymous", "--retries", "2", "gs://bucket/", "sweep", "key", env=clean_environment())


def test_a_sweep_deletes_nothing_that_it_did_not_ask_for(listing_of):
    listing_of["names"] = lambda prefix: [prefix + "/part-1", "somebody's/object"]
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and answer.id == 1601 and "somebody's/object" in answer.text, answer
    assert listing_of["deleted"] == []


def test_a_sweep_of_what_does_not_go_ends(listing_of):
    listing_of["names"] = lambda prefix: [prefix + "/part-1"]
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and "again and again" in answer.text, answer
    assert len(listing_of["deleted"]) == 100


@pytest.mark.parametrize("text", [b"\x84{}", b'{"kin'])
def test_a_sweeps_listing_that_is_no_json_is_the_stores_fault(listing_of, text):
    listing_of["text"] = text
    answer = sweep(listing_of)
    assert answer.code == "CORRUPT" and answer.id == 1601, answer
