# SPDX-License-Identifier: Apache-2.0
"""Random trees, random faults, random kills. A run that reports success has every byte right. A complete file is never
seen in another form. Without faults, the same command ends the run.

CISTERN_STORMS is their number (a few in CI, thousands before a release), CISTERN_SEED the first one. Each is a test of
its own, so that a failed one is repeated by its number."""
import os
import pathlib
import random
import subprocess
import time

import pytest

from integration.hydrate.lib import is_tidy
from integration.lib.buckets import clean_environment
from integration.lib.noise import noise
from paths import CISTERN
from servers.bucket import KEYS, BucketServer

pytestmark = [pytest.mark.asan, pytest.mark.timeout(600)]
FIRST = int(os.environ.get("CISTERN_SEED", "1"))
STORMS = int(os.environ.get("CISTERN_STORMS", "8"))
SIZES = [0, 0, 1, 100, 4095, 4096, 4097, 65_536, 200_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (8 << 20) + 1, (17 << 20) + 5]
RARE = 3  # of the large ones, in a tree
SEGMENTS = ["a", "b", "deep", "é", "a b", "%41", "x+y", "step-1", ".hidden", "n" * 200]
FAULTS = ["reset", "reset:10", "reset:4000", "stall", "stall:100", "truncate:0", "truncate:3000", "status:500", "status:502",
          "status:503", "status:503:0", "status:429", "status:403", "status:404", "corrupt", "corrupt:0", "checksum",
          "no-checksum", "garbage", "garbage-body", "long:7", "long:7:silent", "wrong-length:5", "wrong-range", "no-range",
          "other-range", "lost", "latency:30", "redirect:307:http://127.0.0.1:1/", "page-loop", "page-repeat"]
OPS = ["get", "get", "list", "head", "put", "post", "any"]


@pytest.fixture(scope="module")
def server():
    with BucketServer() as running:
        yield running


class Storm:
    def __init__(self, number, server, folder):
        self.dice, self.server, self.folder = random.Random(number), server, folder
        self.scheme, self.prefix = self.dice.choice(["s3", "gs"]), f"storm-{number}"
        self.content = self.some_tree()

    def some_tree(self):
        dice, large, found = self.dice, 0, {}
        for i in range(dice.choice([1, 5, 30])):
            size = dice.choice(SIZES)
            large += size > 1 << 20
            path = "/".join([*(dice.choice(SEGMENTS) for _ in range(dice.randint(0, 3))), f"file-{i}"])
            found[path] = noise(dice.random(), size if large <= RARE else size % 5000)
        return found

    def faults(self):
        dice = self.dice
        when = [lambda: f"nth={dice.randint(1, 12)}", lambda: f"percent={dice.randint(1, 30)}",
                lambda: f"every={dice.randint(2, 9)},times={dice.randint(1, 20)}"]
        return [f"op={dice.choice(OPS)},{dice.choice(when)()},do={dice.choice(FAULTS)}" for _ in range(dice.randint(0, 3))]

    def command(self, verb, *more):
        dice = self.dice
        flags = ["--retries", str(dice.choice([2, 4, 8])), "--stall", "500ms", "--concurrency", str(dice.choice([1, 4, 64]))]
        if verb == "hydrate":
            flags += dice.choice([[], ["--memory", "1Mi"], ["--workers", "1"], ["--no-io-uring"], ["--fsync", "--barrier", "50ms"],
                                  ["--no-direct"], ["--workers", "4"]])
        anonymous = ["--anonymous"] if self.scheme == "gs" else []
        return [str(w) for w in (CISTERN, verb, "--endpoint", self.server.url, "--quiet", *anonymous, *flags, *more)]

    def uri(self, name):
        return f"{self.scheme}://bench/{self.prefix}/{name}/"

    def run(self, command, may_kill):
        """(exit code, what it said), killed at a random moment or not."""
        with subprocess.Popen(command, env=clean_environment(**KEYS), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
            if may_kill and self.dice.random() < 0.6:
                time.sleep(self.dice.choice([0.005, 0.02, 0.1, 0.3]) * self.dice.random())
                child.kill()
            _, told = child.communicate(timeout=200)
            return child.returncode, told

    def weather(self, command, seen):
        """Some bad days, then a fair one. `seen(done)` checks the files after each."""
        for _ in range(self.dice.randint(1, 4)):
            rules = self.faults()
            self.server.fault(*rules)
            code, told = self.run(command, may_kill=True)
            self.server.no_faults()
            assert code in (-9, 0, 1, 3, 4, 5, 7), f"{rules}: {command}: exit {code}: {told}"
            assert code in (-9, 0) or "CIS" in told, f"{rules}: {command}: exit {code} without a sentence: {told}"
            seen(code == 0)
        fair = [w for i, w in enumerate(command) if w not in ("--stall", "500ms")]
        code, told = self.run(fair, may_kill=False)
        assert code == 0, f"on a fair day: {fair}: exit {code}: {told}"
        seen(True)

    def whole(self, found, done):
        """Each visible file is right; after success, all files are visible."""
        wrong = [name for name, data in found.items() if self.content.get(name) != data]
        assert not wrong, f"{wrong[:5]} of {len(found)}"
        assert not done or len(found) == len(self.content), set(self.content) ^ set(found)

    def hydrate(self):
        out = self.folder / "out"
        in_place = self.dice.random() < 0.4
        for name, data in self.content.items():
            self.server.put(f"{self.prefix}/in/{name}", data)
        if in_place:
            out.mkdir()
            (out / "kept").write_text("mine")

        def seen(done):
            files = [p for p in out.rglob("*") if p.is_file() and ".cistern-hydrate" not in p.parts] if out.exists() else []
            found = {str(p.relative_to(out)): p.read_bytes() for p in files}
            assert not in_place or found.pop("kept") == b"mine"
            self.whole(found, done)
        self.weather(self.command("hydrate", self.uri("in"), out), seen)
        assert is_tidy(self.folder)

    def export(self):
        source = self.folder / "src"
        for name, data in self.content.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)

        def seen(done):
            prefix = f"{self.prefix}/out/"
            found = {key[len(prefix):] for key in self.server.uploads() if key.startswith(prefix)}
            if done:
                self.whole({name: self.server.content(prefix + name) for name in found}, done)
        self.weather(self.command("export", "--state", self.folder / "state", source, self.uri("out")), seen)

    def clean_up(self):
        for key in self.server.uploads():
            if key.startswith(self.prefix + "/"):
                self.server.remove(key)


@pytest.mark.parametrize("way", ["hydrate", "export"])
@pytest.mark.parametrize("number", range(FIRST, FIRST + STORMS))
def test_a_storm_ends_with_every_byte_right(server, tmp_path, number, way):
    storm = Storm(number, server, pathlib.Path(tmp_path))
    try:
        getattr(storm, way)()
    finally:
        server.no_faults()
        storm.clean_up()
