# SPDX-License-Identifier: Apache-2.0
"""`cistern export` into file://: bytes compared both ways, killed, stopped, written to while it reads, out of space."""

import filecmp
import json
import mmap
import os
import random
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from integration.lib import kills
from integration.lib.noise import noise
from paths import CISTERN, files_below

MIB = 1 << 20


class Export:
    """A directory, its target, and the state between."""

    def __init__(self, top):
        self.top = top
        self.src, self.dst, self.state = top / "src", top / "dst", top / "state"
        self.src.mkdir()

    def command(self, *flags):
        return [str(CISTERN), "export", "--state", str(self.state), *flags, str(self.src), f"file://{self.dst}"]

    def start(self, *flags):
        return subprocess.Popen(self.command(*flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *flags, code=0):
        done = subprocess.run(self.command(*flags), capture_output=True, text=True, timeout=120)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    def verdict(self):
        return json.loads((self.state / "export/verdict.json").read_text())

    def write(self, name, size, seed=0):
        path = self.src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(f"{name}{seed}", size))
        return path

    def assert_same(self):
        """Every file is there with its bytes, and nothing else is: no half object, no temporary."""
        here = {p.relative_to(self.src) for p in self.src.rglob("*") if p.is_file() and not p.is_symlink()}
        there = {p.relative_to(self.dst) for p in self.dst.rglob("*") if p.is_file()}
        assert here == there
        for p in here:
            assert filecmp.cmp(self.src / p, self.dst / p, shallow=False), p

    def assert_nothing_half(self):
        for p in self.dst.rglob("*"):
            name = p.relative_to(self.dst)
            if p.is_file() and not str(name).startswith(".cistern"):
                assert filecmp.cmp(self.src / name, p, shallow=False), name


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def fill(export):
    for i in range(60):
        export.write(f"ckpt/step-{i % 4}/shard-{i}.pt", i * 37_001)
    export.write("ckpt/step-1/model.pt", 21 * MIB + 3)
    export.write("ckpt/step-2/model.pt", 8 * MIB)
    export.write("ckpt/step-3/model.pt", 8 * MIB + 1)
    export.write("empty", 0)


def test_directory_arrives_whole_and_a_second_run_sends_nothing(export):
    fill(export)
    export.run()
    export.assert_same()
    verdict = export.verdict()
    assert verdict["state"] == "done" and verdict["done"]["files"] == 64 and verdict["pending"]["files"] == 0
    before = {p: p.stat().st_mtime_ns for p in export.dst.rglob("*")}
    assert "exported" not in export.run().stdout
    assert before == {p: p.stat().st_mtime_ns for p in export.dst.rglob("*")}


def test_a_changed_file_is_sent_again_and_only_that_one(export):
    fill(export)
    export.run()
    export.write("ckpt/step-1/shard-5.pt", 70_000, seed=1)
    out = export.run("--conflict", "overwrite").stdout
    assert [line for line in out.splitlines() if line.startswith("exported")] == ["exported  ckpt/step-1/shard-5.pt  68.4 KiB"]
    export.assert_same()


def test_state_is_below_home_if_xdg_state_home_is_unset_or_empty(export, tmp_path):
    export.write("a", 1000)
    for environment in {}, {"XDG_STATE_HOME": ""}:
        subprocess.run(["rm", "-rf", tmp_path / "home"], check=True)
        subprocess.run([CISTERN, "export", export.src, f"file://{export.dst}"], env={"HOME": str(tmp_path / "home"), **environment},
                       timeout=60, check=True)
        book, = (tmp_path / "home").rglob("logbook-*")
        assert book.is_relative_to(tmp_path / "home/.local/state/cistern/export")


def test_lost_state_directory_causes_no_conflict(export):
    fill(export)
    export.run()
    subprocess.run(["rm", "-r", export.state], check=True)
    export.run()
    export.assert_same()


def test_killed_at_any_moment_it_goes_on_and_leaves_nothing_half(export, tmp_path):
    """Up to three runs are cut before one ends; a run that has little left to do may end before its call comes."""
    fill(export)
    calls = kills.count_calls(export.command(), os.environ, tmp_path)
    chance, cut, runs = random.Random(4), 0, 0
    while cut < 20 and runs < 120:
        subprocess.run(["rm", "-rf", export.state, export.dst], check=True)
        for _ in range(3):
            runs += 1
            cut += kills.kill_at(chance.randint(1, calls), export.command(), os.environ)
            export.assert_nothing_half()
        export.run()
        export.assert_same()
        assert export.verdict()["state"] == "done"
    assert cut >= 20


@pytest.fixture(params=["marked", "unmarked"])
def unrecorded(export, request):
    """Killed between each rename and its line in the logbook; where the file system has attributes, and where not."""
    export.write("small", 1000)
    export.write("large", 20 * MIB)
    export.run()
    (book,) = (export.state / "export").glob("logbook-*")
    kept = [line for line in book.read_bytes().splitlines(True) if line[9:10] not in (b"E", b"S")]
    assert any(line[9:10] == b"P" for line in kept)
    book.write_bytes(b"".join(kept))
    for name in ("small", "large"):
        if request.param == "unmarked":
            os.removexattr(export.dst / name, "user.cistern.upload-id")
    return export


def times(export):
    return {p: p.stat().st_mtime_ns for p in export.dst.rglob("*")}


def test_killed_between_a_rename_and_its_record_it_goes_on_at_once_and_writes_nothing_again(unrecorded):
    before = times(unrecorded)
    unrecorded.run()
    unrecorded.assert_same()
    assert unrecorded.verdict()["state"] == "done" and times(unrecorded) == before


def test_killed_there_and_overwritten_by_another_it_sends_its_own_or_calls_a_conflict(unrecorded):
    for name in ("small", "large"):
        size = (unrecorded.dst / name).stat().st_size
        (unrecorded.dst / name).unlink()
        (unrecorded.dst / name).write_bytes(b"x" * size)
    assert unrecorded.run(code=2).stderr.count("CIS4409") == 2
    unrecorded.run("--conflict", "overwrite")
    unrecorded.assert_same()


def test_same_bytes_of_another_writer_count_as_present(export):
    for name, size in (("small", 1000), ("large", 20 * MIB), ("empty", 0)):
        path = export.write(name, size)
        export.dst.mkdir(exist_ok=True)
        (export.dst / name).write_bytes(path.read_bytes())
    before = times(export)
    assert [line.split()[0] for line in export.run().stdout.splitlines()[:3]] == ["there"] * 3
    assert times(export) == before


PLAIN = kills.PRELOAD | {"CISTERN_PLAIN_FILES": "1"}
SLOW_FOLDERS = kills.PRELOAD | {"CISTERN_SLOW_STAT": "1000"}


def test_killed_where_no_file_is_without_a_name_the_next_run_takes_what_was_left(export):
    """As on NFS."""
    for generation in (1, 2):
        for name in ("a", "b"):
            export.write(name, 6 * MIB, seed=generation)
        flags = ["--conflict", "overwrite", "--bandwidth", "2Mi"]
        child = subprocess.Popen(export.command(*flags), env=os.environ | PLAIN, stdout=subprocess.DEVNULL)
        wait_for(lambda: len(list(export.dst.glob(".cistern-uploads/*"))) == 2)
        child.kill()
        child.wait()
        assert len(list(export.dst.glob(".cistern-uploads/*"))) == 2
        done = subprocess.run(export.command(*flags[:2]), env=os.environ | PLAIN, capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout, done.stderr)
        export.assert_same()


def test_sigterm_ends_it_soon_with_exit_code_8_and_the_same_command_goes_on(export):
    for i in range(40):
        export.write(f"f{i}", 9 * MIB)
    child = export.start()
    wait_for(lambda: any(export.dst.glob("f*")))
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 8, stderr
    assert export.verdict()["state"] == "running"
    export.assert_nothing_half()
    export.run()
    export.assert_same()


def test_sigterm_during_the_walk_ends_the_run_and_pending_files_stay_pending(export):
    """The walk would take an hour, and a file is pending from the last run."""
    export.write("a", 1000)
    export.write("b", 1000)
    export.dst.mkdir()
    (export.dst / "a").write_bytes(b"theirs")
    export.run(code=1)
    first = export.verdict()
    for i in range(4000):
        (export.src / f"{i}").touch()
    child = subprocess.Popen(export.command(), env=os.environ | SLOW_FOLDERS, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: export.verdict()["state"] == "running")
    assert export.verdict()["pending"] == {"files": 1, "bytes": 1000}
    child.send_signal(signal.SIGTERM)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 8 and "repeat the command to continue" in stderr, stderr
    assert export.verdict()["state"] == "running" and export.verdict()["pending"] == {"files": 1, "bytes": 1000}
    assert export.verdict()["pendingSinceNs"] == first["startedNs"] < export.verdict()["startedNs"]
    (export.dst / "a").unlink()
    export.run()
    export.assert_same()


def test_a_file_open_for_writing_is_waited_for(export):
    fill(export)
    path = export.write("ckpt/step-2/late.pt", 1000)
    with open(path, "ab") as writer:
        child = export.start()
        wait_for(lambda: len([p for p in files_below(export.dst) if p.suffix == ".pt"]) == 63)
        time.sleep(0.5)
        assert child.poll() is None
        assert not (export.dst / "ckpt/step-2/late.pt").exists()
        writer.write(b"the end")
    out, stderr = child.communicate(timeout=30)
    assert child.returncode == 0, stderr
    assert "waiting   ckpt/step-2/late.pt" in out
    export.assert_same()


def test_a_file_mapped_for_writing_is_waited_for_though_it_is_closed(export):
    path = export.write("mapped", 8192)
    with open(path, "r+b") as f:
        mapping = mmap.mmap(f.fileno(), 0)
    child = export.start()
    wait_for(lambda: (export.state / "export/verdict.json").exists())
    for i in range(50):
        mapping[5000] = i
        time.sleep(0.02)
    assert child.poll() is None and not (export.dst / "mapped").exists()
    mapping.close()
    _, stderr = child.communicate(timeout=30)
    assert child.returncode == 0, stderr
    export.assert_same()


def test_a_file_that_is_written_to_while_it_travels_is_never_torn(export):
    path = export.write("busy", 0)
    with open(path, "wb") as f:
        f.write(b"\0" * 40 * MIB)
    stop = threading.Event()

    def rewrite():
        generation = 0
        while not stop.is_set():
            generation = generation % 250 + 1
            with open(path, "r+b") as f:
                f.write(bytes([generation]) * 40 * MIB)
            time.sleep(random.uniform(0, 1))

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(5):
            export.run("--conflict", "overwrite", "--deadline", "60s")
            sent = (export.dst / "busy").read_bytes()
            assert len(sent) == 40 * MIB and sent == sent[:1] * len(sent)
    finally:
        stop.set()
        writer.join()


def test_a_writer_is_let_in_at_once_while_its_file_travels(export):
    path = export.write("big", 200 * MIB)
    child = export.start()
    wait_for(lambda: any((export.state / "export").glob("logbook-*")) and
             " P " in next((export.state / "export").glob("logbook-*")).read_text())
    began = time.monotonic()
    with open(path, "r+b") as f:
        waited = time.monotonic() - began
        f.write(b"changed")
    child.communicate(timeout=60)
    assert child.returncode == 0
    assert waited < 30  # the kernel would wait for 45 s
    export.assert_same()


def test_the_deadline_ends_the_waiting_and_the_verdict_names_the_file(export):
    path = export.write("held", 10)
    export.write("free", 10)
    with open(path, "ab"):
        done = export.run("--deadline", "1s", code=1)
    assert "CIS4008" in done.stderr and "raise --deadline" in done.stderr
    verdict = export.verdict()
    assert verdict["state"] == "failed" and verdict["done"]["files"] == 1 and verdict["failures"][0]["path"] == "held"
    export.run()
    assert export.verdict()["state"] == "done"


def test_conflict_fail_keeps_both(export):
    export.write("a", 100)
    export.write("b", 100)
    export.dst.mkdir()
    (export.dst / "a").write_bytes(b"theirs")
    done = export.run(code=1)
    assert "CIS4409" in done.stderr
    assert (export.dst / "a").read_bytes() == b"theirs"
    verdict = export.verdict()
    assert verdict["state"] == "failed" and verdict["failures"][0]["path"] == "a" and verdict["failures"][0]["id"] == 4409


def test_conflict_overwrite_replaces(export):
    export.write("a", 100)
    export.write("big", 9 * MIB)
    export.dst.mkdir()
    (export.dst / "a").write_bytes(b"theirs")
    (export.dst / "big").write_bytes(b"theirs")
    export.run("--conflict", "overwrite")
    export.assert_same()


def test_conflict_version_writes_beside(export):
    for name, size in (("a", 100), ("big", 9 * MIB)):
        path = export.write(name, size)
        export.dst.mkdir(exist_ok=True)
        (export.dst / name).write_bytes(b"theirs")
        (export.dst / f"{name}.v2").write_bytes(b"also theirs")
        export.run("--conflict", "version")
        assert (export.dst / name).read_bytes() == b"theirs"
        assert filecmp.cmp(export.dst / f"{name}.v3", path, shallow=False)
    export.run("--conflict", "version")
    assert len(list(export.dst.iterdir())) == 6


def test_the_marker_comes_last_in_each_checkpoint(export):
    fill(export)
    child = export.start("--marker", "_SUCCESS")
    seen = 0
    while child.poll() is None:
        for marker in export.dst.glob("ckpt/*/_SUCCESS"):
            name = marker.parent.relative_to(export.dst)
            assert {p.name for p in (export.src / name).iterdir()} <= {p.name for p in marker.parent.iterdir()}
            seen += 1
    child.communicate()
    assert child.returncode == 0
    assert len(list(export.dst.glob("ckpt/*/_SUCCESS"))) == 4


def test_a_marker_is_held_back_while_a_file_of_its_checkpoint_fails(export):
    export.write("c/step-1/a", 10)
    export.write("c/step-1/_SUCCESS", 3)
    export.write("c/step-2/a", 10)
    (export.dst / "c/step-1").mkdir(parents=True)
    (export.dst / "c/step-1/a").write_bytes(b"theirs")
    done = export.run("--marker", "_SUCCESS", code=1)
    assert "CIS4013" in done.stderr
    assert not (export.dst / "c/step-1/_SUCCESS").exists()
    assert (export.dst / "c/step-2/_SUCCESS").exists()
    (export.dst / "c/step-1/a").unlink()
    export.run("--marker", "_SUCCESS")
    assert (export.dst / "c/step-1/_SUCCESS").read_bytes() == (export.src / "c/step-1/_SUCCESS").read_bytes()


def test_links_and_empty_directories_are_reported_and_counted(export):
    export.write("file", 10)
    (export.src / "link").symlink_to("/etc/passwd")
    (export.src / "folder").mkdir()
    os.mkfifo(export.src / "fifo")
    os.link(export.src / "file", export.src / "second name")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(export.src / "socket"))
    out = export.run().stdout
    listener.close()
    for line in ("skipped   link: symbolic link", "skipped   fifo: fifo", "skipped   socket: socket",
                 "skipped   folder: empty directory"):
        assert line in out
    assert export.verdict()["skipped"]["files"] == 4
    assert {p.name for p in export.dst.iterdir()} == {"file", "second name"}


def test_a_name_that_is_not_utf8_fails_by_name_and_the_rest_is_sent(export):
    export.write("good", 10)
    with open(os.fsencode(export.src) + b"/b\xffd", "wb") as f:
        f.write(b"x")
    done = export.run(code=1)
    assert "CIS4007" in done.stderr and "b\\xffd" in done.stderr
    assert export.verdict()["failures"][0]["path"] == "b\\xffd"
    assert (export.dst / "good").exists()


def test_name_with_newlines_is_printed_on_one_line(export):
    export.write("a\n\x1b[2Jb", 10)
    (line,) = [x for x in export.run().stdout.splitlines() if x.startswith("exported")]
    assert line == "exported  a??[2Jb  10 B"
    export.assert_same()


def test_file_too_deep_is_reported_with_its_cause_and_the_rest_is_sent(export):
    """Too deep for a key, and too deep for the kernel's paths."""
    export.write("near", 10)
    deep = os.open(export.src, os.O_RDONLY)
    for level in range(500):
        os.mkdir("x" * 20, dir_fd=deep)
        below = os.open("x" * 20, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
        if level in (10, 100):
            os.close(os.open("file", os.O_CREAT, dir_fd=deep))
    os.close(deep)
    done = export.run(code=1)
    assert "File name too long (CIS1532" in done.stderr and "longer than 1024 bytes (CIS4007" in done.stderr, done.stderr
    assert len([path for path in export.dst.rglob("*") if path.is_file()]) == 2


def test_include_exclude_and_dry_run(export):
    fill(export)
    out = export.run("--include", "ckpt/step-1/**", "--exclude", "*.log", "--dry-run").stdout
    assert out.count("would export") == 16 and not export.dst.exists()
    export.run("--include", "ckpt/step-1/**", "--exclude", "shard-1.pt")
    names = {str(p.relative_to(export.dst)) for p in export.dst.rglob("*") if p.is_file()}
    assert "ckpt/step-1/model.pt" in names and "ckpt/step-1/shard-1.pt" not in names and len(names) == 15


def test_a_sparse_file_arrives_with_its_holes_as_zeros(export):
    path = export.src / "sparse"
    with open(path, "wb") as f:
        f.seek(30 * MIB)
        f.write(b"end")
    export.run()
    export.assert_same()


def test_files_that_are_too_long_for_any_bucket_are_named_and_take_no_memory(export):
    """Sparse, on a file system that lets them be."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", export.src], check=True)
    try:
        export.write("small", 10)
        for name, size in (("over", (5 << 40) + 1), ("far over", 7 << 60)):
            subprocess.run(["truncate", "-s", str(size), export.src / name], check=True)
        done = export.run(code=1)
        assert done.stderr.count("CIS4007") == 2 and {p.name for p in export.dst.iterdir()} == {"small"}, done.stderr
    finally:
        subprocess.run(["umount", export.src], check=True)


def test_a_file_that_grows_beyond_the_memory_of_its_run_while_it_is_waited_for_is_named(export):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", export.src], check=True)
    export.write("first", 10)
    writer = open(export.write("growing", 10), "ab")
    child = export.start()
    try:
        wait_for((export.dst / "first").exists)
        writer.truncate(3 << 40)
        writer.close()
        _, stderr = child.communicate(timeout=60)
        assert child.returncode != 0 and "'growing' grew to 3.00 TiB" in stderr, stderr
    finally:
        writer.close()
        child.kill()
        child.wait()
        subprocess.run(["umount", export.src], check=True)


def test_second_export_of_a_directory_is_refused_while_one_runs(export):
    held = export.write("held", 10)
    with open(held, "ab"):
        child = export.start()
        wait_for(lambda: (export.state / "export/verdict.json").exists())
        done = subprocess.run(export.command(), capture_output=True, text=True, timeout=30)
        assert "CIS4003" in done.stderr and done.returncode != 0
    assert child.wait(timeout=30) == 0
    child.communicate()


def test_a_full_destination_is_exit_code_6_and_the_same_command_goes_on_when_there_is_space(export):
    export.write("a", 6 * MIB)
    export.write("big", 30 * MIB)
    export.dst.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", export.dst], check=True)
    try:
        done = export.run(code=6)
        assert done.stderr.count("CIS1520") == 2 and "/a:" in done.stderr and "/big:" in done.stderr, done.stderr
        assert export.verdict()["state"] == "failed"
        assert not (export.dst / "a").exists() and not (export.dst / "big").exists()
        subprocess.run(["mount", "-o", "remount,size=64m", export.dst], check=True)
        export.run()
        export.assert_same()
    finally:
        subprocess.run(["umount", export.dst], check=True)


@pytest.fixture
def small_state(export):
    """A state directory on a file system of its own, which is soon full."""
    export.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", export.state], check=True)
    yield export
    subprocess.run(["umount", export.state], check=True)


def test_full_state_directory_ends_the_run_by_name_and_a_rerun_with_space_resumes(small_state):
    for i in range(2000):
        small_state.write(f"{'long-' * 20}{i}", 1)
    done = small_state.run(code=6)
    assert "CIS1520" in done.stderr and "export/logbook-" in done.stderr, done.stderr
    assert len(list(small_state.dst.iterdir())) < 2000, "it went on though nothing could be recorded"
    subprocess.run(["mount", "-o", "remount,size=64m", small_state.state], check=True)
    small_state.run()
    small_state.assert_same()


def test_read_only_state_directory_is_reported(small_state):
    small_state.write("a", 1)
    subprocess.run(["mount", "-o", "remount,ro", small_state.state], check=True)
    done = small_state.run(code=4)
    assert "CIS1522" in done.stderr and not small_state.dst.exists()


@pytest.mark.parametrize("limit", [12, 20, 28, 36, 44])
def test_out_of_descriptors_is_said_with_its_id_and_the_next_run_goes_on(export, limit):
    for i in range(200):
        export.write(f"{i}", 10)

    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    done = subprocess.run(export.command(), preexec_fn=few, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or "CIS1616" in done.stderr, (done.returncode, done.stdout, done.stderr)
    assert all("CIS1616" in line for line in done.stderr.splitlines()), done.stderr
    if export.dst.exists():
        export.assert_nothing_half()
    export.run()
    export.assert_same()


def test_bad_words_are_exit_code_2(export):
    for flags in (["--conflict", "maybe"], ["--since", "yesterday"], ["--delete-after", "1h"], ["--concurrency", "9999"]):
        assert export.run(*flags, code=2).stderr
    assert subprocess.run([CISTERN, "export", export.src], capture_output=True).returncode == 2


def test_results_are_json_lines_when_asked(export):
    export.write("a", 10)
    lines = [json.loads(line) for line in export.run("--json").stdout.splitlines()]
    assert [(x["object"], x["result"], x["bytes"]) for x in lines if x["type"] == "object"] == [("a", "exported", 10)]
    assert lines[-1]["type"] == "summary" and lines[-1]["state"] == "done"
