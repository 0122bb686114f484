# SPDX-License-Identifier: Apache-2.0
"""How many volumes are exported at once, and in which order."""

import time

import pytest

from integration.lib.claims import API, World, condition, now, wait_for


@pytest.fixture
def world():
    w = World(flags=["--export-max-concurrent=2", "--export-max-concurrent-per-node=1"])
    try:
        yield w.start()
    finally:
        w.stop()


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


def test_an_export_is_told_on_the_persistent_volume(world):
    world.make_namespace("told")
    world.make_source("told")
    fill(world, "told", ["a"])
    name = world.claim("told", "a")["spec"]["volumeName"]
    path = f"{API}/cisternvolumes/{name}/status"

    def say(status, reason, **export):
        kept = [c for c in world.cluster.get(path)["status"]["conditions"] if c["type"] != "Exported"]
        world.cluster.patch(path, {"status": {"export": export, "conditions": [
            *kept, condition("Exported", status, reason)]}})

    def told(reason):
        return [e["message"] for e in world.events("default", reason) if e["involvedObject"]["name"] == name]

    say("False", "Exporting", pendingObjects=2, pendingBytes=2048)
    wait_for(lambda: told("ExportStarted"))
    say("True", "Confirmed", pendingObjects=0, pendingBytes=0, doneObjects=2, doneBytes=2048, lastSuccess=now())
    assert wait_for(lambda: told("ExportFinished")) == ["2.00 KiB in 2 files, each confirmed by the bucket"]
    world.empty("told")
