# SPDX-License-Identifier: Apache-2.0
"""`cistern export` with a state directory that another user wrote to."""
import os
import subprocess

import pytest

from .export_test import Export


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
@pytest.mark.parametrize("name", ["verdict.json", "progress.json", ".progress.json", "lock", "owner", "logbook"])
def test_a_state_file_of_another_kind_neither_hangs_nor_is_followed(export, name, kind):
    export.write("file", 10)
    export.run()
    if name == "logbook":
        name, = (at.name for at in (export.state / "export").glob("logbook-*.log"))
    bait, precious = export.state / "export" / name, export.top / "precious"
    precious.write_bytes(b"precious")
    bait.unlink(missing_ok=True)
    {"fifo": os.mkfifo, "link": lambda at: at.symlink_to(precious), "directory": os.mkdir}[kind](bait)
    export.write("second", 10)
    done = subprocess.run(export.command(), capture_output=True, text=True, timeout=30)
    assert precious.read_bytes() == b"precious"
    if done.returncode:
        assert name.strip(".") in done.stderr, done.stderr
    else:
        export.assert_same()
