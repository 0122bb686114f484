# SPDX-License-Identifier: Apache-2.0
"""Deletions at every moment and in any order, and nodes that are full: all end, and nothing is left."""

import os
import random

import pytest

from e2e.lib.machine import eventually
from e2e.lib.orders import kill
from e2e.lib.ours import API, NAMESPACE
from e2e.lib.stories import explained, nothing_is_left

CLAIMS = int(os.environ.get("CISTERN_E2E_CLAIMS", "24"))  # 100 before a release
SEED = int(os.environ.get("CISTERN_E2E_SEED", "1"))


def start_slowly(store, team, slow):
    """A claim that is being filled: its Job runs."""
    bucket = store.bucket({f"part-{n}": random.Random(n).randbytes(1 << 20) for n in range(32)})
    claim = team.claim("set", "set")
    claim["spec"]["storageClassName"] = slow
    team.apply(team.source("set", f"s3://{bucket}/"), claim, team.pod("reader", "set", "sleep 3600"))
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    eventually(lambda: [j for j in team.cluster.api.list(jobs) if j["status"].get("active")], "a Job copies", 60)
    eventually(lambda: team.volume("set")["status"]["phase"] == "Hydrating", "the volume says so", 30)


@pytest.mark.parametrize("first", ["pvc/set", "bucketsource/set", "storageclass/slow", "pod/reader", "everything"])
def test_objects_of_a_volume_being_filled_can_be_deleted_in_any_order(cluster, store, team, slow, first):
    start_slowly(store, team, slow)
    if first == "everything":
        cluster.kubectl("delete", "namespace", team.name, "--timeout=120s", timeout=150)
        return
    cluster.kubectl("delete", first, "-n", team.name, "--wait=false")
    team.delete("pod/reader", "pvc/set", "--ignore-not-found")
    assert not cluster.api.exists(f"/api/v1/namespaces/{team.name}/persistentvolumeclaims/set")


def test_pod_without_room_for_its_volume_waits(cluster, team):
    for name in ("first", "second", "third"):
        team.apply(team.claim(name, size="7Gi"), team.pod(name, name, "sleep 3600"))
    nodes = set()
    for _ in range(2):
        def two_running_nodes():
            found = {p["metadata"]["name"]: p for p in cluster.api.list(f"/api/v1/namespaces/{team.name}/pods")}
            running = {p["spec"].get("nodeName") for p in found.values() if p["status"]["phase"] == "Running"}
            return running if len(running) == 2 else None

        nodes = eventually(two_running_nodes, "two pods run, on different nodes", 90, 0.5)
    assert nodes == set(cluster.nodes)
    waiting = [p for p in cluster.api.list(f"/api/v1/namespaces/{team.name}/pods") if p["status"]["phase"] == "Pending"]
    assert len(waiting) == 1
    running = next(p for p in cluster.api.list(f"/api/v1/namespaces/{team.name}/pods") if p["status"]["phase"] == "Running")
    name = running["metadata"]["name"]
    team.delete(f"pod/{name}", f"pvc/{name}")
    team.await_pod(waiting[0]["metadata"]["name"], seconds=120)


@pytest.mark.timeout(300 + 15 * CLAIMS)
def test_many_claims_at_once_survive_kills_and_go_in_any_order(cluster, store, team):
    chance = random.Random(SEED)
    bucket = store.bucket({f"part-{n}": random.Random(n).randbytes(50_000) for n in range(10)})
    names = [f"set-{n}" for n in range(CLAIMS)]
    team.apply(team.source("set", f"s3://{bucket}/"))
    core = f"/api/v1/namespaces/{team.name}"
    for name in names:  # kubectl would hold itself back
        cluster.api.create(f"{core}/persistentvolumeclaims", team.claim(name, "set", size="64Mi"))
        cluster.api.create(f"{core}/pods", team.pod(name, name, "cat /data/part-* | wc -c; exec sleep 3600"))

    def kill_one():
        node = chance.choice(sorted(cluster.nodes))
        cluster_node = cluster.nodes[node]
        if chance.random() < 0.5:
            kill(cluster_node, "cisternd")  # of the node, and of a controller that is there
        else:
            victim = chance.choice(cluster.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector="
                                                    "app.kubernetes.io/component=controller"))
            cluster.kubectl("delete", "pod", victim["metadata"]["name"], "-n", NAMESPACE, "--wait=false",
                            "--ignore-not-found")

    for _ in range(2):
        eventually(lambda: len(cluster.api.list(f"{API}/cisternvolumes")) > CLAIMS // 4, "some are under way", 120, 0.5)
        kill_one()

    def all_run():
        pods = cluster.api.list(f"/api/v1/namespaces/{team.name}/pods")
        late = [p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"]
        if late:
            raise AssertionError(f"not running: {late}")
        return True

    explained(cluster, all_run, "every pod runs", 60 + 8 * CLAIMS)
    for name in chance.sample(names, 5):
        team.await_logs(name, "500000\n")
    chance.shuffle(names)
    for count, name in enumerate(names):
        what = [f"{core}/pods/{name}", f"{core}/persistentvolumeclaims/{name}"]
        chance.shuffle(what)
        for path in what:
            cluster.api.delete(path)
        if count % (CLAIMS // 3) == 1:
            kill_one()
    nothing_is_left(cluster, 90 + 6 * CLAIMS)
