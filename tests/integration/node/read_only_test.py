# SPDX-License-Identifier: Apache-2.0
"""A node whose pool the kernel has made read-only."""
from integration.csi.driver import wait_for
from integration.csi.read_only_test import break_ext4

from .absent_test import agent  # noqa: F401
from .events_test import about, events


def test_read_only_pool_becomes_unhealthy_with_its_cause(agent, orders, cluster):  # noqa: F811
    orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Healthy")
    break_ext4(agent.pool)
    pool = orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Unhealthy", seconds=180)
    assert "CIS1522" in pool["status"]["health"]["reason"], pool["status"]
    wait_for(lambda: ("CisternPool", "node-1.default") in about(events(cluster, "PoolUnhealthy")))
