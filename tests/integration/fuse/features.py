# SPDX-License-Identifier: Apache-2.0
"""Calls that the features of file systems share."""

import ctypes
import errno
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


def errors_of(*acts):
    """The value that each returns, or the name of its error."""
    found = []
    for act in acts:
        try:
            found.append(act())
        except OSError as e:
            found.append(errno.errorcode[e.errno])
    return found


def file_of(folder, blocks=4):
    return opened(folder / "file", data=bytes([1]) * BLOCK * blocks)


def mode_of(path):
    return oct(os.lstat(path).st_mode)
