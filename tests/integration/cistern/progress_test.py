# SPDX-License-Identifier: Apache-2.0
"""Progress on terminals of each width, on terminals that cannot move their cursor, and in logs."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from paths import CISTERN
from servers.bucket import KEYS, BucketServer


@pytest.fixture(scope="module")
def bucket():
    with BucketServer("--objects", "p/" + "deep/" * 30 + ":12:300000") as server:
        yield server


def words(bucket, out):
    return [CISTERN, "hydrate", "s3://bench/p/", str(out), "--endpoint", bucket.url, "--path-style", "--bandwidth", "2M"]


def on_terminal(command, columns, code=0, **environment):
    """The bytes that a terminal receives."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command, env=os.environ | KEYS | {"TERM": "xterm"} | environment, stderr=theirs,
                          stdout=subprocess.DEVNULL) as run:
        os.close(theirs)
        received = b""
        while True:
            try:
                received += os.read(ours, 65536)
            except OSError:
                break
        assert run.wait() == code
    os.close(ours)
    return received.decode()


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_progress_fits_the_terminal(bucket, tmp_path, columns):
    bucket.fault("op=get,times=1,do=status:503")
    received = on_terminal(words(bucket, tmp_path / "out"), columns, NO_COLOR="1")
    lines = re.sub(r"\x1b\[\d*[AJK]", "", received).replace("\r", "").split("\n")
    bars = [line for line in lines if line.startswith("[")]
    counts = [line for line in lines if line.startswith("objects ")]
    assert len(bars) == len(counts) >= 3
    assert max(map(len, lines)) < columns
    assert all(re.fullmatch(r"\[#*-*\] \d+% [\d.]+ [KM]?i?B/[\d.]+ MiB\+? [\d.]+ [KM]?i?B/s( ETA \d+:\d\d)?", line) for line in bars), bars
    assert all(re.match(r"objects \d+/\d+\+? errors 0 retries [01]\b", line) for line in counts), counts
    assert "retries 1" in counts[-1]
    assert "\x1b[0" not in received and not re.search(r"\x1b\[[\d;]*m", received), "a colour"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_cause_of_a_retry_is_on_the_screen_whatever_its_width(bucket, tmp_path, columns):
    received = on_terminal([*words(bucket, tmp_path / "out"), "--endpoint", "http://127.0.0.1:1", "--retries", "5"], columns, 5)
    frames = [re.sub(r"\x1b\[\d*[AJK]", "", frame).split("\r\n") for frame in re.split(r"\x1b\[\d+A\r", received)]
    retried = [frame for frame in frames if any("retrying, " in line for line in frame)]
    assert retried and all("".join(frame).endswith("Connection refused") for frame in retried), retried
    assert max(len(line) for frame in retried for line in frame) < columns


def test_progress_on_a_dumb_terminal_moves_no_cursor(bucket, tmp_path):
    assert "\x1b" not in on_terminal(words(bucket, tmp_path / "out"), 80, TERM="dumb")


def test_an_export_shows_that_it_reads_its_directory(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").touch()
    received = on_terminal([CISTERN, "export", tmp_path / "data", f"file://{tmp_path}/out/", "--state", tmp_path / "state", "--dry-run"], 80)
    assert re.search(r"objects 0/1\+ errors 0 retries 0 reading", received), received


def test_progress_as_json_counts_retries(bucket, tmp_path):
    bucket.fault("op=get,times=2,do=status:503")
    done = subprocess.run([*words(bucket, tmp_path / "out"), "--json"], env=os.environ | KEYS, capture_output=True, text=True,
                          timeout=60, check=True)
    progress = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "progress"]
    assert progress and progress[-1]["retries"] == 2
