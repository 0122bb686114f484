# SPDX-License-Identifier: Apache-2.0
"""`helm uninstall` while claims are at every stage: no finalizer of Cistern holds a user's object, and no data is lost."""

from e2e.lib import ours
from e2e.lib.machine import eventually

MIB = 1 << 20


def finalizers(team, claim):
    found = team.cluster.api.get(f"/api/v1/namespaces/{team.name}/persistentvolumeclaims/{claim}")
    return [f for f in found["metadata"].get("finalizers", []) if "cistern" in f]


def phase(team, claim):
    try:
        return team.volume(claim)["status"]["phase"]
    except (StopIteration, KeyError):
        return None


def test_uninstall_at_every_stage_of_a_claim_leaves_no_finalizer(cluster, store, team, slow):
    bucket = store.bucket({"given": bytes(16 * MIB)})
    team.apply(team.source("large", f"s3://{bucket}/"),
               team.source("home", export={"uri": "s3://not-made-yet/run/", "settle": "0s"}))
    waiting, filling = team.claim("waiting", "large"), team.claim("filling", "large")
    filling["spec"]["storageClassName"] = slow
    team.apply(team.claim("released", size="64Mi", **{"cistern.io/export-policy": "home"}), team.claim("bound", size="64Mi"))
    for name in ("released", "bound"):
        team.apply(team.pod(name, name, "echo mine >/data/file; sync; sleep 3600"))
        team.await_pod(name)
    uid = team.volume("released")["metadata"]["name"]
    eventually(lambda: team.exec("released", "cat", "/data/file") == "mine\n", "it is written")
    team.delete("pod/released", "pvc/released")
    team.apply(waiting, filling, team.pod("filling", "filling", "sleep 3600"))
    eventually(lambda: phase(team, "filling") == "Hydrating", "a claim is being filled", 60)
    eventually(lambda: finalizers(team, "filling"), "it is guarded", 30)

    done = ours.helm(cluster, "uninstall", "cistern", "--wait", check=False)
    said = done.stderr  # where Helm prints what a hook says
    assert done.returncode == 0, said
    assert f"claim {team.name}/filling: hydration stopped" in said
    assert f"volume {uid} of claim {team.name}/released: kept on node" in said
    assert f"pod {team.name}/bound: access to claim bound fails with ENOTCONN" in said
    for claim in ("waiting", "filling", "bound"):
        assert finalizers(team, claim) == []
    assert cluster.api.list(f"/apis/coordination.k8s.io/v1/namespaces/{ours.NAMESPACE}/leases") == []
    for kind in ("secrets", "configmaps"):
        names = {o["metadata"]["name"] for o in cluster.api.list(f"/api/v1/namespaces/{ours.NAMESPACE}/{kind}")}
        assert not {n for n in names if n.startswith("cistern-broker")}, names
    team.delete("pod/filling", "--force", "--grace-period=0")
    team.delete("pvc/filling", "pvc/waiting")  # without waiting
    team.delete("pod/bound", "--force", "--grace-period=0")

    ours.install(cluster)
    ours.await_nodes(cluster)
    store.make_bucket("not-made-yet")
    eventually(lambda: "run/file" in store.keys("not-made-yet"), "what was not exported is in the bucket", 120)
    assert store.read("not-made-yet", "run/file") == b"mine\n"
    eventually(lambda: phase(team, "filling") is None and phase(team, "released") is None, "the volumes are gone", 120)
    team.apply(team.pod("bound-again", "bound", "sleep 3600"))
    team.await_pod("bound-again")
    assert team.exec("bound-again", "cat", "/data/file") == "mine\n"
