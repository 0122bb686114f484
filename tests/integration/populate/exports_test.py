# SPDX-License-Identifier: Apache-2.0
"""How many volumes are hydrated and exported at once, and in which order."""

import time

import pytest

from integration.lib.claims import API, condition, now, running_world, wait_for


@pytest.fixture(scope="module")
def world():
    with running_world(flags=["--export-max-concurrent=4", "--export-max-concurrent-per-node=1"]) as w:  # half of them for a namespace
        yield w


def fill(world, ns, names):
    """Bound claims; {claim: its volume's id}"""
    for name in names:
        world.make_claim(ns, name)
        world.make_pod(ns, name, f"pod-of-{name}")
    ids = {}
    for name in names:
        pv = world.wait_for_bound(ns, name)["spec"]["volumeName"]
        ids[name] = next(v["spec"]["volumeID"] for v in world.volumes() if v["metadata"]["name"] == pv)
    wait_for(lambda: not world.jobs())
    return ids


def release(world, ns, name, volume):
    world.end_pod(ns, f"pod-of-{name}")
    world.delete_claim(ns, name)
    wait_for(lambda: any(v["spec"]["volumeID"] == volume and v.get("status", {}).get("phase") == "Exporting"
                         for v in world.volumes()))


def exporting(world):
    return {j["metadata"]["labels"]["cistern.io/volume"] for j in world.jobs()
            if j["metadata"]["labels"]["cistern.io/job"] == "export" and not j["metadata"].get("deletionTimestamp")}


def test_no_more_than_the_limits_export_at_once_and_who_came_first_goes_first(world):
    world.make_namespace("team")
    world.make_source("team")
    names = ["a", "b", "c", "d", "e"]
    ids = fill(world, "team", names)
    node_of = {v["spec"]["volumeID"]: v["spec"]["nodeName"] for v in world.volumes()}
    world.every_node(exports=False)
    for name in names:
        release(world, "team", name, ids[name])
    firsts = {next(ids[n] for n in names if node_of[ids[n]] == node) for node in set(node_of.values())}
    wait_for(lambda: exporting(world) == firsts, what="the first of each node")
    time.sleep(2)
    assert exporting(world) == firsts
    world.kill("controller0")  # the next leader counts what runs
    world.forget_leader()
    world.start_controller()
    time.sleep(2)
    assert exporting(world) == firsts
    world.every_node(exports=True)
    most = 0
    while world.volumes():
        now = exporting(world)
        most = max(most, len(now))
        time.sleep(0.02)
    assert most <= 3  # two, and one whose end the controller has not seen yet
    world.wait_for_nothing_left()
    world.every_node(exports=None)


def hydrating(world):
    return {v["spec"]["claimRef"]["namespace"] + "/" + v["spec"]["claimRef"]["name"] for v in world.volumes()
            for j in world.jobs() if j["metadata"]["labels"]["cistern.io/volume"] == v["spec"]["volumeID"]
            and j["metadata"]["labels"]["cistern.io/job"] == "hydrate" and not j["metadata"].get("deletionTimestamp")}


def test_hydrations_of_one_namespace_leave_half_of_a_node_to_others():
    with running_world(nodes=1, flags=["--hydrate-max-concurrent-per-node=2"]) as world:
        world.every_node(hydrates=False)  # a server that sends a few bytes now and then
        for ns, names in (("tarpit", ["a", "b", "c"]), ("honest", ["a"])):
            world.make_namespace(ns)
            world.make_source(ns)
            for name in names:
                world.make_claim(ns, name)
                world.make_pod(ns, name, f"pod-of-{name}")
            wait_for(lambda: len(world.volumes()) == (3 if ns == "tarpit" else 4), what=f"volumes of {ns}")
        wait_for(lambda: len(hydrating(world)) == 2 and "honest/a" in hydrating(world), what="one of each namespace")
        time.sleep(2)
        assert len(hydrating(world)) == 2
        waiting = {"a", "b", "c"} - {name.split("/")[1] for name in hydrating(world) if name.startswith("tarpit/")}
        wait_for(lambda: {e["involvedObject"]["name"] for e in world.events("tarpit", "HydrationQueued")} ==
                 waiting | {f"pod-of-{name}" for name in waiting}, what="events on claims and pods")
        assert "populate.maxConcurrentPerNode" in world.events("tarpit", "HydrationQueued")[0]["message"]
        world.every_node(hydrates=True)
        for name in ("a", "b", "c"):
            world.wait_for_bound("tarpit", name)
        world.wait_for_bound("honest", "a")


def test_an_export_has_events_on_the_claim_and_on_the_persistent_volume(world):
    world.make_namespace("told")
    world.make_source("told")
    fill(world, "told", ["a"])
    name = world.claim("told", "a")["spec"]["volumeName"]
    path = f"{API}/cisternvolumes/{name}/status"

    def say(status, reason, message="", **export):
        kept = [c for c in world.cluster.get(path)["status"]["conditions"] if c["type"] != "Exported"]
        world.cluster.patch(path, {"status": {"export": export, "conditions": [
            *kept, {**condition("Exported", status, reason), "message": message}]}})

    def told(reason):
        """Events on the claim, in its namespace, and events on the PersistentVolume, in namespace default, that need an action."""
        claim, pv = ([(e["type"], e["message"]) for e in world.events(ns, reason) if e["involvedObject"]["name"] == about]
                     for ns, about in (("told", "a"), ("default", name)))
        return claim if pv == [e for e in claim if e[0] == "Warning"] else []

    def ready():
        source, = world.items(f"{API}/namespaces/told/bucketsources")
        return next(((c["status"], c["message"]) for c in source.get("status", {}).get("conditions", [])
                     if c["type"] == "Ready"), None)

    def has_exported():
        return "cistern.io/has-exported" in world.cluster.get(f"{API}/cisternvolumes/{name}")["metadata"].get("annotations", {})

    say("False", "Exporting", pendingObjects=2, pendingBytes=2048)
    wait_for(lambda: told("ExportStarted"))
    say("False", "ExportFailed", "2 files are not exported, first a: denied")
    (kind, text), = wait_for(lambda: told("ExportFailed"))
    assert kind == "Warning" and "first a: denied" in text
    wait_for(lambda: ready() == ("False", "the exports of 1 volumes failed; see the events of their claims"))
    say("False", "ExportStalled", "no export succeeded within export.deadline; the data is kept on the node")
    wait_for(lambda: told("ExportStalled"))
    assert not has_exported(), "exportSecret is for a volume of which an object reached the bucket"
    say("True", "Confirmed", pendingObjects=0, pendingBytes=0, doneObjects=2, doneBytes=2048, lastSuccess=now())
    wait_for(has_exported)
    assert wait_for(lambda: told("ExportFinished")) == [("Normal", "exported 2.00 KiB in 2 files, all confirmed by the bucket")]
    wait_for(lambda: (ready() or [None])[0] == "True")
    world.empty("told")
