# SPDX-License-Identifier: Apache-2.0
"""Google Cloud Storage's JSON API: https://github.com/fsouza/fake-gcs-server, with its objects in memory."""

import json
import urllib.request

from paths import CACHE

from .process import Server


class FakeGcs(Server):
    def __init__(self):
        super().__init__("fake-gcs")

    def command(self):
        return [str(CACHE / "bin/fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port),
                "-backend", "memory", "-public-host", f"127.0.0.1:{self.port}", "-external-url", self.url,
                "-log-level", "error"]

    def make_bucket(self, name):
        request = urllib.request.Request(f"{self.url}/storage/v1/b?project=test", method="POST",
                                         data=json.dumps({"name": name}).encode(),
                                         headers={"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=10).read()
