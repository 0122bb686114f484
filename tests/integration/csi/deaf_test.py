# SPDX-License-Identifier: Apache-2.0
"""The CSI socket when accept(2) fails: the driver answers again afterwards, and a driver that does not is not alive."""
import re
import resource
import socket
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest

from integration.node.agent import Node
from paths import BUILD

from .driver import Driver, csi, csi_grpc, wait_for


@pytest.fixture
def start(folder):
    drivers = []

    def start(role=Driver, **env):
        drivers.append(role(folder, flags=["--metrics=127.0.0.1:0"], env=env).start())
        return drivers[-1]
    yield start
    for d in drivers:
        d.clean_up()


def health(driver):
    """(status, body) of /healthz."""
    port = re.search(r'event="metrics are served" port=(\d+)', driver.log_text()).group(1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def answers(driver):
    """On a connection of its own: gRPC would use that of another channel again."""
    with grpc.insecure_channel(f"unix:{driver.socket}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        try:
            return csi_grpc.IdentityStub(channel).Probe(csi.ProbeRequest(), timeout=2).ready.value
        except grpc.RpcError:
            return False


def connect(driver):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(str(driver.socket))
    return s


def test_driver_without_descriptors_hangs_up_and_answers_once_it_has_some(start):
    driver = start()
    pid = driver.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(p.name) for p in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    connections = []
    for _ in range(highest + 64):
        connections.append(connect(driver))
    ours = [s for s in connections if not s.recv(1)]  # the others were sent HTTP/2 settings
    assert ours, "nobody met the limit"
    assert not answers(driver), "the limit has no effect"
    cpu = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    for s in connections:
        s.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    wait_for(lambda: answers(driver), 20)
    assert health(driver)[0] == 200
    assert sum(map(int, cpu)) < 1000, "ticks of 10 ms: it spun"


@pytest.mark.parametrize("errno", [24, 23, 12, 103], ids=["EMFILE", "ENFILE", "ENOMEM", "ECONNABORTED"])
def test_driver_survives_one_failed_accept(start, errno):
    driver = start(LD_PRELOAD=str(BUILD / "tests/libfail_call.so"), CISTERN_FAIL_NAME="accept4",
                   CISTERN_FAIL_PROGRAM="cisternd", CISTERN_FAIL_AT="1", CISTERN_FAIL_ERRNO=str(errno))
    wait_for(lambda: answers(driver), 20)
    assert health(driver)[0] == 200


@pytest.mark.parametrize("role", [Driver, Node], ids=["standalone", "node"])
def test_driver_whose_listener_is_dead_is_not_alive(start, role):
    driver = start(role, LD_PRELOAD=str(BUILD / "tests/libfail_call.so"), CISTERN_FAIL_NAME="accept4", CISTERN_FAIL_STAYS="1",
                   CISTERN_FAIL_PROGRAM="cisternd", CISTERN_FAIL_NOT="libmicrohttpd", CISTERN_FAIL_AT="4",
                   CISTERN_FAIL_ERRNO="9")
    wait_for(lambda: not answers(driver), 20)
    status, body = health(driver)
    assert status == 503 and "Identity.Probe" in body
    assert "Identity.Probe failed" in driver.log_text()
