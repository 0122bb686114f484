# SPDX-License-Identifier: Apache-2.0
"""Events and metrics of a node."""

import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from integration.csi.driver import Mode, ask_until_ready, capability, command_line, wait_for

from paths import BUILD

from .agent import API, MIB, Node, blank, bucket, job, wipe


SHARED = capability(Mode.SINGLE_NODE_MULTI_WRITER)


def events(cluster, reason):
    return [e for e in cluster.get("/api/v1/events")["items"] if e["reason"] == reason]


def about(found):
    return {(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for e in found}


def claimed(orders, name):
    """An order of a claim, as the controller writes it."""
    orders.cluster.patch(f"{API}/cisternvolumes/{name}", {"spec": {
        "claim": f"default/{name}-claim", "claimRef": {"namespace": "default", "name": f"{name}-claim", "uid": "u-1"}}})
    orders.bump()


def test_a_lost_volume_is_an_event_of_its_claim_once(agent, orders, cluster):
    orders.make("pvc-event", **blank())
    claimed(orders, "pvc-event")
    wipe(agent, orders)
    orders.wait_phase("pvc-event", "Lost")
    wait_for(lambda: ("PersistentVolumeClaim", "pvc-event-claim") in about(events(cluster, "VolumeLost")))
    found = [e for e in events(cluster, "VolumeLost") if e["involvedObject"]["name"].startswith("pvc-event")]
    assert about(found) == {("PersistentVolumeClaim", "pvc-event-claim"), ("CisternVolume", "pvc-event")}
    assert all("node node-1: pool 'default'" in e["message"] and e["type"] == "Warning" for e in found)
    assert {e["source"]["component"] for e in found} == {"cistern-node"}
    agent.stop()
    agent.start()
    orders.bump()
    time.sleep(1)
    assert len([e for e in events(cluster, "VolumeLost") if e["involvedObject"]["name"].startswith("pvc-event")]) == 2


def test_a_pool_that_is_not_there_is_an_event_of_the_node_and_so_is_its_return(agent, orders, cluster):
    orders.wait_for_pool()
    pool = agent.pools["default"]
    pool.rename(pool.with_name("elsewhere"))
    pool.mkdir()
    orders.wait_for_pool(lambda p: p["status"]["health"]["status"] == "Unhealthy")  # earlier tests leave events
    wait_for(lambda: about(events(cluster, "PoolUnhealthy")) == {("Node", "node-1"), ("CisternPool", "node-1.default")})
    pool.rmdir()
    pool.with_name("elsewhere").rename(pool)
    wait_for(lambda: ("Node", "node-1") in about(events(cluster, "PoolHealthy")))


def test_a_pool_whose_disks_are_missing_is_unhealthy_and_the_other_pools_are_served(folder, orders, cluster):
    n = Node(folder, ("default", "fast"), flags=["--disks=fast=path:/dev/missing*"], kubeconfig=cluster.kubeconfig)
    try:
        n.start()
        volume_id = orders.make("pvc-other-pool", **blank())
        pool = orders.wait_for_pool(lambda p: p["status"].get("health", {}).get("status") == "Unhealthy", "fast")
        assert "CIS2040" in pool["status"]["health"]["reason"], pool
        wait_for(lambda: {("Node", "node-1"), ("CisternPool", "node-1.fast")} <= about(events(cluster, "PoolUnhealthy")))
        n.stage(volume_id)
        (n.publish(volume_id) / "file").write_text("words")
    finally:
        n.end()


def test_a_mount_that_the_keeper_gave_up_is_reported_and_restored_with_the_pod(agent, orders, cluster, folder):
    volume_id = orders.make("pvc-given-up", **blank(access="fuse"))
    claimed(orders, "pvc-given-up")
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    (target / "kept").write_text("kept")
    orders.wait("pvc-given-up", "Mounted", "True")
    older = agent.keeper
    agent.start_keeper("--mount-program=/bin/false")
    assert older.wait(60) == 0
    assert "ENOTCONN" in orders.wait("pvc-given-up", "Mounted", "False", "MountsLost", seconds=120)["message"]
    wait_for(lambda: ("PersistentVolumeClaim", "pvc-given-up-claim") in about(events(cluster, "MountsLost")))
    with pytest.raises(OSError):
        (target / "kept").read_text()
    older = agent.keeper
    agent.start_keeper()
    assert older.wait(60) == 0
    agent.unpublish(volume_id)
    assert (ask_until_ready(agent, volume_id, "second") / "kept").read_text() == "kept"
    orders.wait("pvc-given-up", "Mounted", "True", "Published")
    agent.unpublish(volume_id, "second")
    agent.unstage(volume_id)


def test_mounts_lost_with_keeper_and_driver_at_once_are_reported_and_restored_with_the_pod(agent, orders, cluster):
    volume_id = orders.make("pvc-mounts", **blank(access="fuse"))
    claimed(orders, "pvc-mounts")
    agent.stage(volume_id, SHARED)
    target = agent.publish(volume_id, cap=SHARED)
    (target / "kept").write_text("kept")
    orders.wait("pvc-mounts", "Mounted", "True")
    agent.process.kill()
    agent.keeper.kill()
    agent.process.wait()
    agent.keeper.wait()
    agent.keeper = None
    (agent.state / "keeper.sock").unlink(missing_ok=True)
    agent.start()
    assert "ENOTCONN" in orders.wait("pvc-mounts", "Mounted", "False", "MountsLost", seconds=90)["message"]
    wait_for(lambda: ("PersistentVolumeClaim", "pvc-mounts-claim") in about(events(cluster, "MountsLost")))
    with pytest.raises(OSError):
        (target / "kept").read_text()
    assert (agent.publish(volume_id, pod="second", cap=SHARED) / "kept").read_text() == "kept"
    orders.wait("pvc-mounts", "Mounted", "True", "Published", seconds=30)  # before the next look of each minute
    with pytest.raises(OSError):
        (target / "kept").read_text()
    for pod in ("pod", "second"):
        agent.unpublish(volume_id, pod)
    agent.unstage(volume_id)
    agent.stage(volume_id)
    assert (agent.publish(volume_id, cap=SHARED) / "kept").read_text() == "kept"
    orders.wait("pvc-mounts", "Mounted", "True", "Published")


def test_mounts_that_a_later_keeper_brings_back_are_no_longer_reported_as_lost(agent, orders):
    """The mount of a version whose tables this keeper cannot read waits in the driver for one that can."""
    newest = {"program": BUILD / "tests/keeper_newest"}
    agent.keeper.terminate()
    agent.keeper.wait()
    agent.start_keeper(f"--mount-program={BUILD}/tests/mount_newest", **newest)
    volume_id = orders.make("pvc-back", **blank(access="fuse"))
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    (target / "kept").write_text("kept")
    orders.wait("pvc-back", "Mounted", "True", "Published")

    def replace_keeper(*flags, **program):
        agent.keeper.kill()
        agent.keeper.wait()
        agent.start_keeper(*flags, **program)
    replace_keeper()
    orders.wait_touching("pvc-back", "Mounted", "False", "MountsLost")
    replace_keeper(f"--mount-program={BUILD}/tests/mount_newest", **newest)
    assert (target / "kept").read_text() == "kept"
    orders.wait("pvc-back", "Mounted", "True", "Published", seconds=30)


@pytest.fixture
def scraped(folder, cluster, orders):
    """A node whose metrics are never old."""
    n = Node(folder, kubeconfig=cluster.kubeconfig, flags=("--metrics=127.0.0.1:0", "--metrics-interval=200ms"))
    yield n.start()
    n.end()


def scrape(node):
    port = next(line.split("port=")[1].split()[0] for line in reversed(node.log_text().splitlines()) if "metrics are served" in line)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))


def test_metrics_count_what_was_hydrated_and_show_each_claim_only_if_asked(scraped, folder, orders):
    n = scraped
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)})
    claimed(orders, "pvc-1")
    assert job("hydrate", n.folder_of(volume_id)).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    labels = '{node="node-1",scheme="file",result="ok"}'
    wait_for(lambda: scrape(n).get("cistern_hydration_bytes_total" + labels) == "3000")
    wait_for(lambda: scrape(n).get("cistern_hydration_objects_total" + labels) == "3")
    assert scrape(n)['cistern_hydration_seconds_count{scheme="file",mode="eager",result="ok"}'] == "1"
    assert not any(name.startswith("cistern_volume_hydrated_ratio") for name in scrape(n))
    n.stop()
    n.flags = (*n.flags, "--metrics-per-volume")
    n.start()
    wait_for(lambda: scrape(n).get('cistern_volume_hydrated_ratio{namespace="default",claim="pvc-1-claim"}') == "1")
    assert scrape(n).get("cistern_hydration_bytes_total" + labels, "0") == "0"  # not counted twice


def test_a_mount_process_that_is_started_again_is_counted(scraped, orders):
    n = scraped
    volume_id = orders.make("pvc-1", **blank(access="fuse"))
    n.stage(volume_id)
    target = n.publish(volume_id)
    name = 'cistern_fuse_handover_total{node="node-1",result="ok"}'
    wait_for(lambda: scrape(n).get(name) == "0")
    time.sleep(0.5)  # a look at the mount before its process goes
    tasks = [path.read_text() for path in Path(f"/proc/{n.keeper.pid}/task").glob("*/children")]
    served = [int(pid) for pid in " ".join(tasks).split() if "cistern-mount" in command_line(int(pid))]
    assert len(served) == 1
    os.kill(served[0], signal.SIGKILL)
    wait_for(lambda: scrape(n).get(name) == "1")
    (target / "still").write_text("there")
    n.unpublish(volume_id)
    n.unstage(volume_id)


def test_a_full_volume_is_unhealthy_and_reported_and_its_neighbour_is_not(agent, orders, cluster):
    full, other = (orders.make(name, **blank()) for name in ("pvc-full", "pvc-other"))
    for volume_id in (full, other):
        agent.stage(volume_id)
        agent.publish(volume_id)
    with pytest.raises(OSError), open(agent.target(full) / "a", "wb") as f:
        while f.write(bytes(MIB)):
            os.fsync(f.fileno())
    orders.bump()
    assert "are left" in orders.wait("pvc-full", "Healthy", "False", "VolumeFull")["message"]
    wait_for(lambda: ("CisternVolume", "pvc-full") in about(events(cluster, "VolumeFull")))
    assert orders.has_condition("pvc-other", "Healthy", "True")
    stats = agent.client.call("NodeGetVolumeStats", volume_id=full, volume_path=str(agent.target(full)))
    assert stats.volume_condition.abnormal and "left" in stats.volume_condition.message
    (agent.target(full) / "a").unlink()
    orders.wait_touching("pvc-full", "Healthy", "True")


def test_a_hydration_whose_store_does_not_answer_says_so_while_it_retries(agent, orders, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    source = {"uri": "s3://bench/p/", "region": "us-east-1", "endpoint": "http://127.0.0.1:1", "retry": {"maxAttempts": 1000}}
    volume_id = orders.make("pvc-1", source=source)
    run = job("hydrate", agent.folder_of(volume_id))
    try:
        said = orders.wait("pvc-1", "Hydrated", "False", "Retrying")["message"]
        assert said.startswith("no request succeeds: s3://bench/p/: cannot connect to 'http://127.0.0.1:1'"), said
        status = orders.status("pvc-1")
        assert status["phase"] == "Listing" and status["errors"][0]["id"] == "CIS1611"
        assert run.poll() is None, "the hydration ended"
    finally:
        run.kill()
        run.wait(30)
