# SPDX-License-Identifier: Apache-2.0
"""`cistern hydrate` of a finished DIR: it fetches what changed, keeps what a person changed, and deletes only on request."""
import os
import shutil
import subprocess
import time

import pytest

from integration.lib.buckets import contents
from integration.lib.control import eventually
from paths import CISTERN
from servers.bucket import KEYS as STORE_KEYS, BucketServer

from .lib import DONE, SOME_FAILED, cistern, summary

pytestmark = pytest.mark.timeout(120)
KEYS = [f"d{i % 3}/f{i}" for i in range(30)]


class Synced:
    """A bucket, and a DIR that a first run has filled."""

    def __init__(self, server, top, scheme, exists):
        self.server, self.out = server, top / "out"
        self.words = ["hydrate", f"{scheme}://bench/p/", self.out, "--endpoint", server.url,
                      "--path-style" if scheme == "s3" else "--anonymous"]
        self.keys = set(KEYS)
        for key in KEYS:
            server.put("p/" + key, f"content of {key}".encode())
        if exists:
            self.out.mkdir()
        assert self.run()[0] == DONE

    def run(self, *flags):
        self.seen = len(self.server.ask("/_order").split())
        return summary(*self.words, *flags)

    def got(self):
        return [key.removeprefix("p/") for key in self.server.ask("/_order").decode().split()[self.seen:]]

    def put(self, key, data):
        self.server.put("p/" + key, data)
        self.keys.add(key)

    def remove(self, key):
        self.server.remove("p/" + key)
        self.keys.remove(key)

    def truth(self):
        return {key: self.server.content("p/" + key) for key in self.keys}


@pytest.fixture(params=[("s3", False), ("s3", True), ("gs", False)], ids=["s3", "s3-in-place", "gs"])
def synced(tmp_path, request):
    with BucketServer() as server:
        yield Synced(server, tmp_path, *request.param)


def counts(end):
    return tuple(end[name] for name in ("new", "changed", "same", "kept", "deleted"))


def test_unchanged_tree_costs_no_get(synced):
    before = {p: p.stat() for p in synced.out.rglob("*")}
    for _ in range(2):
        code, end, errors = synced.run()
        assert (code, errors, counts(end), synced.got()) == (DONE, [], (0, 0, 30, 0, 0), [])
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in before} == {p: (s.st_ino, s.st_mtime_ns) for p, s in before.items()}


def test_only_changed_and_new_objects_are_fetched(synced):
    synced.put("d0/f3", b"another version")
    synced.put("new/one", b"new")
    (synced.out / "d1/f1").unlink()
    code, end, errors = synced.run()
    assert (code, errors, counts(end)) == (DONE, [], (2, 1, 28, 0, 0))
    assert sorted(synced.got()) == ["d0/f3", "d1/f1", "new/one"]
    assert contents(synced.out) == synced.truth()


@pytest.mark.tsan
def test_every_file_of_a_large_tree_is_compared(tmp_path):
    """So many that several threads look at them."""
    with BucketServer("--objects", "many/:9000:10") as server:
        out = tmp_path / "out"
        words = ["hydrate", "s3://bench/many/", out, "--endpoint", server.url, "--path-style"]
        assert summary(*words)[0] == DONE
        paths = sorted(p for p in out.rglob("*") if p.is_file())
        lost, stale = paths[::1000], paths[500::1000]
        for path in lost:
            path.unlink()
        for path in stale:
            path.write_bytes(b"a person's")
        seen = len(server.ask("/_order").split())
        code, end, _ = summary(*words)
        assert (code, counts(end)) == (SOME_FAILED, (9, 0, 8982, 9, 0))
        code, end, _ = summary(*words, "--overwrite")
        assert (code, counts(end)) == (DONE, (0, 9, 8991, 0, 0))
        assert len(server.ask("/_order").split()) == seen + 18


def killed_while_it_fetches(synced, key):
    """A run that has begun to read the object, and is killed then."""
    synced.server.fault(f"op=get,key=p/{key},do=stall:1")
    synced.seen = len(synced.server.ask("/_order").split())
    run = subprocess.Popen([CISTERN, *map(str, synced.words)], env={**os.environ, **STORE_KEYS},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(lambda: key in synced.got())
    run.kill()
    run.wait()
    synced.server.no_faults()


@pytest.mark.parametrize("size", [10, 20 << 20])
def test_changed_file_stays_until_its_new_version_is_complete(synced, size):
    synced.put("d0/f3", b"v" * size)
    synced.put("d0/f6", b"v" * size)
    for _ in range(2):
        killed_while_it_fetches(synced, "d0/f3")
        assert (synced.out / "d0/f3").read_bytes() == b"content of d0/f3"
    synced.remove("d0/f3")
    assert synced.run()[0] == SOME_FAILED, "the listing of the killed run has the object"
    code, end, errors = synced.run()
    assert (code, errors, end["gone"]) == (DONE, [], 1), "the old version is still known as hydrated"
    assert contents(synced.out) == synced.truth() | {"d0/f3": b"content of d0/f3"}
    assert synced.run("--delete")[1]["deleted"] == 1 and contents(synced.out) == synced.truth()


def test_changed_file_that_a_person_changes_before_its_new_version_is_kept(synced):
    synced.put("d0/f3", b"another version")
    killed_while_it_fetches(synced, "d0/f3")
    (synced.out / "d0/f3").write_text("mine")
    code, end, _ = synced.run()
    assert (code, end["kept"], (synced.out / "d0/f3").read_text()) == (SOME_FAILED, 1, "mine")


@pytest.mark.parametrize("new, stays", [(12, True), (20, False)])
def test_changed_file_is_removed_first_only_if_the_disk_cannot_hold_both_versions(tmp_path, new, stays):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", disk], check=True)
    try:
        with BucketServer() as server:
            synced = Synced(server, disk, "s3", True)
            synced.put("large", b"1" * (15 << 20))
            assert synced.run()[0] == DONE
            synced.put("large", b"2" * (new << 20))
            killed_while_it_fetches(synced, "large")
            assert (disk / "out/large").exists() == stays
            assert synced.run()[0] == DONE
            assert contents(synced.out) == synced.truth()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_version_of_the_same_size_and_second_is_fetched(synced):
    """Only the ETag or generation that the first run recorded shows it."""
    for attempt in range(5):
        for version in (b"one", b"two"):
            synced.put("twice", version)
            if version == b"one":
                assert synced.run()[0] == DONE
        if int((synced.out / "twice").stat().st_mtime) == int(time.time()):
            break
    code, end, _ = synced.run()
    assert (code, synced.got(), end["changed"]) == (DONE, ["twice"], 1)
    assert (synced.out / "twice").read_bytes() == b"two"


def test_files_of_a_person_are_kept_unless_overwrite(synced):
    (synced.out / "d0/f0").write_text("mine")
    (synced.out / "d0/f3").write_text("mine too")
    (synced.out / "own").write_text("own")
    synced.put("d0/f3", b"another version")
    for _ in range(2):
        code, end, errors = synced.run("--delete")
        assert (code, counts(end), synced.got()) == (SOME_FAILED, (0, 0, 28, 2, 0), [])
        assert {e["error"]["id"] for e in errors} == {"CIS1527", "CIS1529"}
    assert contents(synced.out) == synced.truth() | {"d0/f0": b"mine", "d0/f3": b"mine too", "own": b"own"}
    synced.put("later", b"later")
    assert synced.run()[0] == SOME_FAILED and synced.got() == ["later"], "a kept file does not stop the sync"
    code, end, _ = synced.run("--overwrite")
    assert (code, counts(end), sorted(synced.got())) == (DONE, (0, 2, 29, 0, 0), ["d0/f0", "d0/f3"])
    assert contents(synced.out) == synced.truth() | {"own": b"own"}


def test_gone_objects_are_deleted_only_on_request(synced):
    for key in ("d0/f0", "d0/f3", "d1/f1"):
        synced.remove(key)
    (synced.out / "d1/f1").write_text("mine")
    for _ in range(2):
        code, end, _ = synced.run()
        assert (code, counts(end), end["gone"]) == (DONE, (0, 0, 27, 0, 0), 2)
    assert (synced.out / "d0/f0").exists()
    code, end, _ = synced.run("--delete")
    assert (code, counts(end), end["gone"]) == (DONE, (0, 0, 27, 0, 2), 0)
    assert contents(synced.out) == synced.truth() | {"d1/f1": b"mine"}
    assert synced.run("--delete")[1]["deleted"] == 0


def test_list_of_gone_files_has_a_version_and_a_newer_one_is_refused_and_kept(synced):
    gone = synced.out.parent / ".out.cistern/gone"
    synced.remove("d0/f0")
    assert synced.run()[1]["gone"] == 1
    head, records = gone.read_bytes().split(b"\0", 1)
    assert head == b"cistern-gone 1" and records.endswith(b" d0/f0\0")
    newer = b"cistern-gone 2\0" + records
    gone.write_bytes(newer)
    code, _, errors = synced.run("--delete")
    assert code != DONE and errors[-1]["error"]["id"] == "CIS1502", errors
    assert "'gone': format 2" in errors[-1]["error"]["message"] and gone.read_bytes() == newer
    assert (synced.out / "d0/f0").exists()
    gone.write_bytes(records)  # of the format before versions
    code, end, _ = synced.run("--delete")
    assert (code, end["deleted"]) == (DONE, 1)


def test_without_a_record_size_and_time_decide(synced):
    shutil.rmtree(synced.out.parent / ".out.cistern")
    synced.put("new", b"new")
    code, end, errors = synced.run()
    assert (code, errors, counts(end), synced.got()) == (DONE, [], (1, 0, 30, 0, 0), ["new"])
    assert synced.run()[1]["same"] == 31


def test_another_source_may_follow_into_the_directory(synced):
    synced.server.put("q/x", b"x")
    words = [word if "://bench" not in str(word) else word.replace("/p/", "/q/") for word in map(str, synced.words)]
    assert summary(*words)[0] == DONE
    assert contents(synced.out) == synced.truth() | {"x": b"x"}


def test_directory_that_was_removed_is_filled_again(synced):
    shutil.rmtree(synced.out)
    assert synced.run()[0] == DONE
    assert contents(synced.out) == synced.truth()


def test_summary_names_the_flag_that_deletes(synced):
    synced.remove("d0/f0")
    told = cistern(*synced.words).stdout.splitlines()
    assert told[1] == "synced: new 0, changed 0, same 29, kept 0, deleted 0; 1 files stay whose objects are gone: --delete removes them"
    assert sorted(os.listdir(synced.out.parent)) == [".out.cistern", "out"]


def test_first_run_into_an_empty_directory_fetches_at_once(tmp_path):
    (tmp_path / "out").mkdir()
    with BucketServer() as server:
        server.put("p/a", b"a")
        code, end, _ = summary("hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", server.url)
    assert code == DONE and "same" not in end
