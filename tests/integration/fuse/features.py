# SPDX-License-Identifier: Apache-2.0
"""Calls that the features of file systems share."""

import ctypes
import os

BLOCK = 4096


def checked(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def opened(path, flags=os.O_RDWR | os.O_CREAT, data=b""):
    fd = os.open(path, flags, 0o644)
    if data:
        os.write(fd, data)
    return fd


def file_of(folder, blocks=4):
    return opened(folder / "file", data=bytes([1]) * BLOCK * blocks)


def mode_of(path):
    return oct(os.lstat(path).st_mode)
