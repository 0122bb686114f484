# SPDX-License-Identifier: Apache-2.0
"""Nodes and disks that are gone, and come back."""

import pytest

from e2e.lib.machine import eventually
from e2e.lib.ours import API, await_nodes

NODE = "node-b"


@pytest.fixture
def node(cluster, cistern):
    found = cluster.nodes[NODE]
    yield found
    if "kubelet" not in found.daemons:  # off, or its boot failed half-way
        found.reboot()
    cluster.await_nodes()
    await_nodes(cluster)


def on_node(pod):
    pod["spec"].update(nodeSelector={"kubernetes.io/hostname": NODE}, restartPolicy="Always")
    return pod


def condition(volume, kind):
    return next((c for c in volume["status"].get("conditions", []) if c["type"] == kind), {"status": None})


def has_event(cluster, about, reason):
    return [e["message"] for e in cluster.api.list("/api/v1/events")
            if e["reason"] == reason and e["involvedObject"]["name"] == about]


def test_a_node_that_is_gone_gives_up_what_is_released_and_has_the_rest_when_it_comes_back(cluster, team, node):
    for name in ("gone", "kept"):
        team.apply(team.claim(name, size="64Mi"), on_node(team.pod(name, name, "echo mine >/data/file; sync; sleep 3600")))
    for name in ("gone", "kept"):
        team.await_pod(name)
    gone, kept = team.volume("gone"), team.volume("kept")
    node.power_off()
    cluster.kubectl("delete", "node", NODE)
    team.delete("pod/gone", "pod/kept", "--force", "--grace-period=0")
    team.delete("pvc/gone")  # it does not wait for the node
    pv = f"/api/v1/persistentvolumes/{gone['metadata']['name']}"
    # external-provisioner asks again after 30 s at most.
    eventually(lambda: not cluster.api.exists(pv), "its PersistentVolume goes when the grace is over", 120)
    tomb = cluster.api.get(f"{API}/cisternvolumes/{gone['metadata']['name']}")
    assert tomb["status"]["phase"] == "Lost" and condition(tomb, "NodeGone")["status"] == "True"
    assert "lost with node node-b" in condition(tomb, "NodeGone")["message"]
    eventually(lambda: has_event(cluster, "kept", "VolumeLost") or has_event(cluster, kept["metadata"]["name"], "VolumeLost"),
               "an event tells of the other one", 30)
    assert cluster.api.get(f"/api/v1/namespaces/{team.name}/persistentvolumeclaims/kept")["status"]["phase"] == "Bound"

    node.boot()
    cluster.await_nodes()
    eventually(lambda: not cluster.api.exists(f"{API}/cisternvolumes/{gone['metadata']['name']}"),
               "what was released is gone from the disk too", 90)
    assert node.run("ls", "/mnt/disks/cistern/volumes").split() == [kept["spec"]["volumeID"]]
    eventually(lambda: condition(team.volume("kept"), "NodeGone")["status"] == "False", "the other one is itself again", 30)
    team.apply(on_node(team.pod("again", "kept", "cat /data/file; sleep 3600")))
    team.await_pod("again")
    team.await_logs("again", "mine\n")


def test_a_disk_that_was_replaced_is_noticed_and_each_volume_goes_on_as_its_claim_says(cluster, store, team, node):
    bucket = store.bucket({"given": b"from the bucket\n"})
    team.apply(team.source("set", f"s3://{bucket}/"))
    script = "cat /data/given; test -e /data/own && echo own; echo mine >/data/own; sync; sleep 3600"
    for policy in ("fail", "rehydrate", "empty"):
        team.apply(team.claim(policy, "set", size="64Mi", **{"cistern.io/on-data-loss": policy}),
                   on_node(team.pod(policy, policy, script)))
    for policy in ("fail", "rehydrate", "empty"):
        team.await_pod(policy)
        team.await_logs(policy, "from the bucket\n")
    before = {p: cluster.pod(p, team.name)["status"]["containerStatuses"][0]["containerID"] for p in ("rehydrate", "empty")}
    pool = f"{API}/cisternpools/{NODE}.default"
    uuid = cluster.api.get(pool)["status"]["poolUUID"]
    node.power_off()
    node.wipe_pool()
    node.boot()
    missing = eventually(lambda: [p for p in [cluster.api.get(pool)] if p["status"]["health"]["status"] == "Unhealthy"],
                         "the pool is missed, not made again", 120)[0]
    assert "CIS2045" in missing["status"]["health"]["reason"] and missing["status"]["poolUUID"] == uuid
    eventually(lambda: condition(team.volume("rehydrate"), "Healthy").get("reason") == "PoolAbsent", "its volumes wait", 60)
    cluster.kubectl("annotate", "cisternpool", f"{NODE}.default", f"cistern.io/replace-pool={uuid}")

    def again(policy):
        status = cluster.pod(policy, team.name)["status"]["containerStatuses"][0]
        return status["ready"] and status["containerID"] != before[policy]

    eventually(lambda: again("rehydrate"), "a pod has its data again", 120)
    team.await_logs("rehydrate", "from the bucket\n")  # without its own file
    eventually(lambda: again("empty"), "a pod has an empty volume", 60)
    eventually(lambda: "No such file" in team.logs("empty"), "the pod looks for the file of the bucket", 20)
    assert "own" not in team.logs("empty")
    lost = eventually(lambda: [v for v in [team.volume("fail")] if v["status"]["phase"] == "Lost"], "the third is lost", 60)[0]
    assert "data is lost" in condition(lost, "Healthy")["message"]
    said = eventually(lambda: has_event(cluster, "fail", "FailedMount"), "its pod is told so", 90)
    assert any("CIS2046" in text and "set onDataLoss: rehydrate, or delete the claim" in text for text in said), said
    assert not cluster.pod("fail", team.name)["status"]["containerStatuses"][0]["ready"]
