# SPDX-License-Identifier: Apache-2.0
"""A pod: bind_writer.py DIRECTORY SEED changes files there in every way that a bind mount allows, until it is killed."""
import contextlib
import ctypes
import mmap
import os
import random
import sys

NAMES = 40
libc = ctypes.CDLL(None, use_errno=True)


class Pod:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def name(self):
        return f"step-{self.rng.randrange(4)}/file-{self.rng.randrange(NAMES)}"

    def some_bytes(self):
        return self.rng.randbytes(self.rng.randrange(1, 20000))

    def write(self):
        with open(self.name(), "wb") as f:
            f.write(self.some_bytes())

    def append(self):
        with open(self.name(), "ab") as f:
            f.write(self.some_bytes())

    def truncate(self):
        """By name: nothing is opened, and nothing closed."""
        os.truncate(self.name(), self.rng.randrange(1000))

    def store(self):
        """Into a mapping, after the file was closed."""
        fd = os.open(self.name(), os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 8192)
        with mmap.mmap(fd, 8192) as mapping:
            os.close(fd)
            for _ in range(3):
                at = self.rng.randrange(8000)
                mapping[at : at + 100] = self.rng.randbytes(100)

    def move(self):
        os.replace(self.name(), self.name())

    def link(self):
        os.link(self.name(), self.name())

    def link_unnamed(self):
        fd = os.open(".", os.O_TMPFILE | os.O_WRONLY)
        os.write(fd, self.some_bytes())
        libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, self.name().encode(), 0x400)
        os.close(fd)

    def remove(self):
        os.unlink(self.name())

    def swap_directories(self):
        libc.renameat2(-100, b"step-0", -100, b"step-1", 2)


def main():
    os.chdir(sys.argv[1])
    pod = Pod(int(sys.argv[2]))
    acts = [pod.write, pod.append, pod.truncate, pod.store, pod.move, pod.link, pod.link_unnamed, pod.remove,
            pod.swap_directories]
    while True:
        for i in range(4):
            os.makedirs(f"step-{i}", exist_ok=True)
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            pod.rng.choice(acts)()


main()
