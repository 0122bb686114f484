# SPDX-License-Identifier: Apache-2.0
"""S3 in memory, without checksums: https://github.com/johannesboyne/gofakes3. Asks for no credentials."""

import urllib.request

from paths import CACHE

from .process import Server

ACCESS_KEY, SECRET_KEY, REGION = "cistern-access", "cistern-secret", "us-east-1"


class Gofakes3(Server):
    def __init__(self):
        super().__init__("gofakes3")

    def command(self):
        return [str(CACHE / "bin/gofakes3"), "-backend", "memory", "-quiet", "-host", f"{self.host}:{self.port}"]

    def make_bucket(self, name):
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
