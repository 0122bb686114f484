# SPDX-License-Identifier: Apache-2.0
"""cistern hydrate over file://: what lands, what is refused, what a second run does."""
import concurrent.futures
import contextlib
import json
import os
import socket
import stat
import subprocess

import pytest

from integration.lib.disk import Disk
from paths import CISTERN, files_below
from servers.bucket import KEYS

from .lib import (DONE, EMPTY, ENVIRONMENT, NO_SPACE, NOT_FOUND, SOME_FAILED, USAGE, Bucket, cistern, files, is_tidy, make_source,
                  summary, tree)

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path / "source", small=100)


@pytest.mark.asan
def test_everything_lands_and_the_numbers_agree(tmp_path, source):
    code, end, errors = summary("hydrate", f"file://{source}/", tmp_path / "out")
    assert (code, errors) == (DONE, [])
    assert tree(tmp_path / "out") == tree(source)
    assert end["found"] == end["hydrated"] == end["verified"] + end["size_only"] == len(files_below(source))
    assert end["bytes"] == sum(p.stat().st_size for p in source.rglob("*") if p.is_file())
    assert is_tidy(tmp_path)


def test_files_keep_the_time_of_their_objects(tmp_path, source):
    os.utime(source / "large0", (1_500_000_000, 1_500_000_000))
    assert cistern("hydrate", f"file://{source}/", tmp_path / "out").returncode == DONE
    assert (tmp_path / "out/large0").stat().st_mtime == 1_500_000_000


def test_a_uri_without_a_slash_is_one_object(tmp_path, source):
    assert cistern("hydrate", f"file://{source}/large1", tmp_path / "out").returncode == DONE
    assert tree(tmp_path / "out") == {b"large1": tree(source)[b"large1"]}


def test_include_and_exclude_choose(tmp_path, source):
    assert cistern("hydrate", f"file://{source}/", tmp_path / "out", "--include", "d1/**", "--include", "large*",
                   "--exclude", "large2").returncode == DONE
    want = {n: v for n, v in files(source).items() if n.startswith(b"d1/") or n in (b"large0", b"large1")}
    assert files(tmp_path / "out") == want


def test_a_dry_run_counts_and_writes_nothing(tmp_path, source):
    done = cistern("hydrate", f"file://{source}/", tmp_path / "out", "--dry-run")
    assert done.returncode == DONE
    assert f"found {len(files_below(source))} objects" in done.stdout
    assert not (tmp_path / "out").exists()


def test_existing_directory_keeps_its_other_files_and_its_readers(tmp_path, source):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    (out / "large0").write_text("old")
    with open(out / "large0") as reader:
        assert cistern("hydrate", f"file://{source}/", out, "--overwrite").returncode == DONE
        assert reader.read() == "old"  # renamed over, never truncated
    assert tree(out) == {**tree(source), b"mine": tree(out)[b"mine"]}
    assert (out / "mine").read_text() == "mine"


@pytest.mark.parametrize("theirs", ["another size", "the same size", "a link", "an empty file"])
@pytest.mark.parametrize("name", ["large0", "d0/s0/f0", "empty"])
def test_a_file_that_no_hydration_wrote_is_kept_counted_and_named(tmp_path, source, name, theirs):
    """It was replaced without a word."""
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (source / "empty").write_bytes(b"")
    size = (source / name).stat().st_size
    if theirs == "a link":
        (tmp_path / "elsewhere").write_text("precious")
        (out / name).symlink_to(tmp_path / "elsewhere")
    else:
        (out / name).write_bytes(b"p" * {"another size": size + 1, "the same size": size, "an empty file": 0}[theirs])
        os.utime(out / name, (1e9, 1e9))
    before = (out / name).lstat()
    code, end, errors = summary("hydrate", f"file://{source}/", out)
    assert code == SOME_FAILED
    assert (end["kept"], end["failed"], end["hydrated"]) == (1, 0, end["found"] - 1)
    assert [e["error"]["id"] for e in errors if e.get("object") == name] == ["CIS1527"]
    after = (out / name).lstat()
    assert (before.st_ino, before.st_mtime_ns, before.st_size) == (after.st_ino, after.st_mtime_ns, after.st_size)
    assert "kept 1" in cistern("hydrate", f"file://{source}/", out).stdout
    assert cistern("hydrate", f"file://{source}/", out, "--overwrite").returncode == DONE
    assert tree(out) == tree(source)


def test_a_file_that_a_person_changed_after_a_finished_run_is_kept(tmp_path, source):
    out = tmp_path / "out"
    assert cistern("hydrate", f"file://{source}/", out).returncode == DONE
    (out / "large0").write_text("mine now")
    with open(out / "large1", "r+b") as file:
        file.write(b"!")
    code, end, errors = summary("hydrate", f"file://{source}/", out)
    assert (code, end["kept"]) == (SOME_FAILED, 2)
    assert (out / "large0").read_text() == "mine now" and (out / "large1").read_bytes()[:1] == b"!"


def test_a_file_that_a_person_creates_during_a_run_is_kept(tmp_path):
    with Bucket("p/:2:1000") as bucket:
        out = tmp_path / "out"
        out.mkdir()
        bucket.fault("op=get,key=p/*1,do=latency:1500")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            run = pool.submit(bucket.hydrate, "p/", out)
            while bucket.stats()["get"] < 2:
                pass
            (out / "object-000000001").write_text("mine")
            code, end, _ = run.result()
        assert (code, end["kept"], end["hydrated"]) == (SOME_FAILED, 1, 1)
        assert (out / "object-000000001").read_text() == "mine"


def test_the_same_command_again_gives_the_same_tree(tmp_path, source):
    for _ in range(2):
        assert cistern("hydrate", f"file://{source}/", tmp_path / "out").returncode == DONE
    assert tree(tmp_path / "out") == tree(source)


def test_names_with_blanks_signs_and_line_breaks_land_as_they_are(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ["plain", "with space", "a+b%41", "ünï", "new\nline", "quote'\"", "-dash", ".hidden"]:
        (source / name).write_text(name)
    code, end, errors = summary("hydrate", f"file://{source}/", tmp_path / "out")
    assert code == DONE and errors == []
    assert tree(tmp_path / "out") == tree(source)


def test_special_files_are_skipped_and_reported(tmp_path):
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d/file").write_text("file")
    (source / "d/link").symlink_to("file")
    os.mkfifo(source / "d/fifo")
    os.mknod(source / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    (source / "nowhere").symlink_to("nothing")
    (source / "round").symlink_to("round")
    (source / "out").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        code, end, errors = summary("hydrate", f"file://{source}/", tmp_path / "out")
        assert (code, errors, end["found"], end["skipped"], end["last_skipped"]) == (DONE, [], 2, 6, "socket")
        assert "skipped 6 names that are not regular files" in cistern("hydrate", f"file://{source}/", tmp_path / "again").stdout
    assert files(tmp_path / "out").keys() == {b"d/file", b"d/link"}


def test_a_source_that_is_not_there_is_exit_3(tmp_path):
    done = cistern("hydrate", f"file://{tmp_path}/nothing/", tmp_path / "out")
    assert done.returncode == NOT_FOUND
    assert "nothing" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_source_without_objects_fails_unless_it_may_be_empty(tmp_path, source, flags):
    words = ["hydrate", f"file://{source}/", tmp_path / "out", "--include", "no-such-name", *flags]
    done = cistern(*words)
    assert done.returncode == EMPTY and "include and exclude leave out all" in done.stderr and "CIS1530" in done.stderr
    assert cistern(*words, "--allow-empty").returncode == DONE
    (tmp_path / "empty").mkdir()
    words = ["hydrate", f"file://{tmp_path}/empty/", tmp_path / "out2", *flags]
    done = cistern(*words)
    assert done.returncode == EMPTY and f"file://{tmp_path}/empty/': no object is below this prefix" in done.stderr
    assert cistern(*words, "--allow-empty").returncode == DONE


@pytest.mark.parametrize("words", [["hydrate"], ["hydrate", "--dry-run"], ["ls", "-r"], ["ls", "--sum"]])
def test_uri_without_slash_names_one_object_everywhere(tmp_path, words):
    """With the sibling `data-old/` in the bucket, `data` as a prefix would select five objects, as a directory three."""
    with Bucket("other:1:10") as bucket:
        for key in ("data-old/1", "data-old/2", "data/1", "data/2", "data/3", "lone", "lone/below"):
            bucket.put(key, b"12345")
        verb, *flags = words
        out = [tmp_path / "out"] if verb == "hydrate" else []
        done = cistern(verb, "s3://bench/data", *out, *flags, "--endpoint", bucket.url)
        assert done.returncode == EMPTY, done.stderr
        assert "'s3://bench/data': no object has this key" in done.stderr and "write s3://bench/data/" in done.stderr
        done = cistern(verb, "s3://bench/lone", *out, *flags, "--endpoint", bucket.url)
        assert done.returncode == DONE and ("lone" in done.stdout or "found 1" in done.stdout), done.stderr
        assert "below" not in done.stdout
        done = cistern(verb, "s3://bench/data/", *out, *flags, "--endpoint", bucket.url, "--json")
        assert done.returncode == DONE and (done.stdout.count('"object":') == 3 or '"found":3' in done.stdout), done.stdout


@pytest.mark.parametrize("words", [["hydrate"], ["hydrate", "file:///x"], ["hydrate", "ftp://x/", "y"], ["hydrate", "x", "y"],
                                   ["hydrate", "file:///x/", "y", "--concurency", "3"],
                                   ["hydrate", "file:///x/", "y", "--verify", "twice"],
                                   ["hydrate", "file:///x/", "y", "--include", "[a"], ["hydrat"], ["ls"]])
def test_a_wrong_command_line_is_exit_2_with_a_sentence(tmp_path, words):
    done = subprocess.run([CISTERN, *words], capture_output=True, text=True, cwd=tmp_path, timeout=20, check=False)
    assert done.returncode == USAGE
    assert done.stderr.startswith("cistern: ")
    assert list(tmp_path.iterdir()) == []


def test_two_runs_on_one_target_are_refused(tmp_path, source):
    with subprocess.Popen([CISTERN, "hydrate", f"file://{source}/", tmp_path / "out", "--bandwidth", "2M"],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        while not (tmp_path / ".out.cistern/catalog").exists():
            assert first.poll() is None
        done = cistern("hydrate", f"file://{source}/", tmp_path / "out")
        first.kill()
    assert done.returncode == ENVIRONMENT
    assert "another process" in done.stderr and "CIS1511" in done.stderr


def test_an_unfinished_run_of_another_source_is_refused_until_it_is_given_up(tmp_path, source):
    other = make_source(tmp_path / "other", small=5, large=(), seed=7)
    with subprocess.Popen([CISTERN, "hydrate", f"file://{source}/", tmp_path / "out", "--bandwidth", "2M"],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        while not (tmp_path / ".out.cistern/catalog").exists():
            assert first.poll() is None
        first.kill()
    done = cistern("hydrate", f"file://{other}/", tmp_path / "out")
    assert done.returncode == USAGE and "CIS1503" in done.stderr and str(source) in done.stderr and f"'{tmp_path}/out'" in done.stderr
    assert cistern("hydrate", f"file://{other}/", tmp_path / "out", "--no-resume").returncode == DONE
    assert tree(tmp_path / "out") == tree(other)


@pytest.mark.asan
@pytest.mark.parametrize("name", ["catalog", "journal"])
def test_damage_is_an_error_that_names_the_file_and_never_a_wrong_tree(tmp_path, source, name):
    with subprocess.Popen([CISTERN, "hydrate", f"file://{source}/", tmp_path / "out", "--bandwidth", "20M"],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        state = tmp_path / ".out.cistern"
        while not (state / "catalog").exists() or (state / "journal").stat().st_size < 500:
            assert first.poll() is None
        first.kill()
    whole = (state / name).read_bytes()
    for at in range(64, len(whole) - 64, len(whole) // 12):
        (state / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1:])
        done = cistern("hydrate", f"file://{source}/", tmp_path / "out")
        assert done.returncode == 7, done.stderr
        assert f"'{name}' is damaged" in done.stderr and "--no-resume" in done.stderr
    (state / name).write_bytes(whole)
    assert cistern("hydrate", f"file://{source}/", tmp_path / "out").returncode == DONE
    assert tree(tmp_path / "out") == tree(source)


def test_sigterm_is_exit_8_and_the_same_command_continues(tmp_path, source):
    with subprocess.Popen([CISTERN, "hydrate", f"file://{source}/", tmp_path / "out", "--bandwidth", "20M"],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        journal = tmp_path / ".out.cistern/journal"
        while not journal.exists() or journal.stat().st_size < 400:
            assert first.poll() is None
        first.terminate()
        assert first.wait(60) == 8
        assert "to continue" in first.stderr.read()
    code, end, _ = summary("hydrate", f"file://{source}/", tmp_path / "out")
    assert code == DONE and tree(tmp_path / "out") == tree(source)
    assert end["requests"] < end["found"]  # the first run's objects were not fetched again


@pytest.fixture
def tiny_disk(tmp_path):
    disk = Disk(tmp_path / "tiny", "48M")
    yield disk.path
    disk.unmount()


def test_a_source_that_does_not_fit_is_refused_and_nothing_stays(tmp_path, source, tiny_disk):
    with Bucket("s/:3000:100Ki") as bucket:  # the first page of the listing is too large already
        done = bucket.hydrate("s/", tiny_disk / "out")
        assert done[0] == NO_SPACE and done[1]["found"] == 3000, done
        assert len(done[2]) == 1 and "3000 objects need 293 MiB" in json.dumps(done[2][0]), done
    (source / "huge").write_bytes(os.urandom(64 << 20))
    done = cistern("hydrate", f"file://{source}/", tiny_disk / "out")
    assert done.returncode == NO_SPACE
    assert "does not fit" in done.stderr and "CIS1510" in done.stderr
    assert [p.name for p in tiny_disk.iterdir()] == ["lost+found"]


def test_a_shard_that_does_not_fit_names_its_source(tmp_path, source, tiny_disk):
    for name in ("huge", "vast"):
        (source / name).touch()
        os.truncate(source / name, 64 << 20)
    done = cistern("hydrate", f"file://{source}/", tiny_disk / "out", "--shard", "0/2")
    assert done.returncode == NO_SPACE
    assert f"'file://{source}/' does not fit" in done.stderr, done.stderr


@pytest.mark.asan
def test_disk_that_fills_up_is_exit_6_and_the_run_continues_with_room(tmp_path, tiny_disk):
    filler = tiny_disk / "filler"
    with Bucket("s/:200:100Ki") as bucket:
        words = ["hydrate", "s3://bench/s/", tiny_disk / "out", "--endpoint", bucket.url]
        with subprocess.Popen([CISTERN, *words, "--bandwidth", "4M"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env={**os.environ, **KEYS}) as run:
            while not (tiny_disk / ".out.cistern/catalog").exists():
                assert run.poll() is None
            with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
                while True:
                    f.write(b"z" * (1 << 20))
            assert run.wait(60) == NO_SPACE
            assert "No space left" in run.stderr.read()
        filler.unlink()
        code, end, _ = summary(*words)
        assert code == DONE and end["hydrated"] == 200
        bucket.prefix = "s/"
        assert bucket.objects_are_right(tiny_disk / "out")


def test_progress_in_a_pipe_is_plain_and_json_has_stable_keys(tmp_path, source):
    done = cistern("hydrate", f"file://{source}/", tmp_path / "out", "--json", "--bandwidth", "20M")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    progress = [line for line in lines if line["type"] == "progress"]
    assert progress and {"time", "bytes", "bytes_total", "rate", "objects", "errors"} <= set(progress[0])
    assert "\x1b" not in done.stdout + done.stderr


def test_ls_prints_names_sizes_and_sums(tmp_path, source):
    names = cistern("ls", "-r", f"file://{source}/").stdout.splitlines()
    assert sorted(names) == sorted(n.decode() for n in files(source))
    top = cistern("ls", f"file://{source}/").stdout.splitlines()
    assert sorted(top) == sorted(p.name + ("/" if p.is_dir() else "") for p in source.iterdir())
    lines = [json.loads(x) for x in cistern("ls", "-r", f"file://{source}/", "--json").stdout.splitlines()]
    assert {x["object"]: x["bytes"] for x in lines} == {n.decode(): (source / n.decode()).stat().st_size for n in files(source)}
    assert cistern("ls", "--sum", f"file://{source}/").stdout.startswith(f"found {len(files_below(source))} objects")
    assert len(cistern("ls", "-r", f"file://{source}/", "--max", "5").stdout.splitlines()) == 5


def test_an_object_that_vanishes_is_named_and_the_rest_lands(tmp_path, source):
    names = sorted(files(source))
    with subprocess.Popen([CISTERN, "hydrate", f"file://{source}/", tmp_path / "out", "--bandwidth", "10M", "--json"],
                          stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        while not (tmp_path / ".out.cistern/catalog").exists():
            assert run.poll() is None
        (source / "large2").unlink()
        out, _ = run.communicate(timeout=60)
    errors = [json.loads(x) for x in out.splitlines() if '"type":"error"' in x]
    if run.returncode == DONE:
        pytest.fail("the object was fetched before it vanished: the test is too slow to see anything")
    assert run.returncode == SOME_FAILED
    assert [e["object"] for e in errors if "object" in e] == ["large2"]
    assert files(tmp_path / "out").keys() == set(names) - {b"large2"}
