# SPDX-License-Identifier: Apache-2.0
"""A bucket that changes during a run and afterwards: the run names the changed objects, and the same command makes the
tree equal to the bucket. It fetches only changed objects, also if it is killed."""
import errno
import os
import random
import shutil
import signal
import subprocess

import pytest

from integration.lib.buckets import contents
from paths import BUILD, CISTERN
from servers.answering import Answering
from servers.bucket import KEYS, BucketServer

from .lib import DONE, MISMATCH, SOME_FAILED, TRANSIENT, is_tidy, summary
from .volume_test import Volume

pytestmark = pytest.mark.timeout(300)
asan = pytest.mark.asan  # with which nothing can be preloaded
EVERY = int(os.environ.get("CISTERN_FAIL_EVERY", "0"))
SYNTHETIC = [f"syn/object-{i:09}" for i in range(6)]
LARGE = [f"large/object-{i:09}" for i in range(2)]
PARTS = 3
UPLOADED = ["a/keep", "a/empty", "a/overwritten", "b/overwritten", "gone/for/good", "was", "turns/into"]


class Changing(BucketServer):
    """A bucket of some objects, of which some change while they are read, and some when all is over."""

    def __init__(self, scheme="s3", large=True):
        super().__init__("--objects", "data/syn/:6:3000", *(("--objects", "data/large/:2:20Mi") if large else ()))
        self.scheme, self.names = scheme, {*SYNTHETIC, *UPLOADED, *(LARGE if large else ())}
        for name in UPLOADED:
            self.put("data/" + name, random.Random(name).randbytes(0 if name == "a/empty" else 5000))
        self.uri = f"{scheme}://bench/data/"
        self.flags = ["--endpoint", self.url, "--path-style" if scheme == "s3" else "--anonymous", "--retries", "3"]

    def change_while_read(self, large=True):
        self.fault(f"op=get,key=data/{SYNTHETIC[1]},nth=1,do=change", f"op=get,key=data/{SYNTHETIC[2]},nth=1,do=remove",
                   *([f"op=get,key=data/{LARGE[1]},nth=2,do=change"] if large else ()))
        self.names.remove(SYNTHETIC[2])
        self.changed = {SYNTHETIC[1], *([LARGE[1]] if large else ())}

    def change_what_landed(self):
        for name in ("a/overwritten", "b/overwritten", "new", "was/folder/now", "turns"):
            self.put("data/" + name, random.Random(name + "!").randbytes(5000))
            self.changed.add(name)
        for name in ("gone/for/good", "was", "turns/into"):
            self.remove("data/" + name)
        self.names = self.names - {"gone/for/good", "was", "turns/into"} | self.changed

    def truth(self):
        return {name: self.content("data/" + name) for name in self.names}

    def got(self):
        """The keys of all GETs, in their order."""
        return [key.removeprefix("data/") for key in self.ask("/_order").decode().split()]


class Folder:
    def __init__(self, top, server):
        self.server, self.out = server, top / "out"

    def run(self, *flags):
        return summary("hydrate", self.server.uri, self.out, "--delete", *self.server.flags, *flags)

    def is_left_clean(self):
        return is_tidy(self.out.parent)


class Shared(Folder):
    """A user's directory, with the user's files beside the objects."""

    def __init__(self, top, server):
        super().__init__(top, server)
        (self.out / "gone/for").mkdir(parents=True)
        (self.out / "gone/mine").write_bytes(b"mine")
        self.mine = {"gone/mine": b"mine"}


class Filled(Folder):
    def __init__(self, top, server, **more):
        super().__init__(top, server)
        self.volume = Volume(top, {"uri": server.uri, "endpoint": server.url, "pathStyle": server.scheme == "s3",
                                   "identity": {"method": "anonymous"}, "retry": {"maxAttempts": 3}, **more})
        self.out = self.volume.folder / "data"

    def run(self, *flags):
        return summary("hydrate", "--volume", self.volume.folder, *flags)

    def is_left_clean(self):
        return not (self.volume.folder / "anew").exists() and self.volume.status()["phase"] == "done"


def contents_and_truth(target, server):
    return contents(target.out), server.truth() | getattr(target, "mine", {})


@asan
@pytest.mark.parametrize("kind", [Folder, Shared, Filled])
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_the_same_command_fetches_what_changed_and_drops_what_is_gone(tmp_path, scheme, kind):
    with Changing(scheme) as server:
        target = kind(tmp_path, server)
        server.change_while_read()
        code, end, errors = target.run()
        assert (code, end["failed"]) == (SOME_FAILED, 3), errors
        assert sorted(e["object"] for e in errors[:-1]) == sorted([SYNTHETIC[1], SYNTHETIC[2], LARGE[1]])
        assert errors[-1]["error"]["id"] == "CIS1513" and "list the source again" in errors[-1]["error"]["message"]
        server.change_what_landed()
        seen = len(server.got())
        code, end, errors = target.run()
        assert (code, errors) == (DONE, [])
        assert end["found"] == end["hydrated"] == end["verified"] + end.get("same", 0) == len(server.names)
        got = server.got()[seen:]
        assert set(got) == server.changed
        assert len(got) - end["hedged"] == len(server.changed) + PARTS - 1
        have, want = contents_and_truth(target, server)
        assert have == want
        assert not (target.out / "gone/for").exists() and (target.out / "turns").is_file()
        assert target.is_left_clean()


@asan
def test_the_old_version_of_a_changed_object_that_cannot_be_fetched_is_removed(tmp_path):
    """In staged mode: users see the directory only under its final name."""
    with Changing(large=False) as server:
        target = Folder(tmp_path, server)
        server.fault("op=get,key=data/syn/*,do=change")
        code, _, errors = target.run("--max-errors", "2", "--concurrency", "1")
        assert code == MISMATCH and "gave up" in errors[-1]["error"]["message"] and not target.out.exists()
        server.no_faults()
        server.put("data/a/overwritten", b"other bytes")
        server.fault("op=get,key=data/a/overwritten,do=status:400")
        code, end, errors = target.run()
        assert (code, end["failed"]) == (SOME_FAILED, 1), errors
        assert contents(target.out) == {k: v for k, v in server.truth().items() if k != "a/overwritten"}
        server.no_faults()
        assert target.run()[0] == DONE
        assert contents(target.out) == server.truth()


@asan
def test_the_parts_of_an_object_that_failed_otherwise_are_kept_in_a_volume(tmp_path):
    with Changing() as server:
        target = Filled(tmp_path, server)
        server.fault(f"op=get,key=data/{SYNTHETIC[1]},nth=1,do=change",
                     f"op=get,key=data/{LARGE[0]},after=1,do=status:400")
        code, end, errors = target.run()
        assert (code, end["failed"]) == (SOME_FAILED, 2), errors
        server.no_faults()
        seen = len(server.got())
        code, end, errors = target.run()
        assert (code, errors) == (DONE, [])
        got = server.got()[seen:]
        assert set(got) == {SYNTHETIC[1], LARGE[0]} and got.count(LARGE[0]) - end["hedged"] == PARTS - 1
        assert contents(target.out) == server.truth()


@asan
def test_file_that_a_user_changed_is_kept(tmp_path):
    with Changing(large=False) as server:
        target = Folder(tmp_path, server)
        server.change_while_read(large=False)
        assert target.run()[0] == SOME_FAILED
        (target.out / "b/overwritten").write_bytes(b"m" * 5000)  # as long as it was
        for name in ("a/overwritten", "b/overwritten"):
            server.remove("data/" + name)
            server.names.remove(name)
        old = server.ask("/_order").split()
        assert target.run()[0] == DONE
        assert len(server.ask("/_order").split()) == len(old) + 1
        assert contents(target.out) == server.truth() | {"b/overwritten": b"m" * 5000}


@asan
@pytest.mark.parametrize("kind", [Folder, Filled])
@pytest.mark.parametrize("skips", [False, True])
def test_nothing_is_left_of_an_object_that_is_gone_where_a_kill_took_the_record_of_it(tmp_path, kind, skips):
    with Changing(large=False) as server:
        target = kind(tmp_path, server, **({"onMissing": "skip"} if skips and kind is Filled else {}))
        server.fault("op=get,key=data/a/*,do=status:400")
        assert target.run(*(["--max-errors", "1"] if kind is Folder else []))[0] != DONE
        assert kind is Filled or not target.out.exists()  # as after a kill: what is to be DIR has no name yet
        at = target.out if kind is Filled else tmp_path / ".out.cistern/data"
        (at / "a").mkdir(exist_ok=True)
        (at / "a/keep").write_bytes(b"half of")
        server.no_faults()
        server.remove("data/a/keep")
        server.names.remove("a/keep")
        code, end, errors = target.run(*(["--skip-missing"] if skips and kind is Folder else []))
        assert (code, end["missing"], end["failed"]) == ((DONE, 1, 0) if skips else (SOME_FAILED, 0, 1)), errors
        assert contents(target.out) == server.truth()


@asan
@pytest.mark.parametrize("writes", ["hydration", "user"])
def test_unrecorded_file_of_changed_object_is_replaced_only_if_it_has_the_time_of_the_old_one(tmp_path, writes):
    """A killed run leaves a file that the journal does not record. Its object then changes."""
    with Changing(large=False) as server:
        target, name = Folder(tmp_path, server), "a/keep"
        probe = Folder(tmp_path / "probe", server)
        assert probe.run()[0] == DONE
        server.fault(f"op=get,key=data/{name},do=status:400")
        assert target.run()[0] == SOME_FAILED
        server.no_faults()
        shutil.copy2(probe.out / name, target.out / name)
        if writes == "user":
            os.utime(target.out / name, ns=(1, 1))
        server.put("data/" + name, b"another version")
        first, (code, _, errors) = target.run()[0], target.run()
        if writes == "user":
            assert (first, code) == (SOME_FAILED, SOME_FAILED) and errors[0]["error"]["id"] == "CIS1527"
            return
        assert (first, code, errors) == (MISMATCH, DONE, [])
        assert contents(target.out) == server.truth()
        assert target.is_left_clean()


@asan
@pytest.mark.parametrize("kind", [Folder, Filled])
@pytest.mark.parametrize("stays, goes, removed", [("b/overwritten", "b", "b"), ("b", "b/overwritten", "b/overwritten"),
                                                  ("a/keep", "a//b", "a//b")])
def test_a_name_that_is_mended_in_the_bucket_is_mended_by_the_same_command(tmp_path, kind, stays, goes, removed):
    with Changing(large=False) as server:
        for name in (stays, goes):
            server.put("data/" + name, b"bytes of " + name.encode())
        target = kind(tmp_path, server)
        code, end, errors = target.run()
        assert (code, end["failed"]) == (SOME_FAILED, 1), errors
        assert "list the source again" in errors[-1]["error"]["message"]
        server.remove("data/" + removed)
        server.names = server.names - {removed} | {stays}
        code, end, errors = target.run()
        assert (code, errors) == (DONE, [])
        assert contents(target.out) == server.truth()
        assert target.is_left_clean()


@asan
def test_an_object_that_changes_again_is_fetched_by_the_next_run(tmp_path):
    with Changing(large=False) as server:
        target = Folder(tmp_path, server)
        server.change_while_read(large=False)
        assert target.run()[0] == SOME_FAILED
        server.fault(f"op=get,key=data/{SYNTHETIC[1]},nth=1,do=change")
        assert target.run()[0] == MISMATCH
        seen = len(server.got())
        assert target.run()[0] == DONE
        assert server.got()[seen:] == [SYNTHETIC[1]]
        assert contents(target.out) == server.truth()


@asan
def test_a_new_listing_that_fails_takes_nothing_away(tmp_path):
    with Changing(large=False) as server:
        target = Folder(tmp_path, server)
        server.change_while_read(large=False)
        assert target.run()[0] == SOME_FAILED
        have = contents(target.out)
        server.fault("op=list,times=2,do=status:500")
        for _ in range(2):
            assert target.run("--retries", "1")[0] == TRANSIENT
            assert contents(target.out) == have
        seen = len(server.got())
        assert target.run()[0] == DONE
        assert server.got()[seen:] == [SYNTHETIC[1]]
        assert contents(target.out) == server.truth()


@asan
@pytest.mark.parametrize("etag", ['"one"', None])
def test_object_without_a_validator_is_compared_by_size_and_time(tmp_path, etag):
    told = f"<ETag>{etag}</ETag>" if etag else ""
    keys = "".join(f"<Contents><Key>p/k{i}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>3</Size>{told}</Contents>"
                   for i in range(8))
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode()
    got, gone = [], {"k3"}

    def answer(request):
        if "list-type" in request.path:
            return 200, {}, listing
        name = request.path.split("?")[0].rsplit("/", 1)[1]
        got.append(name)
        if name in gone:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        return 200, {"etag": etag} if etag else {}, b"abc"

    with Answering(answer) as server:
        words = ["hydrate", "s3://bench/p/", tmp_path / "out", "--endpoint", server.url, "--path-style"]
        assert summary(*words)[0] == SOME_FAILED
        got.clear()
        gone.clear()
        assert summary(*words)[0] == DONE
    assert set(got) == {"k3"}
    assert contents(tmp_path / "out") == {f"k{i}": b"abc" for i in range(8)}


# ---- killed, or a call that fails, at any moment of it -----------------------------------------------------------------

CALLS = {"kill": {"CISTERN_FAIL_KILL": "1"}, "EIO": {"CISTERN_FAIL_ERRNO": str(errno.EIO)}}


class Copies:
    """A hydration that has failed of changed objects, as often as it is wanted."""

    def __init__(self, kind, top, server):
        self.kind, self.top, self.server = kind, top, server
        self.first = kind(top / "first", server)
        server.change_while_read(large=False)
        assert self.first.run()[0] == SOME_FAILED
        server.change_what_landed()

    def copy(self, name):
        shutil.copytree(self.top / "first", self.top / name, symlinks=True)
        target = self.kind.__new__(self.kind)
        target.__dict__.update(self.first.__dict__)
        target.out = self.top / name / self.first.out.relative_to(self.top / "first")
        words = ["hydrate", self.server.uri, target.out, "--delete", *self.server.flags, "--no-io-uring", "--workers=1"]
        if self.kind is Filled:
            words = ["hydrate", "--volume", target.out.parent]
        target.words = [CISTERN, *words]
        return target


def run(target, **env):
    preload = {"LD_PRELOAD": str(BUILD / "tests/libfail_call.so")} if env else {}
    return subprocess.run(target.words, capture_output=True, text=True, timeout=60, check=False,
                          env=os.environ | KEYS | preload | env)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [Folder, Filled])
@pytest.mark.parametrize("what", CALLS)
def test_after_a_failure_at_any_call_the_same_command_completes(tmp_path, kind, what):
    with Changing(large=False) as server:
        copies, count = Copies(kind, tmp_path, server), tmp_path / "count"
        whole = copies.copy("whole")
        assert run(whole, CISTERN_FAIL_COUNT=str(count)).returncode == DONE
        total, truth = int(count.read_text()), server.truth()
        assert total > 50 and contents(whole.out) == truth
        for n in range(1, total + 1, EVERY or 7):
            target, seen = copies.copy(f"copy-{n}"), len(server.got())
            hurt = run(target, CISTERN_FAIL_AT=str(n), **CALLS[what])
            told = f"call {n} of {total}: exit {hurt.returncode}: {hurt.stderr}"
            assert hurt.returncode in (DONE, -signal.SIGKILL) if what == "kill" else 0 <= hurt.returncode <= 10, told
            is_whole = contents(target.out) == truth  # then it died tidying up, and what it knew is gone
            healed = run(target)
            assert healed.returncode == DONE, f"{told}\nthen: {healed.stderr}"
            if what == "kill" and not is_whole:  # a file that cannot be looked at is brought again
                assert set(server.got()[seen:]) <= server.changed, told
            assert contents(target.out) == truth and not (target.out / "gone").exists(), told
            shutil.rmtree(target.out.parent)
