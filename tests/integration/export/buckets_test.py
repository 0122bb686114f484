# SPDX-License-Identifier: Apache-2.0
"""`cistern export` against real servers: what arrives, what a kill leaves, what a marker promises."""

import filecmp
import json
import os
import random
import subprocess
import time
import urllib.parse
import urllib.request

import pytest

from integration.lib import kills
from integration.lib.noise import noise
from paths import CACHE, CISTERN, files_below
from servers import fake_gcs, minio, versitygw

MIB = 1 << 20
KEYS = {"AWS_ACCESS_KEY_ID": versitygw.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": versitygw.SECRET_KEY,
        "AWS_REGION": versitygw.REGION}


@pytest.fixture(scope="module", params=[versitygw.Versitygw, minio.Minio, fake_gcs.FakeGcs],
                ids=["versitygw", "minio", "fake-gcs"])
def server(request):
    server = request.param()
    server.start()
    server.make_bucket("out")
    yield server
    server.stop()


class Export:
    def __init__(self, server, top):
        self.server, self.src, self.state = server, top / "src", top / "state"
        self.src.mkdir()
        self.prefix = f"{top.name}/"
        self.is_gcs = isinstance(server, fake_gcs.FakeGcs)
        self.scheme = "gs" if self.is_gcs else "s3"
        self.environment = dict(os.environ, **KEYS)
        self.back = top / "back"

    def command(self, *flags):
        return [str(CISTERN), "export", "--endpoint", self.server.url, "--state", str(self.state),
                *(["--anonymous"] if self.is_gcs else []), *flags,
                str(self.src), f"{self.scheme}://out/{self.prefix}"]

    def start(self, *flags):
        return subprocess.Popen(self.command(*flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment)

    def run(self, *flags, code=0):
        done = subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=300, env=self.environment)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def s5cmd(self, *words):
        done = subprocess.run([CACHE / "bin/s5cmd", "--endpoint-url", self.server.url, *words], env=self.environment,
                              capture_output=True, timeout=120)
        return done.stdout

    def gcs(self, path, method="GET", body=None):
        request = urllib.request.Request(f"{self.server.url}{path}", method=method, data=body)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def all_keys(self, prefix):
        if not self.is_gcs:
            lines = self.s5cmd("--json", "ls", f"s3://out/{prefix}*").splitlines()
            return {json.loads(line)["key"].split("s3://out/", 1)[1] for line in lines}
        listed = json.loads(self.gcs(f"/storage/v1/b/out/o?prefix={urllib.parse.quote(prefix, safe='')}"))
        return {item["name"] for item in listed.get("items", [])}

    def keys(self):
        return {key[len(self.prefix):] for key in self.all_keys(self.prefix)}

    def get(self, key):
        if self.is_gcs:
            return self.gcs(f"/storage/v1/b/out/o/{urllib.parse.quote(self.prefix + key, safe='')}?alt=media")
        return self.s5cmd("cat", f"s3://out/{self.prefix}{key}")

    def put(self, key, content):
        if self.is_gcs:
            name = urllib.parse.quote(self.prefix + key, safe="")
            self.gcs(f"/upload/storage/v1/b/out/o?uploadType=media&name={name}", "POST", content)
            return
        other = self.src.parent / "other"
        other.write_bytes(content)
        self.s5cmd("cp", str(other), f"s3://out/{self.prefix}{key}")

    def remains(self):
        """Of uploads that did not end: parts that the server still holds, by its own files or names."""
        if self.is_gcs:
            return {key for key in self.all_keys("") if ".cistern" in key}
        return {str(p) for p in files_below(self.server.data) if "multipart" in p.relative_to(self.server.data).parts[:-1]}

    def assert_same(self):
        """Read back by another program, and compared."""
        subprocess.run(["rm", "-rf", self.back], check=True)
        self.back.mkdir()
        if self.is_gcs:
            for key in self.keys():
                (self.back / key).parent.mkdir(parents=True, exist_ok=True)
                (self.back / key).write_bytes(self.get(key))
        else:
            self.s5cmd("cp", f"s3://out/{self.prefix}*", f"{self.back}/")
        here = {p.relative_to(self.src) for p in self.src.rglob("*") if p.is_file()}
        assert here == {p.relative_to(self.back) for p in self.back.rglob("*") if p.is_file()}
        for p in here:
            assert filecmp.cmp(self.src / p, self.back / p, shallow=False), p

    def write(self, name, size):
        path = self.src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(name, size))
        return path

    def verdict(self):
        return json.loads((self.state / "export/verdict.json").read_text())


@pytest.fixture
def export(server, tmp_path):
    return Export(server, tmp_path)


def fill(export):
    for i in range(40):
        export.write(f"ckpt/step-{i % 4}/shard {i}+é%.pt", i * 37_001)
    export.write("ckpt/step-1/model.pt", 21 * MIB + 3)
    export.write("ckpt/step-2/model.pt", 8 * MIB + 1)
    export.write("empty", 0)


def test_objects_equal_the_files_and_a_second_run_sends_nothing(export):
    fill(export)
    export.run()
    export.assert_same()
    verdict = export.verdict()
    assert verdict["state"] == "done" and verdict["sizeOnly"]["files"] == 0
    assert "exported" not in export.run().stdout


NAMES = ["per%cent", "%2F", "plus+sign", "n" * 255, "\u00e9" * 127, " before", "after ", "quote\"'", "amp&<>", "hash#?", "back\\slash",
         "emoji\U0001f600", "e\u0301", "..dots", ".hidden", "semi;colon", "a=b,c", "{y}", "|pipe", "folder%20 +/x&y"]


def test_every_name_arrives_as_it_is_or_is_named(export):
    for name in NAMES:
        export.write(name, 100)
    if export.is_gcs:
        export.write("line\nbreak", 100)
        assert "CIS1003" in export.run(code=1).stderr
        (export.src / "line\nbreak").unlink()
    else:
        export.run()
    assert export.keys() == set(NAMES)
    for name in NAMES:
        assert export.get(name) == (export.src / name).read_bytes(), name


def test_a_lost_state_meets_its_own_objects_and_calls_no_conflict(export):
    fill(export)
    export.run()
    subprocess.run(["rm", "-r", export.state], check=True)
    out = export.run().stdout
    assert export.verdict()["state"] == "done", out
    export.assert_same()


def test_another_object_of_that_name_is_a_conflict_by_default(export):
    export.write("a", 100)
    export.write("big", 9 * MIB)
    for name in ("a", "big"):
        export.put(name, b"theirs")
    export.write("c", 1)
    assert export.run(code=1).stderr.count("CIS4409") == 2
    assert export.get("a") == b"theirs" and export.get("big") == b"theirs"
    export.run("--conflict", "version")
    assert export.keys() == {"a", "a.v2", "big", "big.v2", "c"}
    subprocess.run(["rm", "-r", export.state], check=True)
    export.run("--conflict", "overwrite")
    assert export.get("big") == (export.src / "big").read_bytes()
    assert export.get("a") == (export.src / "a").read_bytes()


def wait_until_nothing_arrives(export):
    """Parts that the server has in its sockets still arrive after the kill, and would outlive an abort."""
    deadline = time.monotonic() + 120
    while not export.server.is_idle():
        assert time.monotonic() < deadline
        time.sleep(0.05)


CUTS, RUNS = 8, 60


def test_killed_at_any_moment_it_ends_right_and_leaves_no_upload(export, tmp_path):
    """Up to three runs are cut before one ends; a run that has little left to do may end before its call comes."""
    fill(export)
    export.write("ckpt/step-3/large.pt", 28 * MIB)
    calls = kills.count_calls(export.command(), export.environment, tmp_path)
    chance, cut, runs = random.Random(6), 0, 0
    while cut < CUTS and runs < RUNS:
        subprocess.run(["rm", "-rf", export.state], check=True)
        export.prefix = f"turn-{runs}-{export.src.parent.name}/"
        for _ in range(3):
            runs += 1
            cut += kills.kill_at(chance.randint(1, calls), export.command(), export.environment)
        wait_until_nothing_arrives(export)
        export.run()
        export.assert_same()
        assert export.remains() == set()
    assert cut >= CUTS


def test_a_removed_file_whose_upload_was_cut_leaves_nothing_at_the_server(export):
    big = export.write("big", 60 * MIB)
    kills.kill_after_a_part(export.command(), export.environment)
    wait_until_nothing_arrives(export)
    assert export.remains()
    big.unlink()
    export.write("small", 10)
    export.run()
    assert export.keys() == {"small"}
    assert export.remains() == set()


def test_the_marker_is_never_there_before_the_rest(export):
    fill(export)
    child = export.start("--marker", "_SUCCESS")
    while child.poll() is None:
        keys = export.keys()
        for marker in (k for k in keys if k.endswith("_SUCCESS")):
            folder = marker.rsplit("/", 1)[0]
            assert {str(p.relative_to(export.src)) for p in (export.src / folder).iterdir()} <= keys
    child.communicate()
    assert child.returncode == 0
    assert len([k for k in export.keys() if k.endswith("/_SUCCESS")]) == 4


def test_a_bucket_that_is_not_there_ends_with_a_sentence_and_a_code(export):
    export.write("a", 1)
    command = export.command()[:-1] + [f"{export.scheme}://no-such-bucket-here/x/"]
    done = subprocess.run(command, capture_output=True, text=True, env=export.environment, timeout=60)
    assert done.returncode == 3 and "no-such-bucket-here" in done.stderr, (done.returncode, done.stderr)


@pytest.mark.parametrize("server", [versitygw.Versitygw, minio.Minio], ids=["versitygw", "minio"], indirect=True)
def test_a_wrong_key_is_exit_code_4(export):
    for i in range(40):
        export.write(f"f{i}", 1)
    export.environment["AWS_SECRET_ACCESS_KEY"] = "wrong"
    export.run(code=4)
