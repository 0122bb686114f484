# SPDX-License-Identifier: Apache-2.0
"""S3 over a directory: https://github.com/versity/versitygw. Buckets are directories of `data`, objects are files in them."""

from paths import CACHE

from .process import Server

ACCESS_KEY, SECRET_KEY, REGION = "cistern-access", "cistern-secret", "us-east-1"


class Versitygw(Server):
    def __init__(self, tls=None):
        super().__init__("versitygw")
        self.tls = tls  # (certificate, key)
        self.scheme = "https" if tls else "http"
        self.data = self.root / "data"
        self.data.mkdir()
        # Versioning and the sidecar keep the attributes off the objects' own files, where the file system has none.
        self.sidecar = self.root / "sidecar"
        self.sidecar.mkdir()

    def command(self):
        tls = ["--cert", self.tls[0], "--key", self.tls[1]] if self.tls else []
        return [str(CACHE / "bin/versitygw"), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION,
                "--port", f"{self.host}:{self.port}", *tls, "posix", "--sidecar", str(self.sidecar), str(self.data)]

    def make_bucket(self, name):
        (self.data / name).mkdir()
