# SPDX-License-Identifier: Apache-2.0
"""cistern probe: the kubelet asks the Jobs of a volume whether they run."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from integration.lib import threads
from paths import BUILD, CISTERN
from servers.bucket import KEYS, BucketServer

MIB = 1 << 20


def make_volume(top, server):
    source = {"uri": "s3://bench/", "endpoint": server.url, "pathStyle": True,
              "export": {"uri": "s3://bench/p/", "endpoint": server.url, "settle": "0s"}}
    (top / "data").mkdir(parents=True)
    (top / "volume.json").write_text(json.dumps({
        "version": 1, "id": "v1-0123456789ab-0123456789ab", "name": "pvc-1", "capacityBytes": 1 << 30,
        "createdAt": "2026-11-21T09:00:00Z", "backend": "quota", "project": 0, "parameters": {}, "source": source}))
    (top / "data/file").write_bytes(bytes(MIB))


def probe(verb, folder):
    return subprocess.run([CISTERN, "probe", verb, folder], timeout=60, stderr=subprocess.PIPE, text=True, check=False)


@contextlib.contextmanager
def running(folder, verb, **env):
    """A run that waits for its store. Yields when it answers."""
    with BucketServer("--latency", "600s", "--objects", "file:1:1000") as server:
        make_volume(folder, server)
        assert probe(verb, folder).returncode != 0, "none runs"
        with subprocess.Popen([CISTERN, verb, "--volume", folder, "--stall", "24h", "--quiet"],
                              env=os.environ | KEYS | env) as run:
            try:
                answer = probe(verb, folder)
                while answer.returncode != 0 and run.poll() is None:  # until the process listens, or has ended
                    answer = probe(verb, folder)
                assert answer.returncode == 0, answer.stderr
                yield run
            finally:
                run.kill()


@pytest.mark.parametrize("verb", ["hydrate", "export"])
def test_a_run_that_waits_for_its_store_answers_and_a_stopped_one_does_not(tmp_path, verb):
    volume = tmp_path / "volume"
    with running(volume, verb) as run:
        threads.freeze(run.pid)
        answer = probe(verb, volume)
        assert answer.returncode != 0 and "does not answer" in answer.stderr, answer.stderr
        run.send_signal(signal.SIGCONT)
        assert probe(verb, volume).returncode == 0


@pytest.mark.parametrize("verb,name", [("hydrate", "coordinator"), ("hydrate", "loop/1"), ("hydrate", "main"),
                                       ("export", "loop/0"), ("export", "main")])
def test_a_run_with_a_stuck_thread_says_so_after_ten_minutes(tmp_path, verb, name):
    volume = tmp_path / "volume"
    minute = 60 / 30  # of its clock
    with running(volume, verb, LD_PRELOAD=str(BUILD / "tests/libfail_call.so"), CISTERN_FAST_CLOCK="30") as run:
        until = time.monotonic() + 12 * minute
        while time.monotonic() < until:  # a run may wait for its store for any time
            assert probe(verb, volume).returncode == 0
            time.sleep(0.1)
        thread, = threads.find(run.pid, name)
        threads.stop(thread)
        began = time.monotonic()
        while (answer := probe(verb, volume)).returncode == 0:
            assert time.monotonic() < began + 30 * minute, "it was not noticed"
            time.sleep(0.1)
        assert time.monotonic() > began + 9 * minute, "a slow disk may take as long"
        assert f"its thread '{name}' has been stuck for ten minutes" in answer.stderr, answer.stderr
        threads.go_on(thread)
        while probe(verb, volume).returncode != 0:
            assert run.poll() is None, "a thread that goes on is not stuck"


def test_a_socket_of_another_user_does_not_count_as_a_stopped_run(tmp_path):
    """The name belongs to the first program that binds it. Without Kubernetes, that may be a program of another user."""
    volume = tmp_path.stat()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0cistern-export-{volume.st_dev:x}-{volume.st_ino:x}")
        os.seteuid(65534)
        try:
            squatter.listen()
        finally:
            os.seteuid(0)
        answer = probe("export", tmp_path)
    assert answer.returncode != 0 and "no `cistern export` runs" in answer.stderr, answer.stderr
