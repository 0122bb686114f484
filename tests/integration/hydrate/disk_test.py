# SPDX-License-Identifier: Apache-2.0
"""Changes to the directory, the disk and the process during a run: no incomplete run is reported as done, no reader sees
half a file, and each failure has an error."""

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest

from servers.bucket import BUILD, BucketServer

from .lib import is_tidy

DONE, SOME_FAILED, USAGE, TRANSIENT, NO_SPACE, ENVIRONMENT = 0, 1, 2, 5, 6, 10
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
       "AWS_REGION": "us-east-1"}
LARGE = "d/large/object-000000000"


@pytest.fixture(name="server")
def server_of_some_objects():
    with BucketServer("--objects", "d/small/:30:20Ki", "--objects", "d/large/:1:20Mi") as server:
        server.names = [f"small/object-{i:09}" for i in range(30)] + ["large/object-000000000"]
        yield server


def words(server, out, *flags):
    return [BUILD / "bin/cistern", "hydrate", "--no-progress", "--path-style", "--endpoint", server.url, *flags, "s3://bench/d/",
            out]


def run(server, out, *flags, **more):
    return subprocess.run(words(server, out, *flags), env=ENV, capture_output=True, text=True, timeout=60, check=False, **more)


def start(server, out):
    return subprocess.Popen(words(server, out), env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def until(condition, child):
    deadline = time.monotonic() + 30
    while not condition():
        assert child.poll() is None and time.monotonic() < deadline, child.communicate()
        time.sleep(0.005)


def is_right(server, out, names=None):
    found = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    wanted = {name: server.content("d/" + name) for name in names or server.names}
    return found == wanted


def without_the_large_one(server, out):
    """A run after which DIR has its name, and people read in it."""
    server.fault(f"op=any,key={LARGE},do=status:400")
    assert run(server, out).returncode == SOME_FAILED
    server.no_faults()
    assert is_right(server, out, server.names[:-1])


def test_half_a_file_is_not_seen_where_an_earlier_run_had_ended(server, tmp_path):
    out = tmp_path / "out"
    without_the_large_one(server, out)
    server.fault(f"op=get,key={LARGE},after=2,do=stall:100000")
    with start(server, out) as child:
        state = tmp_path / ".out.cistern/journal"
        before = state.stat().st_size
        until(lambda: state.stat().st_size >= before + 3 * 32, child)  # a run, and two parts
        child.kill()
    assert is_right(server, out, server.names[:-1])
    server.no_faults()
    server.forget_stats()
    assert run(server, out).returncode == DONE
    assert server.stats()["get"] == 1, "the part that was left"
    assert is_right(server, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.cistern", "out"] and is_tidy(tmp_path)


def test_only_files_removed_between_two_runs_are_fetched_again(server, tmp_path):
    out = tmp_path / "out"
    without_the_large_one(server, out)
    (out / server.names[3]).unlink()
    was = (out / server.names[4]).stat()
    (out / server.names[4]).write_bytes(b"cut short")
    os.utime(out / server.names[4], ns=(was.st_atime_ns, was.st_mtime_ns))  # a power loss keeps the time, a person does not
    server.forget_stats()
    assert run(server, out).returncode == DONE
    assert server.stats()["get"] == 2 + 3  # and the large one's parts
    assert is_right(server, out)


@pytest.mark.parametrize("number, told", [(errno.EINTR, {"CIS1524"}), (errno.EACCES, {"CIS1523", "CIS1403"})])
@pytest.mark.parametrize("name", ["openat", "mkdirat", "renameat", "renameat2", "ftruncate", "fallocate", "fsync", "write", "pwrite"])
def test_failed_system_call_is_reported_with_its_id(tmp_path, name, number, told):
    source, count = tmp_path / "source", tmp_path / "count"
    (source / "folder").mkdir(parents=True)
    (source / "folder/small").write_bytes(b"s" * 1000)
    (source / "large").write_bytes(bytes(9 << 20))

    def hydrate(symbol, at):
        out = tmp_path / f"{symbol}-{at}"
        preload = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_COUNT": str(count), "CISTERN_FAIL_NAME": symbol,
                   "CISTERN_FAIL_AT": str(at), "CISTERN_FAIL_ERRNO": str(number)}
        done = subprocess.run([BUILD / "bin/cistern", "hydrate", "--no-progress", "--no-io-uring", "--fsync", f"file://{source}/", out],
                              env=ENV | preload, capture_output=True, text=True, timeout=60, check=False)
        return done, int(count.read_text())

    met = 0
    for symbol in (name, name + "64"):
        for at in range(1, hydrate(symbol, 0)[1] + 1):
            done, _ = hydrate(symbol, at)
            met += 1
            assert done.returncode == DONE or any(word in done.stderr for word in told), (symbol, at, done.stderr)
            if number == errno.EINTR and name in ("fallocate", "write"):
                assert done.returncode == DONE, (symbol, at, done.stderr)
    assert met > 0


def test_one_file_of_the_source_that_its_disk_does_not_give_fails_alone(tmp_path):
    source, out, count = tmp_path / "source", tmp_path / "out", tmp_path / "count"
    source.mkdir()
    for i in range(10):
        (source / f"f{i}").write_bytes(bytes([i]) * 1000)
    command = [BUILD / "bin/cistern", "hydrate", "--no-progress", f"file://{source}/", out]
    preload = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so"), "CISTERN_FAIL_COUNT": str(count)}
    failed = []
    for name in ("pread", "pread64"):  # of these a build has one
        done = subprocess.run(command, env=ENV | preload | {"CISTERN_FAIL_NAME": name, "CISTERN_FAIL_AT": "2"},
                              capture_output=True, text=True, timeout=60, check=False)
        if int(count.read_text()):
            failed.append(done)
            assert done.returncode == TRANSIENT, done.stderr
            assert "Input/output error (CIS1521" in done.stderr and "CIS1513" in done.stderr, done.stderr
            assert len(list(out.iterdir())) == 9
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / ".out.cistern", ignore_errors=True)
    assert len(failed) == 1
    assert subprocess.run(command, env=ENV, timeout=60, check=False).returncode == DONE
    assert sorted(p.read_bytes() for p in out.iterdir()) == [bytes([i]) * 1000 for i in range(10)]


@pytest.mark.parametrize("what", ["data", "data/small"])
def test_file_removed_before_the_rename_is_fetched_again(server, tmp_path, what):
    server.fault("op=get,after=10,do=status:403")
    assert run(server, tmp_path / "out", "--max-errors", "1", "--concurrency", "1").returncode != DONE
    server.no_faults()
    assert len(list((tmp_path / ".out.cistern/data").rglob("object*"))) >= 5
    shutil.rmtree(tmp_path / ".out.cistern" / what)
    assert run(server, tmp_path / "out").returncode == DONE
    assert is_right(server, tmp_path / "out")


@pytest.mark.parametrize("name, cause", [("", "DIR is empty"), *((n, "not a valid directory name") for n in ("none/.", "none/..", "none/./"))])
def test_invalid_directory_name_is_refused_before_any_request(server, tmp_path, name, cause):
    done = run(server, name, cwd=tmp_path)
    assert done.returncode == USAGE and cause in done.stderr, done.stderr
    assert server.stats()["requests"] == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_place", [False, True], ids=["staged", "in place"])
def test_moved_directory_is_not_reported_as_filled(server, tmp_path, in_place):
    out = tmp_path / "out"
    if in_place:
        out.mkdir()
    server.fault("op=get,do=latency:300")
    with start(server, out) as child:
        until(lambda: server.stats()["get"] >= 5, child)
        (out if in_place else tmp_path / ".out.cistern/data").rename(tmp_path / "elsewhere")
        (out if in_place else tmp_path / ".out.cistern/data").mkdir()
        assert child.wait(30) == ENVIRONMENT
        assert "CIS1518" in child.stderr.read()
    server.no_faults()
    assert run(server, out).returncode == DONE and is_right(server, out)


def test_many_large_objects_are_opened_a_few_at_a_time(tmp_path):
    with BucketServer("--objects", "d/:150:1048577", "--fault", "op=head,do=latency:100") as server:
        done = run(server, tmp_path / "out", "--concurrency", "8",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        assert done.returncode == DONE, done.stderr
        assert is_right(server, tmp_path / "out", [f"object-{i:09}" for i in range(150)])


def test_a_limit_of_file_sizes_is_a_sentence(server, tmp_path):
    out = tmp_path / "out"
    hurt = run(server, out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert hurt.returncode == NO_SPACE and "File too large" in hurt.stderr
    assert run(server, out).returncode == DONE and is_right(server, out)


def test_a_full_disk_names_the_object_by_its_path(server, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", disk], check=True)
    try:
        server.fault("op=get,key=d/small/*,do=hold:1:put", "op=get,do=stall")
        with start(server, disk / "out") as child:
            until(lambda: server.stats()["get"] >= 5, child)  # the large one has its space
            with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(4096))
            server.put("full", b"")
            assert child.wait(30) == NO_SPACE
            assert "cistern: small/object-0" in child.stderr.read()
        (disk / "filler").unlink()
        server.no_faults()
        assert run(server, disk / "out").returncode == DONE and is_right(server, disk / "out")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_sentences_go_into_no_file_where_the_standard_streams_are_closed(server, tmp_path):
    server.fault(f"op=get,key={LARGE},do=status:404")
    command = " ".join(map(str, words(server, tmp_path / "out")))
    done = subprocess.run(["bash", "-c", f"exec {command} <&- >&- 2>&-"], env=ENV, timeout=60, check=False)
    assert done.returncode == SOME_FAILED
    assert (tmp_path / ".out.cistern/hydrate.lock").stat().st_size == 0


def test_a_catalog_that_is_cut_short_under_a_run_is_a_sentence(server, tmp_path):
    server.fault("op=get,do=latency:500")
    with start(server, tmp_path / "out") as child:
        catalog = tmp_path / ".out.cistern/catalog"
        until(catalog.exists, child)
        os.truncate(catalog, 4096)
        assert child.wait(30) == ENVIRONMENT
        assert "CIS1519" in child.stderr.read()
    server.no_faults()
    assert run(server, tmp_path / "out").returncode == 7
    assert run(server, tmp_path / "out", "--no-resume").returncode == DONE and is_right(server, tmp_path / "out")


def test_a_process_that_was_stopped_for_longer_than_a_stall_goes_on(server, tmp_path):
    server.fault("op=get,do=latency:300")
    with start(server, tmp_path / "out") as child:
        until(lambda: server.stats()["get"] >= 5, child)
        child.send_signal(signal.SIGSTOP)
        time.sleep(1)
        child.send_signal(signal.SIGCONT)
        assert child.wait(30) == DONE, child.stderr.read()
    assert is_right(server, tmp_path / "out")
