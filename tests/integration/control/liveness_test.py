# SPDX-License-Identifier: Apache-2.0
"""The liveness probe of the controller."""

import re
import urllib.error
import urllib.request

import pytest

from integration.lib import threads
from integration.lib.control import Controller, eventually

def health(controller):
    """(status, body) of /healthz."""
    port = re.search(r'event="metrics are served" port=(\d+)', controller.log_text()).group(1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


@pytest.mark.timeout(300)
def test_controller_whose_api_loop_is_stuck_is_not_alive(cluster, tmp_path):
    controller = Controller(cluster, tmp_path, flags=["--metrics=127.0.0.1:0"]).start()
    try:
        assert health(controller)[0] == 200
        loop, = threads.find(controller.process.pid, "loop/0")
        threads.stop(loop)  # most of the time it waits for events: it does not get them any more
        status, text = eventually(lambda: (h := health(controller))[0] != 200 and h, 120)
        assert status == 503 and "'loop/0' is stuck" in text
        threads.go_on(loop)
        eventually(lambda: health(controller)[0] == 200)
    finally:
        controller.kill()
