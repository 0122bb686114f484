# SPDX-License-Identifier: Apache-2.0
"""kill -9 at any moment: the same command continues, ends with the same tree, and fetches again at most what was not
written."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from paths import CISTERN
from servers.bucket import KEYS

from .lib import DONE, Bucket, cistern, is_tidy, make_source, summary, tree

pytestmark = pytest.mark.timeout(400)


def kill_after(seconds, *words):
    with subprocess.Popen([CISTERN, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, **KEYS}) as run:
        time.sleep(seconds)
        run.send_signal(signal.SIGKILL)
        return run.wait()


@pytest.mark.asan
@pytest.mark.parametrize("in_place", [False, True])
def test_killed_at_fifty_moments_it_ends_with_the_same_tree(tmp_path, in_place):
    source = make_source(tmp_path / "source", small=400, large=((9 << 20) + 1, 17 << 20))
    want = tree(source)
    dice = random.Random(5 + in_place)
    kills = 0
    while kills < 25:
        out = tmp_path / f"out{kills}"
        if in_place:
            out.mkdir()
        words = ["hydrate", f"file://{source}/", out, "--bandwidth", "120M", "--quiet"]
        for _ in range(5):
            kills += 1
            if kill_after(dice.uniform(0, 0.35), *words) == 0:
                break
        assert subprocess.run([CISTERN, *map(str, words)], timeout=60, check=False).returncode == DONE
        assert tree(out) == want
    assert is_tidy(tmp_path)


def test_a_kill_in_the_middle_of_the_last_tidying_up_is_tidied_up(tmp_path):
    source, out = make_source(tmp_path / "source", small=3, large=()), tmp_path / "out"
    words = [CISTERN, "hydrate", f"file://{source}/", out, "--quiet"]
    assert subprocess.run(words, timeout=60, check=False).returncode == DONE
    state = tmp_path / ".out.cistern"
    shutil.rmtree(state)
    state.mkdir()
    (state / "hydrate.lock").touch()
    assert subprocess.run(words, timeout=60, check=False).returncode == DONE
    assert tree(out) == tree(source)
    assert is_tidy(tmp_path) and (state / "catalog").exists()


def kill_when_done(done_bytes, state, *words):
    """When the run itself says that so much is there."""
    status = state / "status.json"
    with subprocess.Popen([CISTERN, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, **KEYS}) as run:
        while run.poll() is None and not (status.exists() and json.loads(status.read_text())["bytesDone"] >= done_bytes):
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL


def test_written_files_are_not_fetched_again(tmp_path):
    with Bucket("k/:3000:20Ki", "l/:3:160Mi") as bucket:
        for prefix, count, cap, half in (("k/", 3000, "12M", 25 << 20), ("l/", 60, "100M", 200 << 20)):
            out = tmp_path / prefix.strip("/")
            words = ["hydrate", f"s3://bench/{prefix}", out, "--endpoint", bucket.url, "--bandwidth", cap, "--quiet",
                     "--concurrency", 8]  # what is on its way at the kill is lost
            kill_when_done(half, tmp_path / f".{out.name}.cistern", *words)
            before = bucket.stats()
            code, end, _ = summary("hydrate", f"s3://bench/{prefix}", out, "--endpoint", bucket.url)
            assert code == DONE, before
            assert end["found"] == end["hydrated"] == end["verified"]
            assert end["requests"] < count * 0.8


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
@pytest.mark.parametrize("name", ["catalog", "catalog.partial", "journal", "status.json", ".status.json", "hydrate.lock"])
def test_special_file_in_place_of_a_state_file_is_named(tmp_path, name, kind):
    source, out = make_source(tmp_path / "source", small=30, large=((20 << 20),)), tmp_path / "out"
    out.mkdir()
    words = ["hydrate", f"file://{source}/", out, "--quiet"]
    kill_when_done(0, out / ".cistern-hydrate", *words, "--bandwidth", "4M")
    bait, precious = out / ".cistern-hydrate" / name, tmp_path / "precious"
    precious.write_bytes(b"precious")
    if bait.exists():
        bait.unlink()
    {"fifo": os.mkfifo, "link": lambda at: at.symlink_to(precious), "directory": os.mkdir}[kind](bait)
    done = cistern(*words)
    assert precious.read_bytes() == b"precious"
    if done.returncode != DONE:  # a file of which this run has no need may be anything
        assert name.lstrip(".") in done.stderr and "remove it" in done.stderr, done.stderr
    else:
        assert tree(out).items() >= tree(source).items()
