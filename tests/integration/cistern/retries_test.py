# SPDX-License-Identifier: Apache-2.0
"""A person sees why a command does not go on: which request is retried, the cause, the attempt and when."""
import contextlib
import json
import os
import re
import subprocess
import time

import pytest

from integration.lib.control import eventually
from paths import CISTERN
from servers.answering import Answering
from servers.bucket import KEYS, BucketServer

RETRIED = "cannot connect to 'http://127.0.0.1:1': Connection refused"
RETRYING = rf"retrying, attempt \d of 8 in \d+ s: s3://bench/[^ ]*: {RETRIED}"


def start(*words, **more):
    return subprocess.Popen([CISTERN, *map(str, words)], env=os.environ | KEYS, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                            text=True, **more)


def cistern(*words):
    with start(*words) as run:
        return run.communicate(timeout=60)[1]


@pytest.mark.parametrize("verb", ["hydrate", "export", "ls", "ls -r", "hydrate --dry-run"])
def test_a_dead_port_is_reported_within_seconds(tmp_path, verb):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    name, *flags = verb.split()
    words = {"hydrate": ["s3://bench/p/", tmp_path / "out"], "ls": ["s3://bench/p/"],
             "export": [tmp_path / "data", "s3://bench/p/", "--state", tmp_path / "state"]}[name]
    began = time.monotonic()
    with start(name, *words, *flags, "--endpoint", "http://127.0.0.1:1") as run:
        line = run.stderr.readline()
        seconds = time.monotonic() - began
        run.kill()
    assert re.search(RETRYING, line), line
    assert 1.5 < seconds < 20  # the attempts take 27 s


def test_the_status_has_the_cause_with_one_time_while_no_request_succeeds(tmp_path):
    def seen():
        with contextlib.suppress(FileNotFoundError):
            said = json.loads((tmp_path / ".out.cistern/status.json").read_text())
            if "error" in said:
                return said

    with start("hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", "http://127.0.0.1:1", "--retries", 1000) as run:
        try:
            first = eventually(seen)
            second = eventually(lambda: (later := seen()) and later["updatedAt"] != first["updatedAt"] and later)
        finally:
            run.kill()
    assert first["phase"] == "listing" and first["error"]["id"] == "CIS1611" and RETRIED in first["error"]["message"], first
    assert first["error"]["time"] == second["error"]["time"], "another time would be another event"


@pytest.mark.parametrize("verb", ["hydrate", "export", "ls"])
def test_a_server_without_tls_is_answered_within_seconds_and_not_retried(tmp_path, verb):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("content")
    name, *flags = verb.split()
    words = {"hydrate": ["s3://bench/p/", tmp_path / "out"], "ls": ["s3://bench/p/"],
             "export": [tmp_path / "data", "s3://bench/p/", "--state", tmp_path / "state"]}[name]
    with BucketServer() as bucket:
        began = time.monotonic()
        with start(name, *words, *flags, "--endpoint", bucket.url.replace("http:", "https:")) as run:
            told = run.communicate(timeout=60)[1]
        assert time.monotonic() - began < 20, told  # all attempts take 23 s
    assert run.returncode == 2 and "CIS1619" in told and "does not use TLS" in told, told


def test_verbose_logs_each_retry_and_debug_each_request(tmp_path):
    with BucketServer("--objects", "p/:3:1000") as bucket:
        bucket.fault("op=list,times=2,do=status:503", "op=get,key=p/*2,times=1,do=status:503")
        words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", bucket.url, "--path-style"]
        told = cistern(*words, "-v")
        retries = [line for line in told.splitlines() if "event=retrying" in line]
        assert [int(re.search(r"attempt=(\d)", line)[1]) for line in retries] == [2, 3, 2], told
        assert all("503" in line and "in_ms=" in line for line in retries)
        bucket.fault("op=get,key=p/*2,times=1,do=status:503")
        told = cistern(*words, "--overwrite", "--no-resume", "--log-level", "debug")
    requests = [line for line in told.splitlines() if "event=request" in line]
    assert sum("operation=LIST object=s3://bench/p/ status=200" in line for line in requests) == 1, told
    assert sum("method=GET operation=GET object=s3://bench/p/object-" in line for line in requests) == 4, told
    assert sum(bool(re.search(r"object-0*2 status=(503 ms=\d+ attempt=1|200 ms=\d+ attempt=2)", line)) for line in requests) == 2
    assert "secret" not in told


def test_a_bucket_in_another_region_is_used_there_and_the_region_is_named_once(tmp_path):
    page = (b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>p/a</Key><Size>1</Size></Contents>"
            b"<Contents><Key>p/b</Key><Size>1</Size></Contents></ListBucketResult>")

    def answer(request):
        if "/eu-west-3/" not in request.headers.get("authorization", ""):
            return 301, {"x-amz-bucket-region": "eu-west-3"}, b"<Error><Code>PermanentRedirect</Code></Error>"
        return 200, {}, page if "prefix=" in request.path else b"x"

    with Answering(answer) as server:
        told = cistern("hydrate", "s3://bucket/p/", tmp_path / "out", "--endpoint", server.url)
        assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["a", "b"], told
        named = [line for line in told.splitlines() if "eu-west-3" in line]
        assert len(named) == 1 and "--region" in named[0] and "bucket=bucket" in named[0], told
        assert "eu-west-3" not in cistern("hydrate", "s3://bucket/p/", tmp_path / "out", "--endpoint", server.url, "--region",
                                          "eu-west-3")
