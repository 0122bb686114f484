# SPDX-License-Identifier: Apache-2.0
"""A marker in the bucket means that all of its checkpoint is there, whatever happens to the files while they are sent."""

import json
import os
import shutil
import subprocess
import time

import pytest

from integration.lib.kills import PRELOAD
from paths import CISTERN
from servers.bucket import KEYS

MANY = 300  # more than are open at once


class Checkpoints:
    def __init__(self, bucket, top):
        self.bucket, self.top, self.src = bucket, top, top / "src"

    def write(self, *names, content=b"x"):
        for name in names:
            (self.src / name).parent.mkdir(parents=True, exist_ok=True)
            (self.src / name).write_bytes(content)

    def start(self, *flags, to="s3://bench/p/", **env):
        words = [CISTERN, "export", "--endpoint", self.bucket.url, "--path-style", "--state", self.top / "state", "--settle",
                 "0", "--concurrency", "1", "--retries", "1000", "--marker", "DONE", *flags, self.src, to]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | KEYS | env)

    def end(self, child, code):
        out, err = child.communicate(timeout=120)
        assert child.returncode == code, (child.returncode, out, err)
        return err

    def run(self, *flags, code=0, **env):
        return self.end(self.start(*flags, **env), code)

    def kill_at(self, fault):
        """A run that is killed once the bucket has answered with the fault."""
        self.bucket.fault(fault)
        child = self.start()
        wait_for(lambda: self.bucket.fired()[0] > 0 or child.poll() is not None)
        child.kill()
        self.end(child, -9)
        self.bucket.no_faults()

    def changed_while_sent(self, change, code=1):
        """The first PUT is refused until `change` was made; returns what the run wrote to stderr."""
        self.bucket.fault("op=put,do=status:503:0")
        child = self.start()
        wait_for(lambda: self.bucket.fired()[0] > 0 or child.poll() is not None)
        change()
        self.bucket.no_faults()
        return self.end(child, code)

    def verdict(self):
        return json.loads((self.top / "state/export/verdict.json").read_text())

    def there(self):
        return set(self.bucket.uploads())


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def checkpoints(bucket, tmp_path):
    return Checkpoints(bucket, tmp_path)


def test_files_removed_before_they_were_opened_fail_the_run_and_bar_the_marker(checkpoints):
    names = [f"step-1/{i:03}" for i in range(MANY)]
    checkpoints.write(*names, "step-2/a")
    told = checkpoints.changed_while_sent(lambda: [(checkpoints.src / name).unlink() for name in names[200:]])
    assert "CIS4015" in told and "step-1/200" in told and "CIS4013" in told, told
    assert "p/step-1/DONE" not in checkpoints.there() and "p/step-2/DONE" in checkpoints.there()
    assert checkpoints.verdict()["state"] == "failed"
    checkpoints.run()
    assert "p/step-1/DONE" in checkpoints.there()


def test_file_removed_from_a_directory_without_a_marker_fails_the_run(checkpoints):
    names = [f"{i:03}" for i in range(MANY)]
    checkpoints.write(*names)
    told = checkpoints.changed_while_sent(lambda: (checkpoints.src / "250").unlink())
    assert "CIS4015" in told and "250" in told, told


CHANGES = {
    "a file removed": lambda step: (step / "b").unlink(),
    "a file renamed": lambda step: (step / "b").rename(step / "c"),
    "a file replaced by a link": lambda step: ((step / "b").unlink(), (step / "b").symlink_to("a")),
    "a file added": lambda step: (step / "c").write_bytes(b"late"),
    "a file added deep below": lambda step: ((step / "x/y").mkdir(parents=True), (step / "x/y/c").write_bytes(b"late")),
    "the directory renamed": lambda step: step.rename(step.with_name("final")),
    "the directory removed": shutil.rmtree,
    "the directory replaced by a link": lambda step: (step.rename(step.with_name("was")), step.symlink_to("was")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("own", [False, True], ids=["marker of ours", "marker of the user's"])
def test_checkpoint_that_changes_while_it_is_sent_gets_no_marker(checkpoints, change, own):
    checkpoints.write("step-1/a", "step-1/b", *(["step-1/DONE"] if own else []))
    told = checkpoints.changed_while_sent(lambda: CHANGES[change](checkpoints.src / "step-1"))
    assert "CIS4013" in told and "step-1" in told, told
    assert "p/step-1/DONE" not in checkpoints.there() and checkpoints.verdict()["state"] == "failed"
    checkpoints.run(code=9 if change == "the directory removed" else 0)  # then it is empty


def test_file_replaced_before_it_was_sent_is_sent_as_it_is_now_and_the_marker_with_it(checkpoints):
    def replace():
        (checkpoints.src / "other").write_bytes(b"another")
        (checkpoints.src / "other").rename(checkpoints.src / "step-1/b")

    checkpoints.write("step-1/a", "step-1/b")
    checkpoints.changed_while_sent(replace, code=0)
    assert checkpoints.bucket.content("p/step-1/b") == b"another" and "p/step-1/DONE" in checkpoints.there()


def test_checkpoint_with_a_directory_that_cannot_be_read_gets_no_marker(checkpoints):
    checkpoints.write("step-1/a", "step-1/sub/b")
    told = checkpoints.run(code=1, CISTERN_FAIL_NAME="fdopendir", CISTERN_FAIL_AT="3", **PRELOAD)
    assert "step-1/sub" in told and "CIS4013" in told, told
    assert "p/step-1/a" in checkpoints.there() and "p/step-1/DONE" not in checkpoints.there()
    checkpoints.run()
    assert {"p/step-1/sub/b", "p/step-1/DONE"} <= checkpoints.there()


def test_export_stopped_between_the_last_file_and_the_marker_is_not_done(checkpoints):
    """The flush of the last file is what SIGTERM finds under way."""
    checkpoints.write("step-1/a")
    to = checkpoints.top / "dst"
    child = checkpoints.start(to=f"file://{to}", CISTERN_SLOW_FSYNC="1500", **PRELOAD)
    wait_for(lambda: (to / "step-1/a").exists() or child.poll() is not None)
    child.terminate()
    checkpoints.end(child, 8)
    assert not (to / "step-1/DONE").exists() and checkpoints.verdict()["state"] == "running"
    assert checkpoints.verdict()["pending"]["files"] == 1
    checkpoints.end(checkpoints.start(to=f"file://{to}"), 0)
    assert (to / "step-1/DONE").exists() and checkpoints.verdict()["state"] == "done"


def test_overwrite_is_refused_where_an_old_marker_can_neither_be_seen_nor_deleted(checkpoints):
    checkpoints.write("step-1/a", content=b"old")
    checkpoints.run("--conflict", "overwrite")
    checkpoints.write("step-1/a", content=b"new!")
    checkpoints.bucket.fault(*(f"op={op},do=status:403" for op in ("head", "get", "list", "delete")))
    told = checkpoints.run("--conflict", "overwrite", code=4)
    assert "CIS4014" in told, told
    checkpoints.bucket.no_faults()
    assert checkpoints.bucket.content("p/step-1/a") == b"old" and "p/step-1/DONE" in checkpoints.there()


@pytest.mark.parametrize("own", [False, True], ids=["marker of ours", "marker of the user's"])
def test_old_marker_is_gone_before_our_own_version_is_replaced(checkpoints, own):
    checkpoints.write("step-1/a", "step-1/b", *(["step-1/DONE"] if own else []), content=b"old")
    checkpoints.run()
    assert "p/step-1/DONE" in checkpoints.there()
    checkpoints.write("step-1/a", "step-1/b", content=b"new!")
    checkpoints.bucket.fault("op=put,key=p/step-1/b,do=status:503:0")
    child = checkpoints.start()
    wait_for(lambda: checkpoints.bucket.content("p/step-1/a") == b"new!" or child.poll() is not None)
    assert checkpoints.bucket.content("p/step-1/b") == b"old" and "p/step-1/DONE" not in checkpoints.there()
    child.kill()
    checkpoints.end(child, -9)
    checkpoints.bucket.no_faults()
    checkpoints.run()
    assert checkpoints.bucket.content("p/step-1/b") == b"new!" and "p/step-1/DONE" in checkpoints.there()


def test_marker_is_withdrawn_though_a_kill_came_between_its_record_and_its_end(checkpoints):
    checkpoints.write("step-1/a", content=b"old")
    checkpoints.run()
    checkpoints.write("step-1/a", content=b"new!")
    checkpoints.kill_at("op=delete,do=status:503:0")
    checkpoints.bucket.fault("op=put,key=p/step-1/a,do=status:403:0")
    checkpoints.run(code=4)
    assert checkpoints.bucket.content("p/step-1/a") == b"old" and "p/step-1/DONE" not in checkpoints.there()
    checkpoints.bucket.no_faults()
    checkpoints.run()
    assert "p/step-1/DONE" in checkpoints.there()


@pytest.mark.parametrize("own", [False, True], ids=["marker of ours", "marker of the user's"])
def test_below_a_marker_of_another_nothing_is_replaced(checkpoints, own):
    checkpoints.write("step-1/a", *(["step-1/DONE"] if own else []), content=b"old")
    checkpoints.run()
    checkpoints.bucket.put("p/step-1/DONE", b"theirs")
    checkpoints.write("step-1/a", content=b"new!")
    told = checkpoints.run(code=2)
    assert "CIS4409" in told and "step-1/a" in told, told
    assert checkpoints.bucket.content("p/step-1/a") == b"old"
    assert checkpoints.bucket.content("p/step-1/DONE") == b"theirs"


@pytest.mark.parametrize("own", [False, True], ids=["marker of ours", "marker of the user's"])
def test_new_version_beside_the_old_one_leaves_the_marker_where_it_is(checkpoints, own):
    checkpoints.write("step-1/a", *(["step-1/DONE"] if own else []), content=b"old")
    checkpoints.run("--conflict", "version")
    checkpoints.write("step-1/a", content=b"new!")
    checkpoints.bucket.fault("op=delete,do=status:403")
    checkpoints.run("--conflict", "version")
    assert checkpoints.bucket.content("p/step-1/a") == b"old"
    assert len(checkpoints.there()) == 3 and "p/step-1/DONE" in checkpoints.there()


def test_with_write_permission_only_checkpoints_are_sent_and_nothing_is_added_below_their_marker(checkpoints):
    checkpoints.write("step-1/a", content=b"old")
    checkpoints.bucket.fault(*(f"op={op},do=status:403" for op in ("head", "get", "list", "delete")))
    checkpoints.run()
    checkpoints.write("step-1/b")
    told = checkpoints.run(code=1)
    assert "CIS4014" in told, told
    checkpoints.bucket.no_faults()
    assert {"p/step-1/a", "p/step-1/DONE"} == checkpoints.there()
    checkpoints.run()
    assert {"p/step-1/a", "p/step-1/b", "p/step-1/DONE"} == checkpoints.there()


@pytest.mark.asan
@pytest.mark.parametrize("gone", ["removed", "excluded", "removed as a file changed", "removed, and an empty one was sent before"])
def test_upload_of_a_marker_that_is_no_longer_a_file_is_aborted_and_an_empty_marker_is_there(checkpoints, gone):
    checkpoints.write("step-1/a")
    if "before" in gone:
        checkpoints.run()
    checkpoints.write("step-1/DONE", content=bytes(9 << 20))
    checkpoints.kill_at("op=put,key=p/step-1/DONE,do=status:503:0")
    assert b"<Upload>" in checkpoints.bucket.ask("/bench?uploads&prefix=")
    if gone.startswith("removed"):
        (checkpoints.src / "step-1/DONE").unlink()
    if "changed" in gone:
        checkpoints.write("step-1/a", content=b"new!")
    checkpoints.run(*(["--exclude", "DONE"] if gone == "excluded" else []))
    assert checkpoints.bucket.content("p/step-1/DONE") == b""
    assert b"<Upload>" not in checkpoints.bucket.ask("/bench?uploads&prefix=")
