# SPDX-License-Identifier: Apache-2.0
"""A Job of the cluster with a tenant's URL: `cistern` under CISTERN_GUARD_FILE, and servers that record their requests."""

import contextlib
import json
import re
import socket
import subprocess
import threading

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


def ls(uri, endpoint, **env):
    keys = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s3-secret", "AWS_REGION": "us-east-1"}
    return subprocess.run([CISTERN, "ls", "--endpoint", endpoint, "--retries", "1", uri], capture_output=True, text=True,
                          timeout=60, env=clean_environment(**{**keys, **env}))


@contextlib.contextmanager
def listener(address="127.0.0.1", family=socket.AF_INET):
    """Counts who connects."""
    server = socket.create_server((address, 0), family=family)
    came = []

    def run():
        with contextlib.suppress(OSError):
            while True:
                connection, peer = server.accept()
                came.append(peer)
                connection.close()

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
