# SPDX-License-Identifier: Apache-2.0
"""cistern probe: the kubelet asks the Jobs of a volume whether they run."""
import json
import os
import signal
import socket
import subprocess

import pytest

from paths import CISTERN
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


@pytest.mark.parametrize("verb", ["hydrate", "export"])
def test_a_run_that_waits_for_its_store_answers_and_a_stopped_one_does_not(tmp_path, verb):
    with BucketServer("--latency", "600s", "--objects", "file:1:1000") as server:
        make_volume(tmp_path / "volume", server)
        assert probe(verb, tmp_path / "volume").returncode != 0, "none runs"
        with subprocess.Popen([CISTERN, verb, "--volume", tmp_path / "volume", "--quiet"], env=os.environ | KEYS) as run:
            try:
                answer = probe(verb, tmp_path / "volume")
                while answer.returncode != 0 and run.poll() is None:  # until the process listens, or has ended
                    answer = probe(verb, tmp_path / "volume")
                assert answer.returncode == 0, answer.stderr
                run.send_signal(signal.SIGSTOP)
                answer = probe(verb, tmp_path / "volume")
                assert answer.returncode != 0 and "does not answer" in answer.stderr, answer.stderr
                run.send_signal(signal.SIGCONT)
                assert probe(verb, tmp_path / "volume").returncode == 0
            finally:
                run.kill()


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
