# SPDX-License-Identifier: Apache-2.0
"""Every run again with its Nth system call failing: each ends with the right tree or an error, never with a crash, a hang
or a wrong byte. The same command afterwards, on a healthy machine, completes it.
CISTERN_FAIL_EVERY=1 fails every call; without it they are sampled."""
import errno
import filecmp
import json
import os
import random
import re
import subprocess

import pytest

from integration.hydrate.lib import is_tidy
from paths import BUILD
from servers.bucket import KEYS, BucketServer

EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
RECORD = {"catalog", "journal", "hydrate.lock", "status.json"}
OBJECTS = {"a": 0, "b/c": 70_000, "b/d": 1, "b/e/f": 4096, "large": 3_000_000}
PATIENCE = ["--retries=2", "--timeout=2s"]
ERRORS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE]


@pytest.fixture(scope="module")
def server():
    with BucketServer() as running:
        dice = random.Random(1)
        for name, size in OBJECTS.items():
            running.ask(f"/bench/in/{name}", "PUT", dice.randbytes(size))
        yield running


@pytest.fixture
def bucket(tmp_path):
    folder = tmp_path / "bucket"
    for name, size in OBJECTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return folder


def run(command, **env):
    preload = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so")} if env else {}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          env=os.environ | KEYS | preload | {k: str(v) for k, v in env.items()})


def assert_whole(bucket, target):
    names = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    assert names == sorted(OBJECTS)
    for name in names:
        assert filecmp.cmp(bucket / name, target / name, shallow=False), name


def fail_each(tmp_path, command_for, check, number, sample, least=50, words="cistern: |error", **only):
    """`command_for(n)` is a run that has not been there before, `check(n)` that it is whole."""
    count = tmp_path / "count"
    done = run(command_for(0), CISTERN_FAIL_COUNT=count, **only)
    assert done.returncode == 0, done.stderr
    check(0)
    total = int(count.read_text())
    assert total > least, "the harness does not see the calls"
    for n in range(1, total + 1, EVERY or sample):
        hurt = run(command_for(n), CISTERN_FAIL_AT=n, CISTERN_FAIL_ERRNO=number, **only)
        told = f"call {n} of {total}: exit {hurt.returncode}: {hurt.stderr}"
        assert 0 <= hurt.returncode <= 10, told
        if hurt.returncode == 0:
            check(n)
        else:
            assert re.search(words, hurt.stderr), told
        healed = run(command_for(n))
        assert healed.returncode == 0, f"{told}\nthen: {healed.stderr}"
        check(n)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number, sample", [(errno.EIO, 3)] + [(e, 11) for e in ERRORS[1:]])
def test_hydrate_survives_the_failure_of_any_one_call(bucket, tmp_path, number, sample):
    def command_for(n):
        return [BUILD / "bin/cistern", "hydrate", "--no-io-uring", "--workers=1", *PATIENCE, f"file://{bucket}/",
                tmp_path / f"target-{n}"]

    def check(n):
        assert_whole(bucket, tmp_path / f"target-{n}")
        assert {p.name for p in (tmp_path / f".target-{n}.cistern").iterdir()} - {".status.json"} == RECORD

    fail_each(tmp_path, command_for, check, number, sample)


def from_server(server, target, *flags, scheme="s3"):
    access = "--path-style" if scheme == "s3" else "--anonymous"
    return [BUILD / "bin/cistern", "hydrate", "--workers=1", *PATIENCE, access, "--endpoint", server.url, *flags,
            f"{scheme}://bench/in/", target]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("scheme, number", [("s3", e) for e in ERRORS] + [("gs", errno.EIO)])
def test_hydrate_from_a_server_survives_the_failure_of_any_one_call(server, tmp_path, scheme, number):
    def command_for(n):
        return from_server(server, tmp_path / f"target-{n}", "--no-io-uring", "--fsync", scheme=scheme)

    def check(n):
        assert files_of(tmp_path / f"target-{n}") == {name: server.content(f"in/{name}") for name in OBJECTS}
        assert {p.name for p in (tmp_path / f".target-{n}.cistern").iterdir()} - {".status.json"} == RECORD

    fail_each(tmp_path, command_for, check, number, 16)


@pytest.mark.parametrize("verb", ["hydrate", "export"])
@pytest.mark.parametrize("name, number, words", [("pthread_create", errno.EAGAIN, "cannot start thread"),
                                                 ("mmap", errno.ENOMEM, "cannot (allocate|map)")])
def test_a_thread_or_a_mapping_that_is_not_to_be_had_is_a_sentence(bucket, tmp_path, verb, name, number, words):
    for n in range(1, 20):
        out, source = tmp_path / f"out-{n}", bucket if verb == "export" else f"file://{bucket}/"
        state = ["--state", tmp_path / f"state-{n}"] if verb == "export" else []
        command = [BUILD / "bin/cistern", verb, *state, source, f"file://{out}/" if verb == "export" else out]
        hurt = run(command, CISTERN_FAIL_NAME=name, CISTERN_FAIL_AT=n, CISTERN_FAIL_ERRNO=int(number))
        if hurt.returncode == 0:
            assert_whole(bucket, out)
            assert n > 1, "the harness does not see the calls"
            return
        assert 0 < hurt.returncode <= 10 and re.search(words, hurt.stderr), f"{n}: exit {hurt.returncode}: {hurt.stderr}"
        healed = run(command)
        assert healed.returncode == 0, healed.stderr
        assert_whole(bucket, out)
    raise AssertionError("there is no end of them")


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_list_is_whole_or_an_error_whichever_call_fails(server, tmp_path, number):
    def command_for(n):
        return [BUILD / "bin/cistern", "ls", "-r", *PATIENCE, "--path-style", "--endpoint", server.url, "--manifest-out",
                tmp_path / f"list-{n}", "s3://bench/in/"]

    def check(n):
        listed = (tmp_path / f"list-{n}").read_text().splitlines()
        assert sorted(json.loads(line)["object"] for line in listed) == sorted(OBJECTS)

    fail_each(tmp_path, command_for, check, number, 1, least=5)


def files_of(target):
    return {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}


@pytest.mark.parametrize("in_place", [False, True], ids=["staged", "in place"])
def test_files_lost_by_a_failed_barrier_are_fetched_again(server, tmp_path, in_place):
    """The kernel reports a failed write of pages once and drops them: later they read as other bytes."""
    target, data = tmp_path / "out", tmp_path / ("out" if in_place else ".out.cistern/data")
    if in_place:
        target.mkdir()
    command = from_server(server, target, "--fsync")
    hurt = run(command, CISTERN_FAIL_AT=1, CISTERN_FAIL_NAME="syncfs")
    assert hurt.returncode != 0 and "cannot make the files durable" in hurt.stderr, hurt.stderr
    lost = [p for p in data.rglob("*") if p.is_file() and ".cistern-hydrate" not in p.parts]
    assert len(lost) == len(OBJECTS)
    for path in lost:
        was = path.stat()
        path.write_bytes(bytes(was.st_size))
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))  # the kernel drops pages and keeps the time
    healed = run(command)
    assert healed.returncode == 0, healed.stderr
    assert files_of(target) == {name: server.content(f"in/{name}") for name in OBJECTS}


def test_due_status_does_not_keep_the_state_directory(server, tmp_path):
    done = run(from_server(server, tmp_path / "out"), CISTERN_SLOW_RMDIR=2500)  # a status is written every second
    assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"out", ".out.cistern"} and is_tidy(tmp_path)


def fail_exports(server, bucket, tmp_path, number, sample, **how):
    def command_for(n):
        return [BUILD / "bin/cistern", "export", *PATIENCE, "--path-style", "--endpoint", server.url, "--state",
                tmp_path / f"state-{n}", bucket, f"s3://bench/{tmp_path.name}-{n}/"]

    def check(n):
        for name in OBJECTS:
            assert server.content(f"{tmp_path.name}-{n}/{name}") == (bucket / name).read_bytes(), name
        assert '"done"' in (tmp_path / f"state-{n}/export/verdict.json").read_text()

    fail_each(tmp_path, command_for, check, number, sample, words=r"cistern: .*CIS\d{4}", **how)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", ERRORS)
def test_export_survives_the_failure_of_any_one_call(server, bucket, tmp_path, number):
    fail_exports(server, bucket, tmp_path, number, 13)


@pytest.mark.parametrize("name", ["fsync", "fdatasync"])
def test_export_survives_a_record_that_is_not_durable(server, bucket, tmp_path, name):
    """One of them is that of all records before the verdict: no file failed by then."""
    fail_exports(server, bucket, tmp_path, errno.EIO, 1, least=0, CISTERN_FAIL_NAME=name)
