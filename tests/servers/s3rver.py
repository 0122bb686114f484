# SPDX-License-Identifier: Apache-2.0
"""S3 without checksums or conditions: https://github.com/jamhall/s3rver. Ignores If-None-Match and If-Match on writes."""

import os

from paths import CACHE

from .process import Server

ACCESS_KEY, SECRET_KEY, REGION = "S3RVER", "S3RVER", "us-east-1"


class S3rver(Server):
    def __init__(self):
        super().__init__("s3rver")
        self.data = self.root / "data"
        self.data.mkdir()

    def command(self):
        return ["node", str(CACHE / "s3rver/node_modules/s3rver/bin/s3rver.js"), "--silent", "--no-vhost-buckets",
                "--address", self.host, "--port", str(self.port), "--directory", str(self.data)]

    def environment(self):
        return dict(os.environ, HOME=str(self.root))

    def make_bucket(self, name):
        (self.data / name).mkdir()
