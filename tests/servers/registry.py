# SPDX-License-Identifier: Apache-2.0
"""An OCI registry on this machine, of crane's."""

import json
import subprocess

from paths import CACHE
from servers.process import Server

CRANE = CACHE / "bin/crane"


class Registry(Server):
    def __init__(self):
        super().__init__("registry")

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def command(self):
        return [CRANE, "registry", "serve", "--address", self.address]

    def crane(self, *words):
        return subprocess.run([CRANE, *words], capture_output=True, text=True, check=True, timeout=60).stdout

    def manifest(self, image):
        return json.loads(self.crane("manifest", f"{self.address}/{image}"))

    def config(self, image, platform):
        return json.loads(self.crane("config", "--platform", platform, f"{self.address}/{image}"))
