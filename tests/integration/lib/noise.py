# SPDX-License-Identifier: Apache-2.0
"""Bytes for the files of tests, cut from one pool: Python makes 180 MB of random bytes a second, and copies it at some GB/s."""

import functools
import random

POOL_BYTES = 32_500_003  # odd: no two parts of a file begin at the same byte of the pool


@functools.lru_cache(1)
def pool():
    return random.Random(0).randbytes(POOL_BYTES)


def noise(seed, size):
    """The same seed gives the same bytes, in every process."""
    at = random.Random(seed).randrange(POOL_BYTES)
    data = pool()[at : at + size]
    while len(data) < size:
        data += pool()[: size - len(data)]
    return data
