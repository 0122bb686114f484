# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes addresses of this machine every half second, and promtool."""

import json
import subprocess
import urllib.parse
import urllib.request

import yaml

from paths import CACHE

from .process import Server

BIN = CACHE / "prometheus/bin"


def promtool(*arguments):
    return subprocess.run([BIN / "promtool", *map(str, arguments)], capture_output=True, text=True)


class Prometheus(Server):
    def __init__(self, targets, rules):
        super().__init__("prometheus")
        (self.root / "rules.yaml").write_text(yaml.safe_dump(rules))
        (self.root / "prometheus.yaml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"}, "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "cistern", "honor_labels": True, "static_configs": [{"targets": targets}]}]}))

    def command(self):
        return [str(BIN / "prometheus"), f"--config.file={self.root}/prometheus.yaml", f"--storage.tsdb.path={self.root}/data",
                f"--web.listen-address={self.host}:{self.port}"]

    def ready(self):
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
            return answer.status == 200

    def get(self, path, **fields):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(fields)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.get("query", query=expression)["result"]
