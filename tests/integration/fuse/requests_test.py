# SPDX-License-Identifier: Apache-2.0
"""The table of docs/design/004-mounts.md: the requests that the kernel sends for an operation, counted by its tracepoint."""

import mmap
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from paths import TOP

from .mounts import wait_for

TRACING = Path("/sys/kernel/tracing")
PAGE = TOP / "docs/design/004-mounts.md"
SYS_SPLICE = "275"


@pytest.fixture(scope="module")
def tracer():
    if not (TRACING / "events").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    instance = TRACING / f"instances/cistern-{os.getpid()}"
    instance.mkdir()
    (instance / "buffer_size_kb").write_text("16384")  # the oldest events are overwritten
    (instance / "events/fuse/fuse_request_send/enable").write_text("1")
    yield instance
    (instance / "events/fuse/fuse_request_send/enable").write_text("0")
    instance.rmdir()


@pytest.fixture
def backings(tracer):
    """backings(volume, act): how many backing ids the mount process opened and closed during act()."""
    event = tracer / "events/syscalls/sys_enter_ioctl/enable"
    event.with_name("filter").write_text("cmd == 0x4010e501 || cmd == 0x4004e502")
    event.write_text("1")

    def count(volume, act):
        (tracer / "trace").write_text("")
        act()
        time.sleep(0.05)  # a release is sent after close(2) returned
        threads = os.listdir(f"/proc/{volume.keeper.pid(volume.name)}/task")
        calls = re.findall(r"-(\d+) .*cmd: 0x(4010e501|4004e502)", (tracer / "trace").read_text())
        calls = [call for thread, call in calls if thread in threads]
        return calls.count("4010e501"), calls.count("4004e502")

    yield count
    event.write_text("0")


@pytest.fixture
def requests(tracer, volumes):
    """requests(act): the opcodes that act() sent to a volume that only this mount changes, in their order."""
    volume = volumes("counted", "exclusive", "must")
    device = os.minor(os.stat(volume.path).st_dev)
    os.chdir(volume.path)

    def count(act):
        (tracer / "trace").write_text("")
        act()
        time.sleep(0.05)  # a release is sent after close(2) returned
        lines = (tracer / "trace").read_text().splitlines()
        return [re.search(r"FUSE_(\w+)", line)[1].lower() for line in lines if f"connection {device} " in line]

    yield count
    os.chdir("/")


def create(name, data=b"", flags=os.O_WRONLY, look=False, look_again=False):
    fd = os.open(name, flags | os.O_CREAT, 0o644)
    if look:
        os.fstat(fd)
    if data:
        os.write(fd, data)
    if look_again:
        os.fstat(fd)
    os.close(fd)


def read(name):
    fd = os.open(name, os.O_RDONLY)
    os.read(fd, 100_000)
    os.close(fd)


def read_and_look(name):
    with open(name, "rb", buffering=0) as file:
        file.read(100_000)
        os.stat(name)


def listing():
    for entry in os.scandir("folder"):
        entry.stat(follow_symlinks=False)


def list_long():
    subprocess.run(["ls", "-l", "folder"], check=True, stdout=subprocess.DEVNULL)


def prepare():
    os.mkdir("folder")
    for i in range(20):
        create(f"folder/{i}", b"1")
    create("known", b"data")
    create("old")
    read("known")
    listing()
    os.path.exists("absent")
    for name in (".", "known", "old", "folder"):
        os.stat(name)
    list_long()  # asks for ACLs, which the kernel then caches until it asks for attributes
    os.mkdir("changed")
    create("changed/first")
    os.stat(".")


OPERATIONS = {
    "stat of a known file": lambda: os.stat("known"),
    "stat of a name that is known to be absent": lambda: os.path.exists("absent"),
    "open, read, close of a known file": lambda: read("known"),
    "open, read, stat, close of a known file": lambda: read_and_look("known"),
    "readdir and stat of each file, again": listing,
    "`ls -l`, again": list_long,
    "create, close": lambda: create("made"),
    "create a name that is known to be absent, close": lambda: create("absent"),
    "the same with O_EXCL": lambda: create("absent", flags=os.O_WRONLY | os.O_EXCL),
    "create, write, close": lambda: create("made", b"1"),
    "create, fstat, write, close": lambda: create("made", b"1", look=True),
    "create, write, fstat, close": lambda: create("made", b"1", look_again=True),
    "create with O_RDWR, fstat, write, close": lambda: create("made", b"1", os.O_RDWR, look=True),
    "create in a directory that was just changed": lambda: create("changed/made"),
    "rename": lambda: os.rename("old", "new"),
    "unlink": lambda: os.unlink("old"),
    "mkdir": lambda: os.mkdir("directory"),
}


def table():
    rows = re.findall(r"^\| ([^|]+) \| ([a-z, ]+|none) \|", PAGE.read_text().split("## Requests")[1].split("\n## ")[0], re.M)
    rows = [row for row in rows if row[0] != "operation"]
    return {operation: [] if requests == "none" else requests.split(", ") for operation, requests in rows}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_sends_the_requests_of_the_table(requests, operation):
    prepare()
    assert requests(OPERATIONS[operation]) == table()[operation]
    assert requests(lambda: None) == []


def test_the_table_has_these_operations():
    assert list(table()) == list(OPERATIONS)


def test_git_status_again_sends_fewer_requests_than_there_are_files(requests):
    git = ["git", "--no-optional-locks", "-c", "user.name=a", "-c", "user.email=a"]
    for i in range(100):
        create(f"{i}", b"1")
        os.utime(f"{i}", (1, 1))  # git reads files that are as young as its index
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"], ["status"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)
    sent = requests(lambda: subprocess.run([*git, "status"], check=True, stdout=subprocess.DEVNULL))
    assert set(sent) == {"open", "getattr", "release"}, "only of git's own files"
    assert len(sent) < 100


def test_a_file_that_a_mapping_stored_into_shows_its_new_time(requests):
    """Attributes are cached while a file is open for writing only, since no mapping of it can store."""
    create("mapped", b"x" * 4096)
    os.utime("mapped", (1, 1))
    fd = os.open("mapped", os.O_RDWR)
    with mmap.mmap(fd, 4096) as memory:
        os.close(fd)
        assert os.stat("mapped").st_mtime == 1
        memory[0] = 1
        assert os.stat("mapped").st_mtime > 1


def test_a_file_that_is_opened_again_needs_no_new_backing_id(backings, volumes):
    volume = volumes("kept", "exclusive", "must")
    file = volume.path / "file"
    file.write_bytes(b"data")

    def open_often():
        for _ in range(10):
            assert file.read_bytes() == b"data"

    assert backings(volume, open_often) == (0, 0)
    volume.kill()
    file.stat()
    assert backings(volume, open_often) == (0, 0)
    assert backings(volume, file.unlink) == (0, 1)


def test_backing_ids_of_closed_files_are_limited(backings, volumes):
    volume = volumes("limited", "exclusive", "must")
    for i in range(4200):
        (volume.data / str(i)).write_bytes(b"")
    opened, closed = backings(volume, lambda: [(volume.path / str(i)).read_bytes() for i in range(4200)])
    assert opened == 4200
    assert opened - closed <= 4096


def test_a_file_that_others_delete_below_is_not_kept(backings, volumes):
    volume = volumes("shared", "must")
    (volume.data / "file").write_bytes(b"data")
    assert backings(volume, (volume.path / "file").read_bytes) == (1, 1)


def wake_ups(pid):
    """How often the kernel has run the threads of a process."""
    statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(n) for status in statuses for n in re.findall(r"voluntary_ctxt_switches:\t(\d+)", status))


def test_idle_mounts_never_wake_their_processes_and_the_keeper_every_5_s(volumes):
    made = [volumes(f"idle-{n}", "exclusive", "must") for n in range(3)]
    for volume in made:
        for i in range(20):
            create(volume.path / str(i), b"1")
    keeper = made[0].keeper
    pids = [keeper.pid(volume.name) for volume in made]

    def is_idle():
        before = [wake_ups(pid) for pid in pids]
        keeper_before, began = wake_ups(keeper.process.pid), time.monotonic()
        time.sleep(11)
        woken = wake_ups(keeper.process.pid) - keeper_before
        return [wake_ups(pid) for pid in pids] == before and woken <= (time.monotonic() - began) / 5 + 1

    wait_for("eleven seconds without a wake-up", is_idle, 120)  # the kernel may still report closes


def test_two_threads_wait_for_requests_and_others_for_their_turn(disk, volumes):
    """The kernel wakes the one that has waited longest: with many of them, each request moves to another thread and CPU."""
    volume = volumes("burst", "exclusive", "must")
    for n in range(6):
        (volume.path / f"{n}").mkdir()

    def waiting():
        """The system calls of the threads that sleep: splice(2) of a request, or another."""
        calls = [path.read_text().split() for path in Path(f"/proc/{volume.keeper.pid(volume.name)}/task").glob("*/syscall")]
        return [call[0] == SYS_SPLICE for call in calls]

    subprocess.run(["fsfreeze", "--freeze", disk.path], check=True)
    try:
        makers = [subprocess.Popen(["mkdir", volume.path / f"{n}/made"]) for n in range(6)]
        wait_for("six busy threads and one that waits", lambda: len(waiting()) > 6)
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", disk.path], check=True)
    assert [maker.wait() for maker in makers] == [0] * 6
    wait_for("two of them to wait for requests", lambda: waiting().count(True) == 2)
    assert (volume.path / "absent").exists() is False
    wait_for("two of them to wait for requests again", lambda: waiting().count(True) == 2)
    assert len(waiting()) > 6
