# SPDX-License-Identifier: Apache-2.0
"""`cistern mount` for people: its own keeper, in the background or in the foreground."""

import os
import signal
import subprocess
import time

import pytest

from paths import CISTERN

from . import mounts


@pytest.fixture
def place(disk, tmp_path):
    data, at = disk.path / "person", tmp_path / "at"
    data.mkdir()
    at.mkdir()
    (data / "file").write_text("content")
    yield data, at
    subprocess.run(["umount", "-l", at], capture_output=True, check=False)
    mounts.wait_for("the processes to end", lambda: not processes_of(at))
    subprocess.run(["rm", "-rf", data], check=True)


def mount(*words):
    return subprocess.run(
        [CISTERN, "mount", *words], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
    )


def processes_of(at):
    found = subprocess.run(["pgrep", "-f", f"mount .*{at}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def test_the_command_returns_when_the_mount_is_there_and_umount_ends_it(place):
    data, at = place
    done = mount(data, at)
    assert (done.returncode, done.stderr) == (0, "")
    assert (at / "file").read_text() == "content"
    (at / "new").write_text("x")
    assert (data / "new").read_text() == "x"
    pids = processes_of(at)
    assert pids
    subprocess.run(["umount", at], check=True)
    mounts.wait_for("the processes to end", lambda: not processes_of(at))


@pytest.mark.parametrize("words", [(), ("--foreground",)])
def test_an_exclusive_mount_keeps_what_it_looked_up(place, words):
    data, at = place
    with subprocess.Popen([CISTERN, "mount", "--exclusive", *words, data, at]):
        mounts.wait_for("the mount", lambda: os.path.ismount(at))
        assert not (at / "later").exists()
        (data / "later").write_text("x")
        time.sleep(1.5)  # a mount that others may change below asks again after a second
        assert not (at / "later").exists()
        subprocess.run(["umount", at], check=True)


def test_a_killed_mount_process_is_started_again(place):
    data, at = place
    assert mount(data, at).returncode == 0
    for _ in range(5):
        for child in children_of(processes_of(at)[0]):
            os.kill(child, signal.SIGKILL)
        assert (at / "file").read_text() == "content"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_one_in_the_foreground_unmounts(place, number):
    data, at = place
    with subprocess.Popen([CISTERN, "mount", "--foreground", "--read-only", data, at]) as process:
        mounts.wait_for("the mount", lambda: os.path.ismount(at))
        assert (at / "file").read_text() == "content"
        with pytest.raises(OSError):
            (at / "file").write_text("x")
        with open(at / "file", encoding="utf-8"):
            process.send_signal(number)
            assert process.wait(60) == 0
    assert not os.path.ismount(at)


def test_mount_of_a_volume_directory_shows_its_data(place):
    data, at = place
    (data / "data").mkdir()
    (data / "data/inside").write_text("x")
    (data / "volume.json").write_text("{}")
    assert mount(data, at).returncode == 0
    assert os.listdir(at) == ["inside"]


def test_invalid_arguments_of_a_mount_are_named(place, tmp_path):
    data, at = place
    for words, code, text in (
        ((data,), 2, "needs DIR and MOUNTPOINT"),
        ((data, tmp_path / "nowhere"), 3, "MOUNTPOINT is an existing directory"),
        ((tmp_path / "nowhere", at), 3, "cannot find"),
        ((data, data), 2, "inside its own mount point"),
        (("--passthrough=maybe", data, at), 2, "auto, on or off"),
        (("--lazy-ish", data, at), 2, "unknown"),
    ):
        done = mount(*words)
        assert done.returncode == code and text in done.stderr, (words, done.returncode, done.stderr)


def test_a_directory_on_tmpfs_can_be_mounted(place, tmp_path):
    _, at = place
    memory = tmp_path / "memory"
    memory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", memory], check=True)
    try:
        (memory / "file").write_text("in memory")
        assert mount(memory, at).returncode == 0
        assert (at / "file").read_text() == "in memory"
    finally:
        subprocess.run(["umount", "-l", at])
        mounts.wait_for("the mount to end", lambda: not processes_of(at))
        subprocess.run(["umount", "-l", memory], check=True)
