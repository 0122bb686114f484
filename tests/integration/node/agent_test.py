# SPDX-License-Identifier: Apache-2.0
"""Orders of a controller (this test), carried out by a node, on a real API server."""

import concurrent.futures
import json
import os
import signal
import subprocess
import time

import grpc
import pytest

from integration.csi.driver import Mode, capability, mounts, wait_for
from servers.bucket import BucketServer

from .agent import API, MIB, Node, blank, bucket, exporting, hold_true, job, wipe

Code = grpc.StatusCode


# ---- making ----------------------------------------------------------------------------------------------------------

def test_the_pool_status_has_all_fields_that_a_controller_needs(agent, orders):
    status = orders.wait_for_pool()["status"]
    assert status["path"] == str(agent.pools["default"]) and status["backend"] in ("loop", "quota")
    assert status["health"]["status"] == "Healthy" and len(status["poolUUID"]) == 12
    assert 0 < status["availableBytes"] <= status["capacityBytes"] and status["largestVolumeBytes"] > 0


def test_an_order_becomes_a_volume_and_the_pool_says_that_it_was_seen(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    status = orders.status("pvc-1")
    assert status["phase"] == "Ready" and status["capacityBytes"] == 32 * MIB
    assert orders.has_condition("pvc-1", "Hydrated", "True", "NothingToHydrate") and orders.has_condition("pvc-1", "Mounted", "False")
    assert (agent.folder_of(volume_id) / "volume.json").exists()
    generation = orders.pool()["spec"]["volumesGeneration"]
    pool = orders.wait_for_pool(lambda p: p["status"]["volumesGeneration"] == generation and p["status"]["volumes"] == 1)
    assert pool["status"]["allocatedBytes"] >= 32 * MIB


def test_an_order_that_does_not_fit_is_refused_with_the_sentence_and_not_tried_again(agent, orders):
    orders.order("pvc-big", size=1 << 50, **blank())
    c = orders.wait("pvc-big", "Provisioned", "False", "NodeFull")
    assert "CIS2028" in c["message"] and orders.status("pvc-big")["phase"] == "Failed"
    version = orders.get("pvc-big")["metadata"]["resourceVersion"]
    orders.bump()
    time.sleep(1)
    assert orders.get("pvc-big")["metadata"]["resourceVersion"] == version


def test_an_order_that_makes_no_sense_is_refused_by_its_field(agent, orders):
    orders.order("pvc-odd", **blank(concurrency="many"))
    assert "concurrency" in orders.wait("pvc-odd", "Provisioned", "False", "Invalid")["message"]


def test_an_order_for_another_pool_uuid_is_refused_and_one_for_another_node_is_not_looked_at(agent, orders):
    orders.wait_for_pool()
    orders.order("pvc-old", pool_uuid="0123456789ab", **blank())
    assert "CIS5104" in orders.wait("pvc-old", "Provisioned", "False", "PoolChanged")["message"]
    orders.order("pvc-else", node="node-2", **blank())
    time.sleep(1)
    assert orders.status("pvc-else") == {}


def test_orders_that_came_while_the_node_was_away_are_carried_out_when_it_is_back(agent, orders):
    orders.wait_for_pool()
    agent.stop()
    for i in range(5):
        orders.order(f"pvc-{i}", **blank())
    agent.start()
    for i in range(5):
        orders.wait(f"pvc-{i}", "Provisioned", "True")


def test_changes_of_allowed_fields_are_stored(agent, orders):
    volume_id = orders.make("pvc-1", **blank(concurrency="8"))
    orders.cluster.patch(f"{API}/cisternvolumes/pvc-1", {"spec": {"parameters": {"concurrency": "9", "bandwidth": "1Mi"}}})
    orders.bump()
    path = agent.folder_of(volume_id) / "volume.json"
    wait_for(lambda: '"9"' in path.read_text() or json.loads(path.read_text())["parameters"].get("concurrency") == 9)


# ---- hydration -------------------------------------------------------------------------------------------------------

def test_a_hydration_is_reported_from_waiting_to_verified(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)})
    assert orders.wait("pvc-1", "Hydrated", "False")["reason"] == "Waiting"
    assert job("hydrate", agent.folder_of(volume_id)).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True", "Complete")
    status = orders.status("pvc-1")
    assert status["phase"] == "Ready" and status["hydration"]["objectsDone"] == 3
    assert status["hydration"]["bytesDone"] == 3000 and status["summary"]["progress"] == "100%"


def test_a_hydration_that_failed_says_why_and_says_so_no_more_when_it_went_well(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": f"file://{folder}/nowhere/"})
    assert job("hydrate", agent.folder_of(volume_id)).wait(60) != 0
    orders.wait("pvc-1", "Hydrated", "False", "Failed")
    status = orders.wait_phase("pvc-1", "Failed")
    assert "nowhere" in status["errors"][0]["message"] and status["errors"][0]["id"].startswith("CIS")
    assert orders.has_condition("pvc-1", "Healthy", "False", "HydrationFailed")
    (folder / "nowhere").mkdir()
    (folder / "nowhere" / "a").write_text("a")
    assert job("hydrate", agent.folder_of(volume_id)).wait(60) == 0
    status = orders.wait_phase("pvc-1", "Ready")
    assert "errors" not in status and orders.has_condition("pvc-1", "Healthy", "True")


def test_gate_a_pod_waits_for_the_job_and_is_let_in_when_it_is_done(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, hydration="gate")
    agent.stage(volume_id)
    code, text = agent.client.fails("NodePublishVolume", timeout=3, **agent.publish_fields(volume_id))
    assert code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    assert code != Code.UNAVAILABLE or "CIS3015" in text
    assert job("hydrate", agent.folder_of(volume_id)).wait(30) == 0
    target = agent.publish(volume_id)
    assert (target / "object-0").read_bytes() == (folder / "bucket" / "object-0").read_bytes()
    orders.wait("pvc-1", "Mounted", "True", "Published")
    assert orders.status("pvc-1")["access"] in ("passthrough", "fuse")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait("pvc-1", "Mounted", "False")


@pytest.mark.tsan
def test_gate_a_pod_that_waits_is_sent_away_when_its_volume_is_released(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, hydration="gate")
    agent.stage(volume_id)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.client.fails, "NodePublishVolume", timeout=60, **agent.publish_fields(volume_id))
        hold_true(lambda: not call.done(), 1)
        orders.release("pvc-1")
        code, text = call.result(20)
    assert code == Code.FAILED_PRECONDITION and "CIS3022" in text
    agent.unstage(volume_id)
    orders.wait_phase("pvc-1", "Released")


def test_gate_a_pod_that_waits_is_sent_away_when_it_is_unpublished_and_gets_nothing_later(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, hydration="gate")
    agent.stage(volume_id)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(agent.client.fails, "NodePublishVolume", timeout=60, **agent.publish_fields(volume_id))
        hold_true(lambda: not call.done(), 1)
        agent.unpublish(volume_id)
        code, text = call.result(10)
    assert code == Code.UNAVAILABLE and "CIS3018" in text
    assert job("hydrate", agent.folder_of(volume_id)).wait(30) == 0
    assert not agent.target(volume_id).exists()
    assert (agent.publish(volume_id) / "object-0").exists(), "the next pod finds the data"
    agent.unpublish(volume_id)
    agent.unstage(volume_id)


# ---- loss ------------------------------------------------------------------------------------------------------------

def test_a_wiped_disk_loses_its_volumes_aloud_and_a_pod_is_refused(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    before = orders.pool()["status"]["poolUUID"]
    wipe(agent, orders)
    orders.wait_phase("pvc-1", "Lost")
    c = orders.condition("pvc-1", "Healthy")
    assert c["reason"] == "VolumeLost" and "CIS3002" in c["message"] and before in c["message"]
    assert orders.wait_for_pool(lambda p: p["status"]["poolUUID"] != before)
    agent.staging(volume_id).mkdir(parents=True, exist_ok=True)
    code, text = agent.client.fails("NodeStageVolume", volume_id=volume_id, volume_capability=capability(),
                                    staging_target_path=str(agent.staging(volume_id)))
    assert code == Code.NOT_FOUND and "CIS2046" in text
    orders.release("pvc-1")
    orders.wait_phase("pvc-1", "Released")


def test_rehydrate_creates_the_volume_again_under_its_old_id_on_the_new_disk(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, onDataLoss="rehydrate")
    assert job("hydrate", agent.folder_of(volume_id)).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    wipe(agent, orders)
    orders.wait("pvc-1", "Hydrated", "False", "Waiting")
    assert orders.has_condition("pvc-1", "Provisioned", "True")
    assert job("hydrate", agent.folder_of(volume_id)).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    agent.stage(volume_id)
    assert (agent.publish(volume_id) / "object-1").exists()
    assert orders.status("pvc-1")["poolUUID"] == orders.pool()["status"]["poolUUID"]
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.release("pvc-1")
    orders.wait_phase("pvc-1", "Released")


def test_empty_gives_an_empty_volume_after_a_loss(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, onDataLoss="empty")
    wipe(agent, orders)
    orders.wait("pvc-1", "Hydrated", "True", "NothingToHydrate")
    agent.stage(volume_id)
    assert [p.name for p in agent.publish(volume_id).iterdir() if p.name != "lost+found"] == []


def test_a_volume_that_no_order_knows_is_kept_and_counted(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    path = agent.folder_of(volume_id)
    agent.stop()
    orders.forget("pvc-1")
    agent.start()
    orders.wait_for_pool(lambda p: p["status"].get("quarantinedVolumes") == 1)
    hold_true(path.exists, 1)
    assert "has no CisternVolume" in agent.log_text()
    orders.make("pvc-2", **blank())  # the orders are listed again
    assert agent.log_text().count("has no CisternVolume") == 1
    orders.order("pvc-1", **blank())
    orders.wait("pvc-1", "Provisioned", "True")
    orders.wait_for_pool(lambda p: "quarantinedVolumes" not in p["status"])


# ---- trouble ---------------------------------------------------------------------------------------------------------

def test_pods_come_and_go_while_the_api_server_is_down(agent, orders, cluster):
    volume_id = orders.make("pvc-1", **blank())
    cluster.stop_api()
    try:
        agent.stage(volume_id)
        (agent.publish(volume_id) / "a").write_text("a")
        agent.stop()
        agent.start()
        assert (agent.target(volume_id) / "a").read_text() == "a"
        agent.publish(volume_id)  # the kubelet asks again
        agent.unpublish(volume_id)
        agent.publish(volume_id, pod="second")
    finally:
        cluster.start_api()
    orders.wait("pvc-1", "Mounted", "True", "Published", seconds=90)


@pytest.mark.tsan
def test_two_agents_of_a_roll_carry_out_each_order_once(agent, orders, folder, cluster):
    orders.wait_for_pool()
    other = Node(folder, keeper=agent.keeper, log="cisternd-2.log", kubeconfig=cluster.kubeconfig).start()
    try:
        ids = [orders.order(f"pvc-{i}", **blank()) for i in range(8)]
        for i in range(8):
            orders.wait(f"pvc-{i}", "Provisioned", "True")
        assert len(list((agent.pools["default"] / "volumes").iterdir())) == 8
        for i in range(8):
            orders.release(f"pvc-{i}")
        for i in range(8):
            orders.wait_phase(f"pvc-{i}", "Released")
        assert not any((agent.pools["default"] / "volumes" / v).exists() for v in ids)
    finally:
        assert other.stop() == 0


def test_killed_again_and_again_while_it_works_it_ends_right(agent, orders):
    orders.wait_for_pool()
    for turn in range(6):
        orders.order(f"pvc-{turn}", **blank())
        if turn % 2:
            orders.release(f"pvc-{turn - 1}")
        time.sleep(0.03 * turn)
        agent.kill()
        agent.start()
    for turn in range(6):
        if turn % 2:
            orders.wait("pvc-%d" % turn, "Provisioned", "True")
        else:
            orders.wait_phase(f"pvc-{turn}", "Released")
    assert len(list((agent.pools["default"] / "volumes").iterdir())) == 3
    wait_for(lambda: not list((agent.pools["default"] / "making").iterdir()))


def test_an_idle_node_writes_nothing(agent, orders):
    for i in range(3):
        orders.make(f"pvc-{i}", **blank())
    time.sleep(2)

    def versions():
        return [o["metadata"]["resourceVersion"] for kind in ("cisternvolumes", "cisternpools")
                for o in orders.cluster.get(f"{API}/{kind}")["items"]]
    before = versions()
    time.sleep(8)
    assert versions() == before


def test_a_deleted_pool_object_is_created_again(agent, orders, cluster):
    uid = orders.wait_for_pool()["metadata"]["uid"]
    cluster.delete(f"{API}/cisternpools/node-1.default")
    assert orders.wait_for_pool(lambda p: p["metadata"]["uid"] != uid)
    orders.make("pvc-1", **blank())


def test_a_node_that_has_nothing_mounted_leaves_no_mounts(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    agent.stage(volume_id)
    agent.publish(volume_id)
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.release("pvc-1")
    orders.wait_phase("pvc-1", "Released")
    wait_for(lambda: not [m for m in mounts() if m.startswith(str(agent.folder))])
    assert os.kill(agent.process.pid, 0) is None and signal.SIGTERM


# ---- as on a block volume --------------------------------------------------------------------------------------------

def test_fs_group_is_shown_at_once_for_hydrated_files_and_writes_nothing(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder, objects=50)})
    path = agent.folder_of(volume_id)
    assert job("hydrate", path).wait(30) == 0
    before = sorted((p.name, p.stat().st_ctime_ns, p.stat().st_gid) for p in (path / "data").rglob("object-*"))
    folder.chmod(0o755)
    group = capability(mode=Mode.SINGLE_NODE_MULTI_WRITER, group="4242")
    agent.stage(volume_id, group)
    target = agent.publish(volume_id, cap=group)
    assert {p.stat().st_gid for p in target.rglob("object-*")} == {4242}
    assert {p.stat().st_mode & 0o060 for p in target.rglob("object-*")} == {0o060}
    assert target.stat().st_mode & 0o2070 == 0o2070
    as_member = ["setpriv", "--reuid=1000", "--regid=1000", "--groups=4242"]
    subprocess.run([*as_member, "sh", "-c", f"cat {target}/object-0 >{target}/mine"], check=True)
    assert (target / "mine").stat().st_gid == 4242
    assert sorted((p.name, p.stat().st_ctime_ns, p.stat().st_gid) for p in (path / "data").rglob("object-*")) == before
    code, text = agent.client.fails("NodePublishVolume", **agent.publish_fields(
        volume_id, "other", capability(mode=Mode.SINGLE_NODE_MULTI_WRITER, group="4243")))
    assert code == Code.FAILED_PRECONDITION and "CIS3014" in text


def test_read_write_once_pod_is_for_one_pod_and_read_only_is_read_only(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    once = capability(mode=Mode.SINGLE_NODE_SINGLE_WRITER)
    agent.stage(volume_id, once)
    target = agent.publish(volume_id, cap=once, readonly=True)
    code, _ = agent.client.fails("NodePublishVolume", **agent.publish_fields(volume_id, "other", once))
    assert code == Code.FAILED_PRECONDITION
    with pytest.raises(OSError):
        (target / "a").write_text("a")


def test_a_subpath_of_a_volume_can_be_bound_into_a_pod(agent, orders, folder):
    volume_id = orders.make("pvc-1", **blank())
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    (target / "sub").mkdir()
    inside = folder / "inside"
    inside.mkdir()
    subprocess.run(["mount", "--bind", target / "sub", inside], check=True)  # as the kubelet does it
    (inside / "a").write_text("a")
    assert (target / "sub" / "a").read_text() == "a"
    subprocess.run(["umount", inside], check=True)


# ---- parameters ------------------------------------------------------------------------------------------------------

def hydrated(agent, orders, folder, name, **parameters):
    """How long the Job took."""
    volume_id = orders.make(name, source={"uri": bucket(folder, objects=3, size=100_000)}, **parameters)
    began = time.monotonic()
    assert job("hydrate", agent.folder_of(volume_id)).wait(60) == 0
    orders.wait(name, "Hydrated", "True")
    return time.monotonic() - began


def test_a_classes_parameters_reach_the_volume_and_its_job(agent, orders, folder):
    asked = {"verify": "none", "directIO": "off", "concurrency": "7", "bandwidth": "100k", "access": "fuse",
             "onDataLoss": "rehydrate", "minVolumeSize": "16Mi", "maxVolumeSize": "1Gi", "exportSecret": "last-resort"}
    took = hydrated(agent, orders, folder, "pvc-1", **asked)
    path = agent.folder_of(orders.get("pvc-1")["spec"]["volumeID"])
    kept = json.loads((path / "volume.json").read_text())["parameters"]
    assert kept == {"pool": "default", "hydration": "eager", "verify": "none", "directIO": "off", "concurrency": 7,
                    "bandwidth": 100_000, "access": "fuse", "onDataLoss": "rehydrate", "minVolumeSize": 16 * MIB,
                    "maxVolumeSize": 1024 * MIB, "exportSecret": "last-resort"}
    assert took > 1.5  # 300,000 bytes at 100,000 a second
    assert orders.has_condition("pvc-1", "Verified", "False", "VerificationDisabled")


def test_direct_io_that_is_asked_for_and_cannot_be_had_is_an_error_by_name(agent, orders, folder):
    big = folder / "big"
    big.mkdir()
    (big / "object").write_bytes(os.urandom(20 * MIB))
    volume_id = orders.make("pvc-1", source={"uri": f"file://{big}/", "sizeCheck": False}, directIO="on", size=64 * MIB)
    path = agent.folder_of(volume_id)
    subprocess.run(["mount", "-t", "ramfs", "none", path / "data"], check=True)
    try:
        assert job("hydrate", path).wait(60) != 0
        assert "CIS2034" in json.dumps(orders.wait_phase("pvc-1", "Failed")["errors"])
    finally:
        subprocess.run(["umount", path / "data"], check=True)
    assert job("hydrate", path).wait(60) == 0
    orders.wait("pvc-1", "Hydrated", "True")


def test_a_job_that_runs_is_as_patient_as_its_source_says_now(agent, orders):
    with BucketServer("--objects", "data/:1:1000") as store:
        store.fault("op=get,do=status:503")
        volume_id = orders.make("pvc-1", source={
            "uri": "s3://bench/data/", "endpoint": store.url, "pathStyle": True, "identity": {"method": "anonymous"},
            "retry": {"maxAttempts": 1000, "backoffBase": "50ms", "backoffCap": "100ms"}})
        path = agent.folder_of(volume_id)
        running = job("hydrate", path)
        wait_for(lambda: store.stats()["requests"] > 20)
        assert running.poll() is None
        orders.cluster.patch(f"{API}/cisternvolumes/pvc-1", {"spec": {"retry": {
            "maxAttempts": 2, "maxElapsed": "60s", "backoffBase": "50ms", "backoffCap": "100ms"}}})
        orders.bump()
        assert running.wait(30) == 5
        assert json.loads((path / "volume.json").read_text())["source"]["retry"]["maxAttempts"] == 2
        store.no_faults()
        assert job("hydrate", path).wait(20) == 0
        orders.wait("pvc-1", "Hydrated", "True")


def test_listing_facts_are_reported_and_missing_objects_are_skipped_on_request(agent, orders):
    with BucketServer("--objects", "data/:5:1000") as store:
        store.put("data/notes.txt", b"n" * 5000)
        store.put("data/readme.txt", b"r")
        store.fault("op=get,nth=2,do=remove")
        volume_id = orders.make("pvc-1", source={
            "uri": "s3://bench/data/", "endpoint": store.url, "pathStyle": True, "identity": {"method": "anonymous"},
            "exclude": ["readme.*"], "onMissing": "skip"})
        path = agent.folder_of(volume_id)
        assert job("hydrate", path).wait(20) == 0
        orders.wait("pvc-1", "Hydrated", "True")
        told = orders.status("pvc-1")["hydration"]
        assert (told["objectsTotal"], told["objectsDone"], told["objectsMissing"], told["objectsFailed"]) == (6, 5, 1, 0)
        assert told["listing"] == {"excludedObjects": 1, "largestObjectBytes": 5000, "seconds": 1}
        assert len(list((path / "data").iterdir())) == 5
        store.no_faults()
        assert job("hydrate", path).wait(20) == 0  # another run lists nothing, and reports the first run's listing
        assert json.loads((path / "status.json").read_text())["listing"]["largestObjectBytes"] == 5000


def test_keys_keep_their_prefix_if_that_is_asked_for(agent, orders):
    with BucketServer("--objects", "runs/7/small/:30:1000", "--objects", "runs/7/large/:1:20Mi") as store:
        source = {"endpoint": store.url, "pathStyle": True, "identity": {"method": "anonymous"},
                  "layout": {"stripPrefix": False, "subPath": "in"}, "exclude": ["small/*3"]}
        key = "runs/7/"
        for name, count in [("pvc-1", 28), ("pvc-2", 1)]:
            volume_id = orders.make(name, source=source | {"uri": f"s3://bench/{key}"}, size=64 * MIB)
            path = agent.folder_of(volume_id)
            assert job("hydrate", path).wait(30) == 0
            found = [p for p in (path / "data").rglob("*") if p.is_file()]
            assert len(found) == count, found
            for file in found:
                key = str(file.relative_to(path / "data/in"))  # of one object, the next time
                assert file.read_bytes() == store.content(key)


# ---- timeouts --------------------------------------------------------------------------------------------------------

def told_of_hydration(orders, name):
    c = orders.condition(name, "Hydrated")
    return orders.status(name).get("phase"), c["reason"]


def began_ago(path, seconds):
    """As if its first Job had begun then."""
    told = json.loads((path / "status.json").read_text())
    then = time.time() - seconds
    told["beganAt"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(then)) + f".{int(then % 1 * 1000):03}Z"
    (path / "status.new").write_text(json.dumps(told))
    (path / "status.new").rename(path / "status.json")


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_hydration_has_failed_five_minutes_after_its_first_job(agent, orders, status):
    with BucketServer("--objects", "data/:1:1000") as store:
        store.fault(f"op=list,do=status:{status}")
        volume_id = orders.make("pvc-1", source={"uri": "s3://bench/data/", "endpoint": store.url, "pathStyle": True,
                                                 "identity": {"method": "anonymous"}})
        path = agent.folder_of(volume_id)
        assert job("hydrate", path).wait(20) == 4
        orders.wait("pvc-1", "Hydrated", "False", "Retrying")
        first = json.loads((path / "status.json").read_text())
        assert job("hydrate", path).wait(20) == 4
        second = json.loads((path / "status.json").read_text())
        assert second["startedAt"] > first["startedAt"] and second["beganAt"] == first["beganAt"]
        began_ago(path, 290)
        assert job("hydrate", path).wait(20) == 4
        orders.wait("pvc-1", "Hydrated", "False", "Retrying")
        assert orders.status("pvc-1")["phase"] != "Failed"
        began_ago(path, 301)
        assert job("hydrate", path).wait(20) == 4
        orders.wait("pvc-1", "Healthy", "False", "HydrationFailed")
        wait_for(lambda: orders.status("pvc-1")["phase"] == "Failed")  # after that of the listing Job
        assert orders.has_condition("pvc-1", "Hydrated", "False", "Failed")
        store.no_faults()  # and resumes by itself when access is granted
        assert job("hydrate", path).wait(20) == 0
        orders.wait("pvc-1", "Hydrated", "True")


def test_an_export_of_which_nothing_is_confirmed_until_its_deadline_is_stalled_and_its_data_kept(agent, orders, folder):
    source = exporting(folder)
    source["export"]["deadline"] = "3s"
    volume_id = orders.make("pvc-1", source=source, hydration="none")
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    (target / "checkpoint").write_bytes(b"weights")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait("pvc-1", "Exported", "False", "ExportDue")
    orders.wait("pvc-1", "Exported", "False", "ExportStalled", seconds=30)
    assert orders.status("pvc-1")["phase"] == "Exporting"
    orders.release("pvc-1")
    time.sleep(1)
    assert orders.has_condition("pvc-1", "Exported", "False", "ExportStalled") and agent.folder_of(volume_id).exists()
    assert job("export", agent.folder_of(volume_id), "--for", "release").wait(20) == 0
    orders.wait_phase("pvc-1", "Released")
    assert (folder / "out/checkpoint").read_bytes() == b"weights"
