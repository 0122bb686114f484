# SPDX-License-Identifier: Apache-2.0
"""A node whose pool the kernel has made read-only, or whose disk has failed."""
import pytest

from integration.csi.absent_test import stop_machine
from integration.csi.driver import wait_for
from integration.csi.read_only_test import break_ext4, kill_ext4, repair, write_durably

from .absent_test import agent  # noqa: F401
from .agent import blank, exporting, job
from .events_test import about, events


def test_read_only_pool_becomes_unhealthy_with_its_cause(agent, orders, cluster):  # noqa: F811
    orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Healthy")
    break_ext4(agent.pool)
    pool = orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Unhealthy", seconds=180)
    assert "CIS1522" in pool["status"]["health"]["reason"], pool["status"]
    wait_for(lambda: ("CisternPool", "node-1.default") in about(events(cluster, "PoolUnhealthy")))


@pytest.mark.parametrize("break_pool", [break_ext4, kill_ext4])
def test_an_export_is_due_after_the_repair_of_a_disk_that_failed_under_its_last_pod(agent, orders, folder, break_pool):  # noqa: F811
    volume = orders.make("pvc-1", source=exporting(folder), **blank())
    agent.stage(volume)
    write_durably(agent.publish(volume) / "ckpt", "words")
    break_pool(agent.pool)
    agent.unpublish(volume)
    agent.unstage(volume)
    stop_machine(agent)
    repair(agent)
    agent.start()
    orders.wait("pvc-1", "Exported", "False", "ExportDue")
    assert job("export", agent.folder_of(volume), "--for", "unpublish").wait(30) == 0
    orders.wait("pvc-1", "Exported", "True", "Confirmed")
    assert (folder / "out" / "ckpt").read_text() == "words"
