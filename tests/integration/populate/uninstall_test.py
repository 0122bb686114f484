# SPDX-License-Identifier: Apache-2.0
"""The chart's hook before `helm uninstall`: claims of every stage can be deleted afterwards, no volume is touched, and the
remaining objects are listed."""
import subprocess

import pytest

from integration.lib.claims import API, OURS, running_world, wait_for
from paths import BUILD

FINALIZER = "cistern.io/populate-target-protection"


@pytest.fixture(scope="module")
def world():
    with running_world() as w:
        yield w


def uninstall(world):
    return subprocess.run([BUILD / "bin/cisternd", "--role=uninstall", f"--namespace={OURS}",
                           f"--kubeconfig={world.cluster.kubeconfig}"], capture_output=True, text=True, timeout=120, check=False)


def finalizers(world, ns, name):
    return world.claim(ns, name)["metadata"].get("finalizers", [])


def exporting_volume(world, ns):
    """A volume whose claim is gone and whose export is under way."""
    world.make_claim(ns, "released")
    world.make_pod(ns, "released", "pod-of-released")
    name = world.wait_for_bound(ns, "released")["spec"]["volumeName"]
    wait_for(lambda: FINALIZER not in finalizers(world, ns, "released"))
    world.every_node(exports=False)
    world.end_pod(ns, "pod-of-released")
    world.delete_claim(ns, "released")
    wait_for(lambda: any(v["metadata"]["name"] == name and v.get("status", {}).get("phase") == "Exporting" for v in world.volumes()))
    return name


def test_uninstalling_frees_claims_of_every_stage_and_touches_no_volume(world):
    world.make_namespace("team")
    world.make_source("team")
    released = exporting_volume(world, "team")
    world.make_claim("team", "bound")
    world.make_pod("team", "bound", "pod-of-bound")
    world.wait_for_bound("team", "bound")
    world.every_node(hydrates=False)
    world.make_claim("team", "filling")
    world.make_pod("team", "filling", "pod-of-filling")
    wait_for(lambda: any(v["spec"]["claimRef"]["name"] == "filling" and v.get("status", {}).get("phase") == "Hydrating"
                         for v in world.volumes()))
    world.make_claim("team", "waiting")  # for a pod, and so for a node
    wait_for(lambda: FINALIZER in finalizers(world, "team", "filling"))
    world.cluster.kubectl("patch", "pod", "pod-of-bound", "-n", "team", "--subresource=status", "--type=merge",
                          "--patch", '{"status": {"phase": "Running"}}')
    before = {v["metadata"]["name"]: v["spec"] for v in world.volumes()}
    world.kill("controller0")  # what the hook does by scaling the Deployment to nothing
    done = uninstall(world)
    assert done.returncode == 0, done.stderr
    for name in ("bound", "filling", "waiting"):
        assert not [f for f in finalizers(world, "team", name) if "cistern" in f]
    assert "claim team/filling: hydration stopped" in done.stdout and "install Cistern again to resume it" in done.stdout
    assert f"volume {released} of claim team/released: kept on node" in done.stdout and "(Exporting)" in done.stdout
    assert "pod team/pod-of-bound: access to claim bound fails with ENOTCONN" in done.stdout
    assert "pod-of-filling" not in done.stdout, "it has no mount yet"
    assert {v["metadata"]["name"]: v["spec"] for v in world.volumes()} == before
    assert uninstall(world).returncode == 0, "it may be repeated"
    for name in ("filling", "waiting"):
        for pod in ("pod-of-filling",) if name == "filling" else ():
            world.end_pod("team", pod)
        world.delete_claim("team", name)
        wait_for(lambda name=name: world.is_gone("team", name))
    world.forget_leader()
    world.every_node(hydrates=True, exports=None)
    world.start_controller()  # installed again: what was released ends, and nothing of the deleted claim stays
    wait_for(lambda: [v["spec"]["claimRef"]["name"] for v in world.volumes()] == ["bound"])


def test_uninstalling_deletes_what_the_controllers_created_and_nothing_else(world):
    certificates = {kind: f"/api/v1/namespaces/{OURS}/{kind}" for kind in ("secrets", "configmaps")}
    for kind, path in certificates.items():
        for name in ("cistern-broker-tls", "cistern-broker-ca", "of-another-program"):
            if name not in [o["metadata"]["name"] for o in world.items(path)]:
                world.cluster.create(path, {"metadata": {"name": name}})
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{OURS}/leases"
    for name in ("csi-cistern-io", "external-resizer-csi-cistern-io", "of-another-program"):
        world.cluster.create(leases, {"metadata": {"name": name}, "spec": {"holderIdentity": "x"}})
    wait_for(lambda: "cistern-controller" in [lease["metadata"]["name"] for lease in world.items(leases)])
    world.kill("controller0")
    done = uninstall(world)
    assert done.returncode == 0, done.stderr
    assert [lease["metadata"]["name"] for lease in world.items(leases)] == ["of-another-program"]
    left = {kind: {o["metadata"]["name"] for o in world.items(path)} - {"kube-root-ca.crt"} for kind, path in certificates.items()}
    assert left == {"secrets": {"cistern-broker-ca", "of-another-program"}, "configmaps": {"cistern-broker-tls", "of-another-program"}}


def test_uninstalling_stops_the_controllers_first(world):
    labels = {"app.kubernetes.io/part-of": "cistern", "app.kubernetes.io/component": "controller"}
    world.cluster.create(f"/apis/apps/v1/namespaces/{OURS}/deployments", {
        "metadata": {"name": "cistern-controller"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "nodeSelector": {"nowhere": "yes"}, "containers": [{"name": "c", "image": "x"}]}}}})
    pods = f"/api/v1/namespaces/{OURS}/pods"
    wait_for(lambda: len(world.items(pods)) == 2)
    done = uninstall(world)
    assert done.returncode == 0, done.stderr
    assert world.items(pods) == []
