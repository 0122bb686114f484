# SPDX-License-Identifier: Apache-2.0
"""Two suites of others that show whether a mount behaves as a disk: pjdfstest, and fsx."""

import os
import subprocess

from paths import CACHE

SUITES = CACHE / "filesystem-tests/bin"
FSX_OPERATIONS = int(os.environ.get("CISTERN_FSX_OPERATIONS", "5000"))
FSX_SECONDS = 150 + FSX_OPERATIONS // 100
FSX_PROCESS = 100_000  # operations of one fsx: it never unmaps all of a mapping, and the kernel allows it 65,530 of them
COMPLETE = "All operations completed A-OK!"

PJDFSTEST = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""

FSX = """
flen = 1048576
[weights]
close_open = 1
invalidate = 1
truncate = 2
fsync = 0.02
fdatasync = 0.02
read = 10
write = 10
mapread = 5
mapwrite = 5
posix_fallocate = 1
punch_hole = 1
sendfile = 1
posix_fadvise = 1
copy_file_range = 2
"""


def pjdfstest(where, tmp_path):
    """Runs all cases in an empty directory, which other users can reach: name of each case -> ok, FAILED or skipped."""
    config = tmp_path / "pjdfstest.toml"
    config.write_text(PJDFSTEST)
    os.chmod(where, 0o777)
    done = subprocess.run([SUITES / "pjdfstest", "-c", config, "-p", where], capture_output=True, text=True, timeout=150,
                          check=False)
    assert "Summary:" in done.stdout, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 2 and "::" in words[0]}


def different(below, mounted):
    """Name of each case with another outcome on the mount -> both outcomes."""
    return {name: (below[name], mounted.get(name)) for name in below if below[name] != mounted.get(name)}


def fsx(file, tmp_path, seed):
    """Runs random operations on new files, one after the other; what the last fsx wrote, with COMPLETE if none found
    anything."""
    config = tmp_path / "fsx.toml"
    config.write_text(FSX)
    for begin in range(0, FSX_OPERATIONS, FSX_PROCESS):
        wrote = run_fsx(config, min(FSX_PROCESS, FSX_OPERATIONS - begin), seed + begin, file)
        if COMPLETE not in wrote:
            return wrote
    return wrote


def run_fsx(config, operations, seed, file):
    """Runs one fsx and returns its output. fsx may choose posix_fallocate of no bytes, which is EINVAL on every disk, and
    take that for a finding (seed 400002, operation 3345): then the next seed."""
    while True:
        words = ["-f", config, "-N", str(operations), "-S", str(seed), "-P", config.parent, file]
        done = subprocess.run([SUITES / "fsx", *words], capture_output=True, text=True, timeout=FSX_SECONDS, check=False)
        file.unlink()
        wrote = (done.stdout + done.stderr)[-6000:]
        last = wrote.strip().splitlines()[-1:]
        if not last or "POSIX_FALLOCATE" not in last[0] or not last[0].endswith("(    0x0 bytes)"):
            return wrote
        seed += 1
