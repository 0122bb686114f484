# SPDX-License-Identifier: Apache-2.0
"""A disk of a size, for who fills it or counts what is left of it."""
import subprocess


class Disk:
    """An ext4 on a loop device, mounted at the new `path`: no other program's files are on it."""

    def __init__(self, path, size):
        self.path = path
        image = path.with_name(f"{path.name}.img")
        path.mkdir()
        subprocess.run(["truncate", "-s", size, image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1", image], check=True)
        subprocess.run(["mount", "-o", "loop,noatime", image, path], check=True)

    def unmount(self):
        subprocess.run(["umount", self.path], check=True)
