# SPDX-License-Identifier: Apache-2.0
"""A tree whose paths are longer than the kernel takes in one call is an error that names it, and no silent skip."""
import os
import subprocess

from paths import BUILD


def test_export_of_directories_longer_than_a_path_fails_by_name_and_sends_the_rest(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    (data / "near.bin").write_bytes(b"x")
    fd = os.open(data, os.O_RDONLY)
    for _ in range(45):
        os.mkdir("d" * 100, dir_fd=fd)
        fd, above = os.open("d" * 100, os.O_RDONLY, dir_fd=fd), fd
        os.close(above)
    os.close(os.open("far.bin", os.O_CREAT, dir_fd=fd))
    os.close(fd)
    run = subprocess.run([BUILD / "bin" / "cistern", "export", data, f"file://{out}/"], capture_output=True, text=True)
    assert run.returncode != 0
    assert "d" * 100 in run.stderr and "File name too long" in run.stderr and "CIS1532" in run.stderr
    assert (out / "near.bin").read_bytes() == b"x"
    subprocess.run(["rm", "-rf", data], check=True)  # pytest's own removal recurses
