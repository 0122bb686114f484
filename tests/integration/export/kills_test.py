# SPDX-License-Identifier: Apache-2.0
"""kill -9 while each request of an export is at the server, answered there and not yet heard of, or not yet done: the
next run ends with every file confirmed and no upload left, and no reader ever saw a marker without its checkpoint.
CISTERN_FAIL_EVERY=1 kills at every request; without it they are sampled."""

import os
import random
import subprocess
import time

import pytest

from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SAMPLE = 4
MIB = 1 << 20
FILES = {"c/step-1/large": 20 * MIB + 7, "c/step-1/small": 1000, "c/step-2/empty": 0, "c/step-2/other": 9 * MIB}
MARKERS = {"c/step-1/DONE", "c/step-2/DONE"}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def server():
    """One a test: it keeps in memory all that it was ever sent, six GB of a test that kills at every request."""
    with BucketServer() as running:
        yield running


def command(server, folder, scheme, prefix):
    return [CISTERN, "export", "--quiet", "--endpoint", server.url, *(["--anonymous"] if scheme == "gs" else []), "--marker",
            "DONE", "--conflict", "overwrite", "--concurrency", "2", "--state", folder / f"state-{prefix}", folder / "src",
            f"{scheme}://bench/{prefix}/"]


def content(name, generation):
    return noise(f"{name}{generation}", FILES[name])


def write(folder, generation):
    for name in FILES:
        path = folder / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(name, generation))


def run(server, folder, scheme, prefix):
    done = subprocess.run(command(server, folder, scheme, prefix), env=os.environ | KEYS, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


def found(server, prefix):
    return {key.removeprefix(f"{prefix}/") for key in server.uploads() if key.startswith(f"{prefix}/")}


def generation_of(server, prefix, folder, generation):
    names = [name for name in FILES if name.startswith(folder)]
    return all(name in found(server, prefix) and server.content(f"{prefix}/{name}") == content(name, generation)
               for name in names)


def kill_at(server, folder, scheme, prefix, rule):
    """False: the run was over before it came to that request."""
    server.fault(rule)
    child = subprocess.Popen(command(server, folder, scheme, prefix), env=os.environ | KEYS, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while server.fired() == [0] and child.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        met = server.fired() == [1]
    finally:
        child.kill()
        child.wait()
        server.no_faults()
    return met


def assert_no_half_checkpoint(server, prefix, generation, told):
    """Where a marker is, all of its checkpoint is what it was, or all of it is new."""
    for marker in MARKERS & found(server, prefix):
        folder = marker.removesuffix("DONE")
        assert any(generation_of(server, prefix, folder, g) for g in (0, generation)), (told, marker)


def assert_nothing_left(server, told):
    assert b"<Upload>" not in server.ask("/bench?uploads&prefix="), told
    assert not [key for key in server.uploads() if key.startswith(".cistern")], told


def requests_of(server, folder, scheme):
    write(folder, 0)
    run(server, folder, scheme, f"{scheme}-whole")
    write(folder, 1)
    server.forget_stats()
    run(server, folder, scheme, f"{scheme}-whole")
    return server.stats()["requests"]


@pytest.mark.parametrize("action", ["stall", "lost", "status:503:60"], ids=["unheard", "cut off", "not yet done"])
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_kill_between_any_two_requests_loses_nothing_and_leaves_nothing(server, tmp_path, scheme, action):
    """Of a checkpoint that replaces an older one, which is the most that there is to be got wrong."""
    total, met = requests_of(server, tmp_path, scheme), 0
    first = 1 if EVERY else random.randint(1, SAMPLE)
    for n in range(first, total + 1, EVERY or SAMPLE):
        prefix = f"{scheme}-{action.split(':')[0]}-{n}"
        told = f"{action} at request {n} of {total}"
        write(tmp_path, 0)
        run(server, tmp_path, scheme, prefix)
        write(tmp_path, n)
        met += kill_at(server, tmp_path, scheme, prefix, f"op=any,nth={n},do={action}")
        assert_no_half_checkpoint(server, prefix, n, told)
        run(server, tmp_path, scheme, prefix)
        assert generation_of(server, prefix, "c/", n), told
        assert found(server, prefix) == FILES.keys() | MARKERS, told
        assert_nothing_left(server, told)
        server.remove_below(f"{prefix}/")
    assert met >= total // (EVERY or SAMPLE) - 2, "too few kills came while it ran"
