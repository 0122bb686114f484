# SPDX-License-Identifier: Apache-2.0
"""Exports that fail, or run without an end, and pods that a drain does not evict: an administrator limits how many volumes
hold a drain, and for how long."""
import pytest

from integration.lib.claims import API, condition, now, running_world, wait_for

from .exports_test import exporting, fill


@pytest.fixture(scope="module")
def world():
    with running_world(flags=["--drain-hold-failing=30m", "--drain-hold-volumes=1"]) as w:
        yield w


def jobs_of(world, volume, kind):
    return [j for j in world.jobs() if j["metadata"]["labels"]["cistern.io/volume"] == volume and
            j["metadata"]["labels"]["cistern.io/job"] == kind and not j["metadata"].get("deletionTimestamp")]


def report_export(world, name, phase, reason=None, status="False"):
    path = f"{API}/cisternvolumes/{name}/status"
    kept = [c for c in world.cluster.get(path)["status"]["conditions"] if c["type"] != "Exported"]
    world.cluster.patch(path, {"status": {
        "phase": phase, "export": {"pendingObjects": 3, "pendingBytes": 3072, "failedObjects": 3},
        "conditions": [*kept, condition("Exported", status, reason or phase)]}})


def fail_export(world, name):
    report_export(world, name, "ExportFailed")


@pytest.mark.parametrize("deadline, is_failing", [("0", True), ("8760h", True), ("24h", False)])
def test_an_export_that_runs_without_an_end_holds_a_drain_as_a_failing_one(world, deadline, is_failing):
    ns = f"ages-{deadline}"
    world.make_namespace(ns)
    world.make_source(ns, export={"uri": "s3://results/", "deadline": deadline})
    fill(world, ns, ["a"])
    name = world.claim(ns, "a")["spec"]["volumeName"]
    report_export(world, name, "Exporting")

    def is_counted():
        return "cistern.io/export-failing-since" in world.cluster.get(f"{API}/cisternvolumes/{name}")["metadata"].get(
            "annotations", {})

    if is_failing:
        wait_for(is_counted, what="its time is counted")
    else:
        wait_for(lambda: exporting(world), what="it is exported")
        assert not is_counted(), "it runs, or waits for its turn"
        report_export(world, name, "Exporting", reason="ExportStalled")
        wait_for(is_counted, what="its time is counted from its deadline")
    report_export(world, name, "Ready", reason="Confirmed", status="True")
    wait_for(lambda: not is_counted(), what="a later failure has a time of its own")
    world.empty(ns)


@pytest.mark.timeout(600)
def test_a_drain_is_held_by_no_more_and_for_no_longer_than_an_administrator_says(world):
    world.make_namespace("pins")
    world.make_source("pins")
    ids = fill(world, "pins", ["a", "b"])
    names = {claim: world.claim("pins", claim)["spec"]["volumeName"] for claim in ids}

    def since(claim):
        return world.cluster.get(f"{API}/cisternvolumes/{names[claim]}")["metadata"].get("annotations", {}).get(
            "cistern.io/export-failing-since")

    world.make_namespace("others")
    world.make_source("others")
    other, = fill(world, "others", ["a"]).values()
    fail_export(world, world.claim("others", "a")["spec"]["volumeName"])
    wait_for(lambda: jobs_of(world, other, "hold"), what="that of another namespace holds its node")
    fail_export(world, names["a"])
    wait_for(lambda: since("a") and jobs_of(world, ids["a"], "hold"), what="the first one holds its node")
    fail_export(world, names["b"])
    wait_for(lambda: since("b") and not jobs_of(world, ids["b"], "hold"), what="the second one does not")
    job = wait_for(lambda: [j for j in jobs_of(world, ids["b"], "export")
                            if j["spec"]["template"]["metadata"]["labels"].get("cistern.io/drain") == "open"],
                   what="its export is still tried, and may be evicted")[0]
    assert "cluster-autoscaler.kubernetes.io/safe-to-evict" not in job["spec"]["template"]["metadata"]["annotations"]
    told = wait_for(lambda: world.events("default", "DrainNotHeld"))[0]["message"]
    assert ids["b"] in told and "3.00 KiB in 3 files" in told and "kubectl get civ" in told, told
    assert jobs_of(world, ids["a"], "hold")
    assert "cistern.io/drain" not in jobs_of(world, ids["a"], "export")[0]["metadata"]["labels"]
    # Its time is over as well.
    world.cluster.patch(f"{API}/cisternvolumes/{names['a']}", {"metadata": {"annotations": {
        "cistern.io/export-failing-since": "2026-01-01T00:00:00Z"}}})
    wait_for(lambda: not jobs_of(world, ids["a"], "hold"), what="the first one holds its node no more")
    wait_for(lambda: jobs_of(world, ids["a"], "export") and all(
        j["metadata"]["labels"].get("cistern.io/drain") == "open" for j in jobs_of(world, ids["a"], "export")),
        what="the Job that ran is replaced by one that may be evicted")
    assert jobs_of(world, other, "hold"), "that of another namespace does not count"
    world.end_pod("others", "pod-of-a")
    world.delete_claim("others", "a")
    world.empty("pins")


def use(world, name):
    """The status of a volume with an export policy that a pod uses."""
    path = f"{API}/cisternvolumes/{name}/status"
    kept = [c for c in world.cluster.get(path)["status"]["conditions"] if c["type"] not in ("Exported", "Mounted")]
    world.cluster.patch(path, {"status": {"conditions": [*kept, condition("Exported", "False", "InUse"),
                                                         condition("Mounted", "True", "Published")]}})


def test_a_pod_that_a_drain_does_not_evict_holds_it_for_no_longer_than_an_administrator_says():
    with running_world(nodes=1, flags=["--drain-hold-failing=30m"]) as world:
        world.make_namespace("agents")
        world.make_source("agents", export={"uri": "s3://results/"})
        world.make_claim("agents", "daemon")
        pod = world.make_pod("agents", "daemon", "template")
        world.end_pod("agents", "template")
        labels = {"app": "agent"}
        world.cluster.create("/apis/apps/v1/namespaces/agents/daemonsets", {"metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                key: pod["spec"][key] for key in ("containers", "volumes")}}}})
        ids = fill(world, "agents", ["pod"])
        ids["daemon"] = next(v["spec"]["volumeID"] for v in world.volumes()
                             if v["metadata"]["name"] == world.wait_for_bound("agents", "daemon")["spec"]["volumeName"])
        for claim in ids:
            use(world, world.claim("agents", claim)["spec"]["volumeName"])
            wait_for(lambda: jobs_of(world, ids[claim], "hold"), what="it may be written")
        name = world.claim("agents", "daemon")["spec"]["volumeName"]

        def times():
            annotations = world.cluster.get(f"{API}/cisternvolumes/{name}")["metadata"].get("annotations", {})
            return [annotations.get(f"cistern.io/{key}") for key in ("node-cordoned-since", "drain-blocked-since")]

        world.cluster.patch("/api/v1/nodes/node-0", {"spec": {"unschedulable": True}})
        wait_for(lambda: all(times()), what="the times are in the object, for the next leader")
        blocked = {"metadata": {"annotations": {"cistern.io/drain-blocked-since": "2026-01-01T00:00:00Z"}}}
        world.cluster.patch(f"{API}/cisternvolumes/{name}", blocked)
        wait_for(lambda: times()[1] > "2026-01-01T00:00:00Z", what="the time of an earlier drain does not count")
        first = times()
        world.kill("controller0")
        world.cluster.patch("/api/v1/nodes/node-0", {"spec": {"taints": [{
            "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2025-12-31T00:00:00Z"}]}})
        world.cluster.patch(f"{API}/cisternvolumes/{name}", blocked)
        world.forget_leader()
        world.start_controller()
        wait_for(lambda: not any(j["metadata"]["labels"]["cistern.io/volume"] == ids["daemon"] for j in world.jobs()),
                 what="a drain does not wait for the pod of the DaemonSet")
        told = wait_for(lambda: world.events("default", "DrainNotHeld"))[0]["message"]
        assert ids["daemon"] in told and "Delete these pods" in told, told
        assert times() == [first[0], "2026-01-01T00:00:00Z"], "the next leader counts on"
        assert jobs_of(world, ids["pod"], "hold"), "a drain evicts this pod, and its files are to be exported"
        world.cluster.patch("/api/v1/nodes/node-0", {"spec": {"unschedulable": None}})
        wait_for(lambda: jobs_of(world, ids["daemon"], "hold"), what="the next drain has a time of its own")
        assert times() == [None, None]
        world.cluster.delete("/apis/apps/v1/namespaces/agents/daemonsets/agent")
        world.empty("agents")


def test_a_node_that_is_away_for_a_while_has_its_exports_and_its_hold_again():
    with running_world(nodes=1) as world:
        world.make_namespace("away")
        world.make_source("away", export={"uri": "s3://results/"})
        ids = fill(world, "away", ["used", "due"])
        names = {claim: world.claim("away", claim)["spec"]["volumeName"] for claim in ids}
        use(world, names["used"])
        fail_export(world, names["due"])
        wait_for(lambda: jobs_of(world, ids["used"], "hold") and jobs_of(world, ids["due"], "export"))
        node = world.cluster.get("/api/v1/nodes/node-0")
        # Its kubelet lives: else the order would say that the node has gone, and that it is back.
        world.cluster.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-0"},
            "spec": {"holderIdentity": "node-0", "leaseDurationSeconds": 40, "renewTime": now().replace("Z", ".000000Z")}})
        world.cluster.delete("/api/v1/nodes/node-0")
        wait_for(lambda: not world.jobs(), what="their pods would stay Pending")
        world.cluster.create("/api/v1/nodes", {"metadata": {k: node["metadata"][k] for k in ("name", "labels")}})
        wait_for(lambda: jobs_of(world, ids["used"], "hold") and jobs_of(world, ids["due"], "export"), what="they are here again")
