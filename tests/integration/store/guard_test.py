# SPDX-License-Identifier: Apache-2.0
"""A Job of the cluster with a tenant's URL: `cistern` under CISTERN_GUARD_FILE, and servers that record their requests."""

import contextlib
import itertools
import json
import os
import re
import socket
import subprocess
import threading
import time

import pytest

from integration.lib.buckets import clean_environment
from paths import CISTERN
from servers.answering import Answering

LISTING = b"<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
SECRET = "the-page-of-an-internal-service"


@pytest.fixture
def guard(tmp_path):
    def write(*lines):
        (tmp_path / "guard").write_text("".join(f"{line}\n" for line in lines))
        return str(tmp_path / "guard")
    return write


def ls(uri, endpoint, *flags, before=(), **env):
    keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s3-secret", "AWS_REGION": "us-east-1"}
    return subprocess.run([*before, CISTERN, "ls", "--endpoint", endpoint, "--retries", "1", *flags, uri], capture_output=True, text=True,
                          timeout=60, env=clean_environment(**{**keys, **env}))


@contextlib.contextmanager
def listener(address="127.0.0.1", family=socket.AF_INET, port=0, answer=lambda connection: None):
    """Counts who connects, and answers."""
    server = socket.create_server((address, port), family=family)
    came = []

    def serve(connection):
        with connection, contextlib.suppress(OSError):
            answer(connection)

    def run():
        with contextlib.suppress(OSError):
            while True:
                connection, peer = server.accept()
                came.append(peer)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1], came
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "localhost", "LOCALHOST.",
                                  "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"])
def test_this_machine_is_closed_in_every_spelling(guard, host):
    with listener() as (port, came):
        done = ls("s3://bucket/", f"http://{host}:{port}", CISTERN_GUARD_FILE=guard())
    assert done.returncode != 0 and came == [], done.stderr
    if "CIS1002" not in done.stderr and "CIS1611" not in done.stderr:  # not a host, or one that is not found
        assert "CIS1617" in done.stderr, done.stderr


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "224.0.0.1", "0.0.0.0", "[::]",
                                  "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "100.100.100.200"])
def test_addresses_that_cannot_be_a_store_are_blocked(guard, host):
    done = ls("s3://bucket/", f"http://{host}", CISTERN_GUARD_FILE=guard())
    assert done.returncode != 0 and "CIS1617" in done.stderr, done.stderr


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:169.254.169.254]",
                                  "169.254.169.254.", "169.254.169.254..", "2852039166.", "0xa9fea9fe.", "0251.0376.0251.0376.",
                                  "[fe80::1]", "localhost", "LOCALHOST.", "a.localhost"])
def test_blocked_address_is_not_asked_of_a_proxy(guard, host):
    file = guard("allow 127.0.0.2")
    with listener("127.0.0.2") as (port, came):
        for proxy in ("http_proxy", "all_proxy"):
            done = ls("s3://bucket/", f"http://{host}:9", "--path-style", CISTERN_GUARD_FILE=file, **{proxy: f"http://127.0.0.2:{port}"})
            assert done.returncode != 0 and "CIS1617" in done.stderr and came == [], done.stderr
        ls("s3://bucket/", "http://store.example", CISTERN_GUARD_FILE=file, http_proxy=f"http://127.0.0.2:{port}")
        assert came != [], "a name is looked up by the proxy"


def test_ipv6_of_this_machine_is_closed(guard):
    with listener("::1", socket.AF_INET6) as (port, came):
        done = ls("s3://bucket/", f"http://[::1]:{port}", CISTERN_GUARD_FILE=guard())
    assert "CIS1617" in done.stderr and came == [], done.stderr


def test_a_guard_that_is_missing_closes_what_is_always_closed(tmp_path):
    with listener() as (port, came):
        done = ls("s3://bucket/", f"http://127.0.0.1:{port}", CISTERN_GUARD_FILE=str(tmp_path / "none"))
    assert "CIS1617" in done.stderr and came == [], done.stderr


def test_an_administrator_opens_and_closes(guard):
    with Answering(lambda r: (200, {}, LISTING)) as store:
        assert ls("s3://bucket/", store.url, CISTERN_GUARD_FILE=guard("allow 127.0.0.0/8")).returncode in (0, 9)
        assert len(store.seen) == 1
        assert ls("s3://bucket/", store.url).returncode in (0, 9)  # a person may point anywhere
        assert len(store.seen) == 2
    done = ls("s3://bucket/", "http://10.77.0.1", CISTERN_GUARD_FILE=guard("deny 10.0.0.0/8"))
    assert "CIS1617" in done.stderr, done.stderr


def test_a_store_that_redirects_to_a_closed_address_is_not_followed(guard):
    with listener("127.0.0.2") as (port, came):
        redirect = {"location": f"http://127.0.0.2:{port}/bucket/"}
        with Answering(lambda r: (307, redirect, b"")) as store:
            done = ls("s3://bucket/", store.url, CISTERN_GUARD_FILE=guard("allow 127.0.0.1"))
    assert done.returncode != 0 and came == [], done.stderr
    assert str(port) not in done.stderr


# ---- names

def replaced(file, mount):
    """The beginning of a command that sees `file` in place of `mount`."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', file, mount]


def ls_named(endpoint, file, mount):
    """With a file of its own in place of `mount`."""
    return ls("s3://bucket/", endpoint, "--path-style", before=replaced(file, mount), CISTERN_GUARD_FILE=str(file.with_name("guard")))


def test_name_with_an_open_and_a_closed_address_reaches_the_open_one_only(guard, tmp_path):
    guard("allow 127.0.1.10")
    with Answering(lambda r: (200, {}, LISTING), "127.0.1.10") as store, listener("127.0.0.2", port=store.port) as (_, came):
        (tmp_path / "hosts").write_text("127.0.0.2 two.test\n127.0.1.10 two.test\n127.0.0.2 two.test\n")
        for _ in range(3):
            done = ls_named(f"http://two.test:{store.port}", tmp_path / "hosts", "/etc/hosts")
            assert done.returncode in (0, 9), done.stderr
    assert len(store.seen) == 3 and came == []


class NameServer:
    """Answers each question for an address with the next of `addresses`, to be kept for no time."""

    numbers = itertools.count(9)  # a closed socket keeps its address while the thread reads from it

    def __init__(self, *addresses):
        self.addresses = itertools.cycle(addresses)
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.address = f"127.{next(self.numbers)}.{os.getpid() % 250}.{os.getpid() // 250 % 250 + 1}"
        self.socket.bind((self.address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                query, peer = self.socket.recvfrom(512)
                end = query.index(b"\0", 12) + 5
                self.asked.append(b".".join(re.findall(rb"[\x01-\x3f]([a-z-]+)", query[12:end - 4])).decode())
                is_a = query[end - 4:end - 2] == b"\0\x01"
                answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(next(self.addresses)) if is_a else b""
                self.socket.sendto(query[:2] + b"\x81\x80\0\x01\0" + bytes([is_a]) + b"\0\0\0\0" + query[12:end] + answer, peer)


def test_rebinding_of_a_name_between_two_requests_does_not_open_a_closed_address(guard, tmp_path):
    guard("allow 127.0.1.10")
    names = NameServer("127.0.1.10", "127.0.0.2")
    (tmp_path / "resolv.conf").write_text(f"nameserver {names.address}\noptions attempts:1 timeout:5\n")
    with Answering(lambda r: (200, {}, LISTING), "127.0.1.10") as store, listener("127.0.0.2", port=store.port) as (_, came):
        ends = [ls_named(f"http://turn.test:{store.port}", tmp_path / "resolv.conf", "/etc/resolv.conf") for _ in range(6)]
    names.socket.close()
    assert {done.returncode in (0, 9) for done in ends} == {True, False} and len(store.seen) == 3, ends
    assert all("CIS1617" in done.stderr and "turn.test" in done.stderr for done in ends if done.returncode not in (0, 9)), ends
    assert came == []


def test_name_of_the_metadata_server_is_not_completed_by_a_search_domain(tmp_path):
    names = NameServer("127.0.1.11")
    (tmp_path / "resolv.conf").write_text(f"nameserver {names.address}\nsearch tenant.test\noptions ndots:5 attempts:1 timeout:5\n")
    token = json.dumps({"access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"}).encode()
    with Answering(lambda r: (200, {"content-type": "application/json"}, token), "127.0.1.11", port=80) as metadata, \
            Answering(lambda r: (200, {"content-type": "application/json"}, b"{}")) as store:
        done = ls("gs://bucket/", store.url, before=replaced(tmp_path / "resolv.conf", "/etc/resolv.conf"), HOME=str(tmp_path))
    names.socket.close()
    assert set(names.asked) == {"metadata.google.internal"}, names.asked
    assert [r.headers["host"] for r in metadata.seen] == ["metadata.google.internal"], done.stderr
    assert [r.headers["authorization"] for r in store.seen] == ["Bearer ya29.token"], done.stderr


@pytest.mark.parametrize("host, asked", [("store.example.dev", "store.example.dev"), ("store.shop.svc", "store.shop.svc.tenant.test"),
                                         ("store.shop", "store.shop.tenant.test")])
def test_name_of_a_store_is_not_completed_by_a_search_domain(tmp_path, host, asked):
    """In a pod, store.example.dev was first a Service of the namespace dev: its owner could serve the objects, or none."""
    names = NameServer("127.0.1.12")
    (tmp_path / "resolv.conf").write_text(f"nameserver {names.address}\nsearch tenant.test\noptions ndots:5 attempts:1 timeout:5\n")
    with Answering(lambda r: (200, {}, LISTING), "127.0.1.12") as store:
        done = ls("s3://bucket/", f"http://{host}:{store.port}", "--path-style", before=replaced(tmp_path / "resolv.conf", "/etc/resolv.conf"))
    names.socket.close()
    assert done.returncode in (0, 9) and set(names.asked) == {asked}, (names.asked, done.stderr)


# ---- answers without an end

def drip(connection):
    """A byte a second, which is never silent."""
    while True:
        connection.sendall(b"x")
        time.sleep(1)


def endless(begin, piece):
    def answer(connection):
        connection.sendall(begin)
        while True:
            connection.sendall(piece)
    return answer


ENDLESS = {
    "headers": endless(b"HTTP/1.1 200 OK\r\n", b"x-a: " + b"b" * 4000 + b"\r\n"),
    "one header": endless(b"HTTP/1.1 200 OK\r\nx-a: ", b"b" * 4096),
    "interim replies": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a body": endless(b"HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>", b" " * 4096),
    "chunks": endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"),
    "trailers": endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-a: " + b"b" * 4000 + b"\r\n"),
    "a refusal": endless(b"HTTP/1.1 403 Forbidden\r\n\r\n", b" " * 4096),
    "drops": drip,
    "drops of a body": lambda c: (c.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"), drip(c)),
}


@pytest.mark.parametrize("how", ENDLESS)
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_endless_answers_end_in_an_error_with_little_memory(guard, tmp_path, scheme, how):
    """The answer's server is a tenant's: neither time nor memory of the controller or a Job is hers."""
    with listener("127.0.0.1", answer=ENDLESS[how]) as (port, came):
        done = ls(f"{scheme}://bucket/", f"http://127.0.0.1:{port}", "--stall", "1s", "--timeout", "5s",
                  *(["--anonymous"] if scheme == "gs" else []), before=["prlimit", f"--as={1 << 30}"], CISTERN_GUARD_FILE=guard("allow 127.0.0.1"))
    assert came and done.returncode in (1, 5, 7), done.stderr
    assert re.search(rf"{scheme}://bucket/: .*\(CIS1\d{{3}}, [A-Z]+\); .+", done.stderr), done.stderr


@pytest.mark.parametrize("fixed", [True, False], ids=["the same token", "new tokens"])
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_endless_pages_without_a_key_end_in_an_error(guard, scheme, fixed):
    def page(request):
        token = "again" if fixed else f"t{len(store.seen)}"
        if scheme == "gs":
            return 200, {}, json.dumps({"nextPageToken": token}).encode()
        return 200, {}, (f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}"
                         "</NextContinuationToken></ListBucketResult>").encode()
    with Answering(page) as store:
        done = ls(f"{scheme}://bucket/", store.url, *(["--anonymous"] if scheme == "gs" else []), CISTERN_GUARD_FILE=guard("allow 127.0.0.1"))
        assert len(store.seen) < 20_000
    assert done.returncode == 7 and re.search(rf"{scheme}://bucket.*CIS1601", done.stderr), done.stderr


# ---- bearer tokens

def ls_gs(endpoint, tmp_path, **env):
    (tmp_path / "token").write_text("ya29.the-token")
    return ls("gs://bucket/", endpoint, CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=str(tmp_path / "token"), **env)


def test_bearer_token_is_not_sent_to_untrusted_hosts(guard, tmp_path):
    with Answering(lambda r: (200, {}, b"{}")) as store:
        done = ls_gs(store.url, tmp_path, CISTERN_GUARD_FILE=guard("allow 127.0.0.1"))
        assert done.returncode == 4 and "CIS1618" in done.stderr, done.stderr
        assert store.seen == []
        done = ls_gs(store.url, tmp_path, CISTERN_GUARD_FILE=guard("allow 127.0.0.1", f"trust {store.url}"))
        assert done.returncode in (0, 9), done.stderr
        assert [r.headers["authorization"] for r in store.seen] == ["Bearer ya29.the-token"]


# ---- what a server says

def s3_error(code, message):
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


@pytest.mark.parametrize("status, fields, body", [
    (403, {}, s3_error("AccessDenied", SECRET)),
    (403, {}, s3_error(f"Denied {SECRET}", SECRET)),
    (403, {}, SECRET.encode()),
    (400, {}, s3_error("BadThing", SECRET)),
    (409, {}, s3_error("Conflict", SECRET)),
    (500, {}, s3_error("InternalError", SECRET)),
    (301, {"location": f"http://elsewhere.example/{SECRET}"}, b""),
    (200, {}, f"<html>{SECRET}</html>".encode()),
    (200, {}, SECRET.encode()),
    (200, {}, f"<{SECRET}/>".encode()),
    (200, {}, f"<ListBucketResult><Contents><Key>{SECRET}</Key></Contents></ListBucketResult>".encode()),
    (418, {}, SECRET.encode())])
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_replies_of_an_unknown_server_are_not_repeated(guard, tmp_path, status, fields, body, scheme):
    if scheme == "gs" and status != 200:
        body = json.dumps({"error": {"message": SECRET, "errors": [{"reason": f"forbidden {SECRET}"}]}}).encode()
    with Answering(lambda r: (status, fields, body)) as store:
        file = guard("allow 127.0.0.1")
        done = ls(f"{scheme}://bucket/", store.url, CISTERN_GUARD_FILE=file, STORAGE_EMULATOR_HOST=store.url)
        assert store.seen and done.returncode != 0, done.stderr
        assert SECRET not in done.stderr and "elsewhere" not in done.stderr, done.stderr
        assert re.search(r"CIS\d{4}", done.stderr), done.stderr


def test_the_code_of_a_stranger_is_kept(guard):
    with Answering(lambda r: (403, {}, s3_error("AccessDenied", SECRET))) as store:
        done = ls("s3://bucket/", store.url, CISTERN_GUARD_FILE=guard("allow 127.0.0.1"))
        assert "403 AccessDenied" in done.stderr, done.stderr
        assert SECRET in ls("s3://bucket/", store.url).stderr  # a person's own store may say what it likes
