# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of the mount process inside every operation: it is done once, and its user sees the right answer.

Each case names a FUSE operation and the user's call for it. The process dies before the act, after it, or before the
reply. The result of the call and the lower directory must be as if it had not died."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from . import mounts


def mkdir(top):
    os.mkdir(top / "new")
    assert os.stat(top / "new").st_nlink == 2
    with pytest.raises(FileExistsError):
        os.mkdir(top / "new")
    os.rmdir(top / "new")


def mknod(top):
    os.mkfifo(top / "fifo")
    os.unlink(top / "fifo")


def symlink(top):
    os.symlink("target", top / "link")
    assert os.readlink(top / "link") == "target"
    os.unlink(top / "link")


def link(top):
    os.link(top / "file", top / "second")
    assert os.stat(top / "file").st_nlink == 2
    os.unlink(top / "second")


def create(top):
    fd = os.open(top / "made", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
    os.write(fd, b"content")
    os.close(fd)
    assert (top / "made").read_bytes() == b"content"
    assert os.stat(top / "made").st_mode & 0o777 == 0o640
    os.unlink(top / "made")


def unlink(top):
    os.unlink(top / "victim")
    with pytest.raises(FileNotFoundError):
        os.unlink(top / "victim")


def unlink_of_an_open_file(top):
    with open(top / "victim", "r+b") as file:
        os.unlink(top / "victim")
        file.seek(0, os.SEEK_END)
        file.write(b"more")
        file.flush()
        file.seek(0)
        assert file.read() == b"old contentmore"
        assert os.fstat(file.fileno()).st_nlink == 0


def rmdir(top):
    os.rmdir(top / "folder")
    with pytest.raises(FileNotFoundError):
        os.rmdir(top / "folder")


def rename(top):
    os.rename(top / "file", top / "folder" / "moved")
    assert (top / "folder" / "moved").read_bytes() == b"content of the file"
    assert not (top / "file").exists()
    os.unlink(top / "folder" / "moved")


def rename_over_an_open_file(top):
    with open(top / "victim", "rb") as file:
        os.rename(top / "file", top / "victim")
        assert file.read() == b"old content"
    assert (top / "victim").read_bytes() == b"content of the file"


def rename_exchange(top):
    mounts.renameat2(top / "file", top / "victim", mounts.RENAME_EXCHANGE)
    assert (top / "file").read_bytes() == b"old content"
    assert (top / "victim").read_bytes() == b"content of the file"


def rename_noreplace(top):
    mounts.renameat2(top / "file", top / "fresh", mounts.RENAME_NOREPLACE)
    with pytest.raises(FileExistsError):
        mounts.renameat2(top / "fresh", top / "victim", mounts.RENAME_NOREPLACE)
    os.unlink(top / "fresh")


def setxattr(top):
    os.setxattr(top / "file", "user.color", b"red", os.XATTR_CREATE)
    with pytest.raises(FileExistsError):
        os.setxattr(top / "file", "user.color", b"blue", os.XATTR_CREATE)
    assert os.getxattr(top / "file", "user.color") == b"red"


def removexattr(top):
    os.removexattr(top / "victim", "user.old")
    with pytest.raises(OSError):
        os.removexattr(top / "victim", "user.old")


def setattr_(top):
    os.truncate(top / "file", 7)
    os.chmod(top / "file", 0o600)
    assert (top / "file").read_bytes() == b"content"
    assert os.stat(top / "file").st_mode & 0o777 == 0o600


def open_(top):
    with open(top / "file", "rb") as one, open(top / "file", "r+b") as two:
        two.write(b"CONTENT")
        two.flush()
        assert one.read() == b"CONTENT of the file"


def release(top):
    for _ in range(3):
        assert (top / "file").read_bytes() == b"content of the file"


def lookup(top):
    assert os.stat(top / "folder").st_nlink == 2
    assert not (top / "nothing").exists()


def readdir(top):
    assert sorted(os.listdir(top)) == ["file", "folder", "victim"]
    assert sorted(entry.name for entry in os.scandir(top) if entry.stat()) == ["file", "folder", "victim"]


def tmpfile(top):
    fd = os.open(top, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"nameless")
    mounts.name_open_file(fd, top / "named")
    os.close(fd)
    assert (top / "named").read_bytes() == b"nameless"
    os.unlink(top / "named")


def write(top):
    with open(top / "file", "r+b", buffering=0) as file:
        assert file.write(b"A" * 5000) == 5000
        file.seek(0)
        assert file.read() == b"A" * 5000
        with mmap.mmap(file.fileno(), 5000) as mapping:
            mapping[:3] = b"BBB"
    assert (top / "file").read_bytes() == b"BBB" + b"A" * 4997


ACTS = ("before", "after-act", "before-reply")
CASES = [
    (operation, point, act)
    for operation, points, *acts in (
        ("mkdir", ACTS, mkdir),
        ("mknod", ACTS, mknod),
        ("symlink", ACTS, symlink),
        ("link", ACTS, link),
        ("create", ACTS, create),
        ("unlink", ACTS, unlink, unlink_of_an_open_file),
        ("rmdir", ACTS, rmdir),
        ("rename", ACTS, rename, rename_over_an_open_file, rename_exchange, rename_noreplace),
        ("setxattr", ACTS, setxattr),
        ("removexattr", ACTS, removexattr),
        ("setattr", ("before", "after-act"), setattr_),
        ("open", ("before", "mapped", "after-act", "before-reply"), open_, create),
        ("release", ("before", "before-reply"), release),
        ("lookup", ("before-reply",), lookup),
        ("readdir", ("before-reply",), readdir),
        ("tmpfile", ("after-act", "before-reply"), tmpfile),
    )
    for point in points
    for act in acts
    if not (act is create and operation == "open" and point in ("before", "before-reply"))
]


def furnish(data):
    (data / "file").write_bytes(b"content of the file")
    (data / "victim").write_bytes(b"old content")
    os.setxattr(data / "victim", "user.old", b"1")
    (data / "folder").mkdir()


def remove_all(top):
    for name in os.listdir(top):
        if (top / name).is_dir():
            os.rmdir(top / name)
        else:
            os.unlink(top / name)


def run(volume, act):
    furnish(volume.data)
    act(volume.path)
    assert volume.status()["restarts"] == "1", "the process did not die where it should"
    remove_all(volume.path)
    assert os.listdir(volume.data) == []

    def nothing_is_remembered():
        status = volume.status()
        return status["nodes"] == "1" and status["opens"] == "0"

    mounts.wait_for("every lookup and open to be counted back", nothing_is_remembered)


@pytest.mark.parametrize("operation, point, act", CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_kill_inside_an_operation_is_not_seen(volumes, operation, point, act):
    run(volumes("v", "exclusive", "must", kill_at=f"{operation}:{point}:1"), act)


def test_users_keep_their_umask_after_a_kill_inside_a_create(volumes):
    """The request is repeated by the thread that later serves new ones."""
    volume = volumes("v", "exclusive", "must", kill_at="create:before:1")
    os.umask(0o027)
    for n in range(20):
        os.close(os.open(volume.path / str(n), os.O_CREAT | os.O_WRONLY, 0o666))
    os.umask(0o022)
    assert volume.status()["restarts"] == "1", "the process did not die where it should"
    assert {oct(os.stat(volume.data / str(n)).st_mode & 0o777) for n in range(20)} == {"0o640"}


PLAIN_CASES = [
    ("write", "before", write),
    ("write", "after-act", write),
    ("open", "after-act", open_),
    ("unlink", "before", unlink_of_an_open_file),
    ("unlink", "after-act", unlink_of_an_open_file),
    ("rename", "after-act", rename_over_an_open_file),
    ("tmpfile", "before-reply", tmpfile),
]


@pytest.mark.parametrize("operation, point, act", PLAIN_CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_kill_inside_an_operation_without_passthrough_is_not_seen(volumes, operation, point, act):
    run(volumes("v", "exclusive", "plain", kill_at=f"{operation}:{point}:1"), act)


@pytest.mark.parametrize("times", [2, 5])
def test_a_process_that_dies_again_while_it_takes_up_still_does_each_thing_once(volumes, times):
    volume = volumes("v", "exclusive", "must", kill_at="mkdir:after-act:1")
    for _ in range(times):
        volume.kill()
    mkdir(volume.path)


@pytest.mark.parametrize("nth", [2, 9, 30])
def test_a_request_that_the_kernel_could_not_copy_into_the_dying_process_is_asked_again(volumes, nth):
    """The buffer is missing at the moment of SIGKILL, as when compaction moves its page."""
    volume = volumes("v", "exclusive", "must", kill_at=f"request:memory:{nth}")
    for _ in range(12):
        mkdir(volume.path)
    assert volume.status()["restarts"] == "1", "the process did not die where it should"


def test_an_answer_that_the_kernel_could_not_copy_out_of_the_dying_process_is_given_by_the_next(volumes):
    volume = volumes("v", "exclusive", "must", kill_at="answer:memory:1")
    names = {f"a name that takes some room, number {i}" for i in range(300)}
    for name in names:
        (volume.data / name).touch()
    assert set(os.listdir(volume.path)) == names
    assert volume.status()["restarts"] == "1", "the process did not die where it should"


LISTER = """
import contextlib, os, sys
for entry in os.scandir(sys.argv[1]):
    with contextlib.suppress(FileNotFoundError):
        entry.stat()  # so that the kernel asks for attributes with the next names, too
    print(entry.name)
"""


def is_stopped(volume):
    stat = Path(f"/proc/{volume.keeper.pid('v')}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T"


def test_names_that_come_into_a_listing_while_the_process_dies_are_listed(volumes, monkeypatch):
    """The dying process has counted the entries of a whole reply. The next one finds others at the same offset."""
    monkeypatch.setenv("CISTERN_TEST_STOP", "readdir:before-reply")
    volume = volumes("v", "exclusive", "must")
    for n in range(700):
        (volume.data / f"{n:03}").touch()
    order = os.listdir(volume.data)
    with subprocess.Popen([sys.executable, "-c", LISTER, volume.path], stdout=subprocess.PIPE, text=True) as lister:
        stops = 0
        while lister.poll() is None:
            mounts.wait_for("a stop", lambda: lister.poll() is not None or is_stopped(volume))
            stops += 1
            if stops == 2:
                for name in order[:-100]:
                    (volume.data / name).unlink()
                volume.kill()
            elif lister.poll() is None:
                volume.kill(signal.SIGCONT)
        assert stops > 2 and set(order[-100:]) <= set(lister.stdout.read().split())
