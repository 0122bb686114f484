# SPDX-License-Identifier: Apache-2.0
"""Every run again with its Nth call to the system failing: each ends in the right tree or in a sentence, never in a
crash, a hang or a wrong byte; and the same command afterwards, on a machine that is well again, ends it."""
import filecmp
import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("CISTERN_BUILD", Path(__file__).resolve().parents[3] / "build"))
OBJECTS = {"a": 0, "b/c": 70_000, "b/d": 1, "b/e/f": 4096, "large": 3_000_000}
COMMAND = [BUILD / "bin/cistern", "hydrate", "--no-io-uring", "--workers=1", "--retries=2", "--timeout=2s"]
EIO, ENOSPC, EMFILE = 5, 28, 24


@pytest.fixture
def bucket(tmp_path):
    folder = tmp_path / "bucket"
    for name, size in OBJECTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return folder


def hydrate(bucket, target, **env):
    preload = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so")} if env else {}
    return subprocess.run([*COMMAND, f"file://{bucket}/", target], capture_output=True, text=True, timeout=60,
                          check=False, env=os.environ | preload | {k: str(v) for k, v in env.items()})


def assert_whole(bucket, target):
    names = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert names == sorted(OBJECTS)
    for name in names:
        assert filecmp.cmp(bucket / name, target / name, shallow=False), name


def calls_of(bucket, target, tmp_path):
    count = tmp_path / "count"
    done = hydrate(bucket, target, CISTERN_FAIL_COUNT=count)
    assert done.returncode == 0, done.stderr
    assert_whole(bucket, target)
    return int(count.read_text())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("errno, step", [(EIO, 1), (ENOSPC, 3), (EMFILE, 3)])
def test_hydrate_survives_the_failure_of_any_one_call(bucket, tmp_path, errno, step):
    total = calls_of(bucket, tmp_path / "unharmed", tmp_path)
    assert total > 50, "the harness does not see the calls"
    for n in range(1, total + 1, step):
        target = tmp_path / f"target-{n}"
        hurt = hydrate(bucket, target, CISTERN_FAIL_AT=n, CISTERN_FAIL_ERRNO=errno)
        told = f"call {n} of {total}: exit {hurt.returncode}: {hurt.stderr}"
        assert 0 <= hurt.returncode <= 10, told
        if hurt.returncode == 0:
            assert_whole(bucket, target)
        else:
            assert "cistern: " in hurt.stderr or "error" in hurt.stderr, told
        healed = hydrate(bucket, target)
        assert healed.returncode == 0, f"{told}\nthen: {healed.stderr}"
        assert_whole(bucket, target)
        assert not (tmp_path / f".target-{n}.cistern").exists(), told
        subprocess.run(["rm", "-rf", target], check=True)
