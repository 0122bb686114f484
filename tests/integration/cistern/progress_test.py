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


def on_terminal(bucket, out, columns, **environment):
    """The bytes that a terminal receives."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(words(bucket, out), env=os.environ | KEYS | {"TERM": "xterm"} | environment, stderr=theirs,
                          stdout=subprocess.DEVNULL) as run:
        os.close(theirs)
        received = b""
        while True:
            try:
                received += os.read(ours, 65536)
            except OSError:
                break
        assert run.wait() == 0
    os.close(ours)
    return received.decode()


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_progress_fits_the_terminal(bucket, tmp_path, columns):
    bucket.fault("op=get,times=1,do=status:503")
    received = on_terminal(bucket, tmp_path / "out", columns, NO_COLOR="1")
    lines = re.sub(r"\x1b\[\d*[AJK]", "", received).replace("\r", "").split("\n")
    bars = [line for line in lines if line.startswith("[")]
    counts = [line for line in lines if line.startswith("objects ")]
    assert len(bars) == len(counts) >= 3
    assert max(map(len, lines)) < columns
    assert all(re.fullmatch(r"\[#*-*\] \d+% [\d.]+ [KM]?i?B/[\d.]+ MiB\+? [\d.]+ [KM]?i?B/s( ETA \d+:\d\d)?", line) for line in bars), bars
    assert all(re.match(r"objects \d+/\d+\+? errors 0 retries [01]\b", line) for line in counts), counts
    assert "retries 1" in counts[-1]
    assert "\x1b[0" not in received and not re.search(r"\x1b\[[\d;]*m", received), "a colour"


def test_progress_on_a_dumb_terminal_moves_no_cursor(bucket, tmp_path):
    assert "\x1b" not in on_terminal(bucket, tmp_path / "out", 80, TERM="dumb")


def test_progress_as_json_counts_retries(bucket, tmp_path):
    bucket.fault("op=get,times=2,do=status:503")
    done = subprocess.run([*words(bucket, tmp_path / "out"), "--json"], env=os.environ | KEYS, capture_output=True, text=True,
                          timeout=60, check=True)
    progress = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "progress"]
    assert progress and progress[-1]["retries"] == 2
