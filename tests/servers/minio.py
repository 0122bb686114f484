# SPDX-License-Identifier: Apache-2.0
"""The second opinion on S3: https://github.com/minio/minio."""

import json
import os
import re
import subprocess
import urllib.request

from paths import CACHE

from .process import Server, free_port

ACCESS_KEY, SECRET_KEY, REGION = "cistern-access", "cistern-secret", "us-east-1"
EXAMPLE_BUCKET = "acme-runs"


class Minio(Server):
    def __init__(self):
        super().__init__("minio")
        self.data = self.root / "data"
        self.data.mkdir()
        self.console = free_port()

    def command(self):
        return [str(CACHE / "bin/minio"), "server", "--quiet", "--address", f"127.0.0.1:{self.port}",
                "--console-address", f"127.0.0.1:{self.console}", str(self.data)]

    def environment(self):
        return dict(os.environ, MINIO_ROOT_USER=ACCESS_KEY, MINIO_ROOT_PASSWORD=SECRET_KEY, MINIO_REGION=REGION,
                    MINIO_UPDATE="off", MINIO_CALLHOME_ENABLE="off", CI="1", HOME=str(self.root))

    def ready(self):
        with urllib.request.urlopen(f"{self.url}/minio/health/cluster", timeout=1) as answer:
            return answer.status == 200

    def make_bucket(self, name):
        (self.data / name).mkdir()

    def session(self, policy):
        """Key, secret and token of a session that may do no more than the policy."""
        words = {"Action": "AssumeRole", "Version": "2011-06-15", "Policy": json.dumps(policy)}
        said = subprocess.run(["curl", "-sS", "--aws-sigv4", f"aws:amz:{REGION}:sts", "--user", f"{ACCESS_KEY}:{SECRET_KEY}",
                               self.url + "/", *(part for name, text in words.items() for part in ("--data-urlencode", f"{name}={text}"))],
                              capture_output=True, text=True, check=True).stdout
        return [re.search(f"<{name}>(.*)</{name}>", said).group(1) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
