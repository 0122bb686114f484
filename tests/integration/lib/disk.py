# SPDX-License-Identifier: Apache-2.0
"""A disk of a size, for who fills it or counts what is left of it."""
import errno
import subprocess
import time

import pytest


def fill(path):
    """Writes a file until not a byte more fits on its disk."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with pytest.raises(OSError) as full:
                while True:
                    file.write(bytes(size))
            assert full.value.errno == errno.ENOSPC


class Disk:
    """A file system on a loop device, mounted at the new `path`: no other program's files are on it."""

    MAKE = {"ext4": ["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1"], "xfs": ["mkfs.xfs", "-q"]}

    def __init__(self, path, size, fs="ext4"):
        self.path = path
        self.image = path.with_name(f"{path.name}.img")
        path.mkdir()
        subprocess.run(["truncate", "-s", size, self.image], check=True)
        subprocess.run([*self.MAKE[fs], self.image], check=True)
        subprocess.run(["mount", "-o", "loop,noatime", self.image, path], check=True)

    def unmount(self):
        """The loop device outlives the mount while another program reads it, or another test's machine has a copy of the mount. A
        new mount of the image would take this device, with its cache of the old content."""
        subprocess.run(["umount", self.path], check=True)
        deadline = time.monotonic() + 120
        while subprocess.run(["losetup", "--associated", self.image], capture_output=True, check=True).stdout:
            assert time.monotonic() < deadline, f"a program or a mount namespace keeps the loop device of {self.image} open"
            time.sleep(0.02)
