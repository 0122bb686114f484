# SPDX-License-Identifier: Apache-2.0
"""The base of the users of stress_worker.py."""

import random


class User:
    def __init__(self, folder, seed):
        self.top = folder
        self.chance = random.Random(seed)
        self.number = 0
        self.names = {}
        self.me = f"{type(self).__name__}-{seed}"
        self.home = folder / self.me
        self.home.mkdir()

    def finish(self):
        pass
