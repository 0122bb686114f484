# SPDX-License-Identifier: Apache-2.0
"""A bucket that changes at random under runs that are killed at random. No file has bytes that its key never had. After
the last change two runs complete it, and then every file is of the listing.
CISTERN_STORMS is the number of tests, CISTERN_SEED the first seed."""
import json
import os
import random
import subprocess
import time

import pytest

from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

from .lib import DONE, MISMATCH, NOT_FOUND, SOME_FAILED
from .volume_test import Volume

pytestmark = [pytest.mark.asan, pytest.mark.timeout(600)]
FIRST = int(os.environ.get("CISTERN_SEED", "1"))
STORMS = int(os.environ.get("CISTERN_STORMS", "6"))
SIZES = [0, 10, 300, 5000, 70_000, 100_000]
LARGE = (9 << 20) + 1


class Restless(BucketServer):
    def __init__(self, dice):
        super().__init__("--latency", "3ms")
        self.dice, self.live, self.versions = dice, {}, {}
        for i in range(dice.choice([5, 60, 300])):
            self.put_some(f"{dice.choice('abc')}/{dice.choice('xyz')}{i % 9}/file-{i}", LARGE if i in (1, 2) else None)

    def put_some(self, name, size=None):
        self.live[name] = noise(self.dice.random(), size if size is not None else self.dice.choice(SIZES))
        self.versions.setdefault(name, []).append(self.live[name])
        self.put("data/" + name, self.live[name])

    def change(self):
        for _ in range(self.dice.choice([0, 1, 3, 10])):
            name, what = self.dice.choice(sorted(self.live)), self.dice.random()
            if what < 0.5:
                self.put_some(name)
            elif what < 0.7 and len(self.live) > 2:
                self.remove("data/" + name)
                del self.live[name]
            else:
                self.put_some(f"{name[0]}/new-{self.dice.randrange(50)}")


class Run:
    def __init__(self, server, top, scheme, into_volume):
        self.server, self.top = server, top
        identity = ["--path-style"] if scheme == "s3" else ["--anonymous"]
        uri, self.out, self.may_have_lost_track = f"{scheme}://bench/data/", top / "out", False
        self.command = [CISTERN, "hydrate", uri, self.out, "--endpoint", server.url, *identity, "--retries", "3", "--json",
                        "--delete"]
        if into_volume:
            volume = Volume(top, {"uri": uri, "endpoint": server.url, "pathStyle": scheme == "s3",
                                  "identity": {"method": "anonymous"}, "retry": {"maxAttempts": 3}})
            self.out, self.command = volume.folder / "data", [CISTERN, "hydrate", "--volume", volume.folder, "--json"]
        self.is_seen = not into_volume

    def go(self, restless):
        """The summary, None where it was killed; and the exit code."""
        dice = self.server.dice
        with subprocess.Popen(list(map(str, self.command)), env={**os.environ, **KEYS}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as child:
            end = time.monotonic() + (dice.choice([0.02, 0.05, 0.1, 0.3, 2]) if restless else 0)
            while child.poll() is None and time.monotonic() < end:
                time.sleep(dice.random() * 0.03)
                self.server.change()
            if restless and dice.random() < 0.6:
                child.kill()
            told, noise = child.communicate(timeout=200)
        assert child.returncode in (-9, DONE, SOME_FAILED, NOT_FOUND, MISMATCH), told + noise
        if child.returncode == -9:
            # The last records of the journal are lost. Where others may have files, too, what has no record stays.
            self.may_have_lost_track |= self.is_seen and self.out.exists()
            return None, -9
        return json.loads(told.splitlines()[-1]), child.returncode

    def files(self):
        state = (".cistern-hydrate", ".out.cistern")
        found = [p for p in self.out.rglob("*") if p.is_file() and not set(state) & set(p.parts)]
        return {str(p.relative_to(self.out)): p.read_bytes() for p in found}


@pytest.mark.parametrize("number", range(FIRST, FIRST + STORMS))
@pytest.mark.parametrize("into_volume", [False, True])
def test_a_bucket_that_never_rests_gives_no_file_that_it_never_had(tmp_path, number, into_volume):
    dice = random.Random(number)
    with Restless(dice) as server:
        run = Run(server, tmp_path, dice.choice(["s3", "gs"]), into_volume)
        for _ in range(dice.randint(1, 8)):
            end, code = run.go(restless=True)
            if code == DONE:
                break
        for _ in range(2):
            if code != DONE:
                end, code = run.go(restless=False)
        assert code == DONE, end
        found = run.files()
        assert [name for name, data in found.items() if data not in server.versions[name]] == []
        assert run.may_have_lost_track or len(found) == end["found"], set(found) ^ set(server.live)
