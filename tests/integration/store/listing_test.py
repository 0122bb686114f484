# SPDX-License-Identifier: Apache-2.0
"""A prefix listed by many readers that cut the key space among them: complete, in order, in few requests."""

import math
import re
import subprocess
import threading

import pytest

from integration.lib.buckets import clean_environment
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

READERS = 32


def ls(server, uri, *flags, scheme="s3", code=0):
    env = clean_environment(**KEYS, STORAGE_EMULATOR_HOST=server.url)
    where = ["--endpoint", server.url] if scheme == "s3" else ["--endpoint", server.url, "--anonymous"]
    done = subprocess.run([CISTERN, "ls", "-r", *where, *flags, f"{scheme}://{uri}"], env=env,
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines()


def in_one_reader(server, uri):
    """With --max the pages come one after the other."""
    return ls(server, uri, "--max", "1000000000")


@pytest.mark.parametrize("latency", ["0", "20ms"])
@pytest.mark.parametrize("shape", ["flat", "deep", "skewed"])
def test_many_readers_find_every_key_once_in_order_and_in_few_requests(shape, latency):
    keys = 60000
    with BucketServer("--objects", f"k/:{keys}:10:{shape}", "--latency", latency) as server:
        found = ls(server, "bench/k/")
        requests = server.stats()["list"]
        assert len(found) == keys
        assert found == sorted(set(found))
        assert requests <= 1.25 * math.ceil(keys / 1000) + READERS
        assert found == in_one_reader(server, "bench/k/")


def test_many_readers_ask_for_pages_at_once():
    with BucketServer("--objects", "k/:100000:10") as server:
        server.fault("op=list,times=7,after=8,do=hold:16:list")  # each waits for requests of other readers
        assert len(ls(server, "bench/k/")) == 100000
        assert server.fired() == [7]


@pytest.mark.parametrize("shape", ["flat", "skewed"])
def test_many_readers_list_google_cloud_storage(shape):
    with BucketServer("--objects", f"k/:30000:10:{shape}", "--latency", "5ms") as server:
        found = ls(server, "bench/k/", scheme="gs")
        assert len(found) == 30000
        assert found == sorted(set(found))
        assert server.stats()["list"] <= 1.25 * 30 + READERS


def test_keys_that_stay_are_listed_once_while_others_come_and_go():
    with BucketServer("--objects", "k/:50000:10", "--latency", "5ms") as server:
        stop = threading.Event()

        def disturb():
            for i in range(10000):
                if stop.is_set():
                    return
                server.ask(f"/bench/k/new-{i * 7919 % 10000:05}", "PUT", b"x")
                server.ask(f"/bench/k/object-{i * 7919 % 50000:09}", "DELETE")

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            found = ls(server, "bench/k/")
        finally:
            stop.set()
            thread.join()
        left = {name for name in in_one_reader(server, "bench/k/") if name.startswith("object-")}
        assert found == sorted(set(found))
        assert left <= set(found)


def test_nothing_and_little_take_one_request():
    with BucketServer("--objects", "k/:900:10") as server:
        assert ls(server, "bench/none/", code=9) == []
        assert len(ls(server, "bench/k/")) == 900
        assert server.stats()["list"] == 2


def test_the_test_server_goes_on_behind_a_marker_as_version_1_does():
    """Other clients that list by version 1 would never end."""
    with BucketServer("--objects", "k/:2500:10") as server:
        found, marker = [], ""
        while True:
            page = server.ask(f"/bench?prefix=k/&marker={marker}").decode()
            found += re.findall("<Key>(.*?)</Key>", page)
            if "<IsTruncated>true" not in page:
                break
            marker = re.search("<NextMarker>(.*?)</NextMarker>", page)[1]
        assert found == [f"k/object-{i:09}" for i in range(2500)]
