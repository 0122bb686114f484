# SPDX-License-Identifier: Apache-2.0
"""The bucket server (bucket_server.c): synthetic objects, and faults by rule."""

import json
import ssl
import subprocess
import time
import urllib.parse
import urllib.request

from paths import BUILD

# Any will do: it checks no signature.
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class BucketServer:
    """with BucketServer("--objects", "small/:10:1000") as server: ... server.fault("op=get,nth=1,do=reset:100")"""

    def __init__(self, *flags):
        self.process = subprocess.Popen([BUILD / "tests/bucket_server", "--die-with-parent", *flags],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.certificate = flags[flags.index("--tls") + 1] if "--tls" in flags else None
        self.is_narrow = "--connections" in flags
        self.trust = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        self.url = f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path, method="GET", data=None):
        """Past all rules: for a test's own requests."""
        request = urllib.request.Request(self.url + path, method=method, data=data, headers={"x-without-faults": "1"})
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30, context=self.trust) as reply:
                    return reply.read()
            except OSError:
                if not self.is_narrow or self.process.poll() is not None:
                    raise
                time.sleep(0.02)  # it has not seen yet that another connection ended

    def fault(self, *rules):
        self.ask("/_fault", "POST", "\n".join(rules).encode())

    def fired(self):
        """How often each rule was met, in the order in which they were given."""
        return json.loads(self.ask("/_fault"))

    def no_faults(self):
        self.ask("/_fault", "DELETE")

    def stats(self):
        return json.loads(self.ask("/_stats"))

    def forget_stats(self):
        self.ask("/_stats", "DELETE")

    def put(self, key, content):
        self.ask("/bench/" + urllib.parse.quote(key), "PUT", content)

    def remove(self, key):
        self.ask("/bench/" + urllib.parse.quote(key), "DELETE")

    def remove_below(self, prefix):
        for key in self.uploads():
            if key.startswith(prefix):
                self.remove(key)

    def uploads(self):
        return [json.loads(line)["key"] for line in self.ask("/_objects").splitlines() if line]

    def content(self, key):
        return self.ask("/bench/" + urllib.parse.quote(key))
