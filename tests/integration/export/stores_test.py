# SPDX-License-Identifier: Apache-2.0
"""`cistern export` to S3 servers that differ: which checksums they return, which conditions they honour, how they name
the roots of their XML. s3rver and the bucket server with `--checksums none|md5` return no checksum."""

import json
import os
import shutil
import subprocess
import time
import urllib.request

import pytest

from integration.lib import kills
from integration.lib.noise import noise
from paths import CACHE, CISTERN
from servers import gofakes3, minio, s3rver, versitygw
from servers.bucket import BucketServer

MIB = 1 << 20
REAL = {"s3rver": s3rver, "gofakes3": gofakes3, "versitygw": versitygw, "minio": minio}
CLASSES = {"s3rver": s3rver.S3rver, "gofakes3": gofakes3.Gofakes3, "versitygw": versitygw.Versitygw, "minio": minio.Minio}
OURS = {"ignores conditions": ["--heedless"], "ignores them on PUT": ["--heedless=put"],
        "ignores them on Complete": ["--heedless=complete"], "MD5 only": ["--checksums", "md5"],
        "tells nothing": ["--checksums", "none"], "composite CRC32C": ["--checksums", "crc32c", "--composite"],
        "other roots": ["--odd-roots"], "refuses conditions": ["--unconditional"]}


class Store:
    """A running server, its bucket, and the keys to it."""

    def __init__(self, name):
        if name in REAL:
            self.server = CLASSES[name]().start()
            self.bucket, self.url = "out", self.server.url
            self.server.make_bucket("out")
            access, secret = REAL[name].ACCESS_KEY, REAL[name].SECRET_KEY
        else:
            self.server = BucketServer(*OURS[name])
            self.bucket, self.url, access, secret = "bench", self.server.url, "id", "secret"
        self.environment = dict(os.environ, AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret, AWS_REGION="us-east-1")

    def stop(self):
        self.server.stop() if hasattr(self.server, "stop") else self.server.__exit__()

    def s5cmd(self, *words):
        done = subprocess.run([CACHE / "bin/s5cmd", "--endpoint-url", self.url, *words], env=self.environment,
                              capture_output=True, timeout=120, check=True)
        return done.stdout

    def put(self, key, content, scratch):
        scratch.write_bytes(content)
        self.s5cmd("cp", str(scratch), f"s3://{self.bucket}/{key}")

    def get(self, key):
        return self.s5cmd("cat", f"s3://{self.bucket}/{key}")


@pytest.fixture(scope="module", params=[*REAL, *OURS])
def store(request):
    running = Store(request.param)
    yield running
    running.stop()


class Directory:
    """A directory to export, and the state of its exports."""

    def __init__(self, store, top):
        self.store, self.src, self.state, self.prefix = store, top / "src", top / "state", f"{top.name}/"
        self.scratch = top / "scratch"
        self.src.mkdir()
        (self.src / "small").write_bytes(noise(1, 1000))
        (self.src / "constant").write_bytes(b"never changed, and nobody else's")
        (self.src / "big").write_bytes(noise(2, 17 * MIB))  # a first part, one between, a last one

    def command(self, *flags):
        return [str(CISTERN), "export", "--endpoint", self.store.url, "--state", str(self.state), *flags, str(self.src),
                f"s3://{self.store.bucket}/{self.prefix}"]

    def export(self, *flags, code=0):
        done = subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=120,
                              env=self.store.environment)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def append(self):
        for name in "small", "big":
            with open(self.src / name, "ab") as f:
                f.write(b"more")

    def forget(self):
        shutil.rmtree(self.state)

    def assert_same(self):
        for name in "small", "big":
            assert self.store.get(self.prefix + name) == (self.src / name).read_bytes(), name

    def verdict(self):
        return json.loads((self.state / "export/verdict.json").read_text())


@pytest.fixture
def directory(store, tmp_path):
    return Directory(store, tmp_path)


def test_a_small_and_a_large_file_arrive_and_each_is_confirmed_by_its_bytes(directory):
    directory.export()
    directory.assert_same()
    verdict = directory.verdict()
    assert verdict["state"] == "done" and verdict["done"]["files"] == 3
    confirmed = verdict["confirmedBy"]
    assert confirmed["size"] == 0 and sum(confirmed.values()) == 3, confirmed


def test_a_version_of_our_own_is_replaced(directory):
    directory.export()
    for _ in range(2):
        directory.append()
        directory.export()
        directory.assert_same()


def test_another_writers_object_is_kept_and_named(directory):
    for name in "small", "big":
        directory.store.put(directory.prefix + name, b"theirs", directory.scratch)
    assert directory.export(code=1).stderr.count("CIS4409") == 2
    for name in "small", "big":
        assert directory.store.get(directory.prefix + name) == b"theirs"


def test_exported_object_replaced_by_another_writer_is_kept(directory):
    directory.export()
    for name in "small", "big":
        directory.store.put(directory.prefix + name, b"theirs", directory.scratch)
    directory.append()
    assert directory.export(code=1).stderr.count("CIS4409") == 2
    for name in "small", "big":
        assert directory.store.get(directory.prefix + name) == b"theirs"


def test_another_directory_never_replaces_what_this_one_wrote(directory, tmp_path):
    directory.export()
    kept = {name: (directory.src / name).read_bytes() for name in ("small", "big")}
    (tmp_path / "other").mkdir()
    other = Directory(directory.store, tmp_path / "other")
    other.prefix = directory.prefix
    assert "exported" not in other.export().stdout  # the same bytes are there
    other.append()
    assert other.export(code=1).stderr.count("CIS4409") == 2
    for name, content in kept.items():
        assert directory.store.get(directory.prefix + name) == content


def test_a_killed_export_is_resumed(directory):
    kills.kill_after_a_part(directory.command(), directory.store.environment)
    directory.export()
    directory.assert_same()


def test_without_its_state_an_export_finds_the_same_bytes_and_refuses_to_replace_others(directory):
    directory.export()
    directory.forget()
    directory.export()
    directory.assert_same()
    kept = {name: (directory.src / name).read_bytes() for name in ("small", "big")}
    directory.forget()
    directory.append()
    assert directory.export(code=1).stderr.count("CIS4409") == 2
    for name, content in kept.items():
        assert directory.store.get(directory.prefix + name) == content
    directory.export("--conflict", "overwrite")
    directory.assert_same()


@pytest.mark.parametrize("flags", [["--heedless"], ["--heedless=put"], ["--heedless=complete"]])
def test_another_writers_object_that_appears_during_the_transfer_is_kept_where_conditions_are_ignored(tmp_path, flags):
    """All parts arrived; the completion is held back until another writer has put its object."""
    with BucketServer(*flags) as server:
        store = Store.__new__(Store)
        store.server, store.bucket, store.url = server, "bench", server.url
        store.environment = dict(os.environ, AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="us-east-1")
        directory = Directory(store, tmp_path)
        # The last of the three parts waits for a request that the test makes when the other object is there.
        server.fault("op=put,key=*big,do=hold:1:delete")
        child = subprocess.Popen(directory.command(), env=store.environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while server.stats()["put"] < 5:
            assert time.monotonic() < deadline and child.poll() is None
            time.sleep(0.01)
        server.put(directory.prefix + "big", b"theirs")
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/bench/none", method="DELETE"), timeout=30).close()
        out, err = child.communicate(timeout=60)
        assert child.returncode == 1 and "CIS4409" in err, (out, err)
        assert server.content(directory.prefix + "big") == b"theirs"


def test_race_that_cannot_be_excluded_is_reported(tmp_path):
    for flags, expected in ([], 1), (["--heedless"], 3):
        with BucketServer(*flags) as server:
            store = Store.__new__(Store)
            store.server, store.bucket, store.url = server, "bench", server.url
            store.environment = dict(os.environ, AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="s", AWS_REGION="us-east-1")
            top = tmp_path / str(expected)
            top.mkdir()
            directory = Directory(store, top)
            out = directory.export().stdout
            # The server honours conditions of PUT, and the probe shows it; a completion was not seen to be refused.
            assert directory.verdict()["lookedOnly"]["files"] == expected, (flags, directory.verdict())
            assert f"checked by HEAD only: {expected} file{'s' * (expected > 1)};" in out
