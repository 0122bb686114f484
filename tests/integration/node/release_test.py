# SPDX-License-Identifier: Apache-2.0
"""Orders that request the release of a volume, withdraw it, or do so while its disk is away: the node destroys nothing that
it was not asked for to the end."""
import json

import grpc
import pytest

from integration.csi.driver import capability, wait_for
from servers.api_proxy import ApiProxy, answer, crumbs
from servers.kubernetes import ApiError

from .agent import API, Node, blank, exporting, hold_true, job, write_in_a_pod

Code = grpc.StatusCode


def test_a_volume_is_released_when_nothing_is_mounted_any_more(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    path = agent.folder_of(volume_id)
    agent.stage(volume_id)
    agent.publish(volume_id)
    orders.release("pvc-1")
    hold_true(path.exists, 1)
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait_phase("pvc-1", "Released")
    assert not path.exists()
    orders.forget("pvc-1")
    wait_for(lambda: orders.pool()["status"]["volumes"] == 0)


@pytest.mark.tsan
def test_a_volume_is_exported_for_release_before_it_goes(agent, orders, folder):
    volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
    path = agent.folder_of(volume_id)
    write_in_a_pod(agent, volume_id, "precious")
    orders.wait("pvc-1", "Exported", "False", "ExportDue")  # for the pod that went
    orders.release("pvc-1")
    orders.wait_export_before_release("pvc-1")
    hold_true(path.exists, 1)
    assert job("export", path, "--for", "release").wait(30) == 0
    status = orders.wait_phase("pvc-1", "Released")
    assert not path.exists() and (folder / "out" / "ckpt").read_text() == "precious"
    assert status["export"]["doneObjects"] == 1 and orders.has_condition("pvc-1", "Exported", "True", "Confirmed")


def test_a_bind_volume_is_exported_for_release_once_its_last_writer_has_closed_its_file(agent, orders, folder):
    volume_id = orders.make("pvc-1", source=exporting(folder), **blank(access="bind"))
    path = agent.folder_of(volume_id)
    agent.stage(volume_id)
    with (agent.publish(volume_id) / "ckpt").open("w") as late:
        agent.unpublish(volume_id)
        agent.unstage(volume_id)
        orders.release("pvc-1")
        stage = lambda: json.loads((path / "mounts.json").read_text()).get("release")
        wait_for(lambda: stage() == "closed")
        hold_true(lambda: stage() == "closed", 2)
        late.write("precious")
    orders.wait_export_before_release("pvc-1")
    assert job("export", path, "--for", "release").wait(30) == 0
    orders.wait_phase("pvc-1", "Released")
    assert not path.exists() and (folder / "out" / "ckpt").read_text() == "precious"


def test_after_the_last_pod_an_export_is_due_and_then_confirmed(agent, orders, folder):
    volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
    orders.wait("pvc-1", "Exported", "True", "NothingWritten")
    agent.stage(volume_id)
    (agent.publish(volume_id) / "ckpt").write_text("1")
    orders.wait("pvc-1", "Exported", "False", "InUse")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait("pvc-1", "Exported", "False", "ExportDue")
    assert job("export", agent.folder_of(volume_id), "--for", "unpublish").wait(30) == 0
    orders.wait("pvc-1", "Exported", "True", "Confirmed")
    orders.wait_phase("pvc-1", "Ready")


def test_an_export_that_failed_keeps_the_volume_and_discard_lets_it_go(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"export": {"uri": f"file://{folder}/a-file/", "settle": "0s"}}, **blank())
    (folder / "a-file").write_text("not a folder")
    write_in_a_pod(agent, volume_id)
    orders.release("pvc-1")
    orders.wait_export_before_release("pvc-1")
    path = agent.folder_of(volume_id)
    assert job("export", path, "--for", "release").wait(60) != 0
    status = orders.wait_phase("pvc-1", "ExportFailed")
    assert status["export"]["failed"][0]["path"] == "ckpt"
    hold_true(path.exists, 1)
    orders.release("pvc-1", discard=True)
    orders.wait_phase("pvc-1", "Released")
    assert not path.exists()


def test_a_driver_that_ends_after_it_deleted_a_volume_still_says_that_it_was_exported(cluster, orders, folder):
    with ApiProxy(cluster) as proxy:
        def commit(handler, forward):
            """After it no other status can be written."""
            begin = handler.begin

            def begin_and_fail(status, content_type):
                if status == 200:
                    proxy.fault("PATCH", "fieldManager=cistern-node", answer(503), times=None)
                begin(status, content_type)
            handler.begin = begin_and_fail
            crumbs(1 << 20)(handler, forward)
        proxy.fault("PATCH", "-release", commit, times=None)
        agent = Node(folder, kubeconfig=proxy.kubeconfig).start()
        try:
            volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
            path = agent.folder_of(volume_id)
            write_in_a_pod(agent, volume_id)
            orders.release("pvc-1")
            orders.wait_export_before_release("pvc-1")
            assert job("export", path, "--for", "release").wait(30) == 0
            wait_for(lambda: not path.exists())
            assert orders.status("pvc-1")["phase"] != "Released"
            agent.kill()
            proxy.no_faults()
            agent.start()
            said = orders.wait_phase("pvc-1", "Released")
        finally:
            agent.end()
    assert said["export"]["doneObjects"] == 1 and orders.has_condition("pvc-1", "Exported", "True", "Confirmed"), said


def test_a_volume_that_is_discarded_says_whether_its_files_were_exported(agent, orders, folder):
    for name in ("pvc-1", "pvc-2"):
        volume_id = orders.make(name, source=exporting(folder), **blank())
        write_in_a_pod(agent, volume_id)
        orders.wait(name, "Exported", "False", "ExportDue")
        if name == "pvc-1":
            assert job("export", agent.folder_of(volume_id), "--for", "unpublish").wait(30) == 0
            orders.wait(name, "Exported", "True", "Confirmed")
        orders.release(name, discard=True)
        orders.wait_phase(name, "Released")
    assert orders.has_condition("pvc-1", "Exported", "True", "Confirmed"), orders.status("pvc-1")
    assert orders.has_condition("pvc-2", "Exported", "False", "Discarded"), orders.status("pvc-2")


def test_a_discarded_volume_that_cannot_be_deleted_yet_is_said_to_be_discarded(agent, orders, folder):
    volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
    path = agent.folder_of(volume_id)
    write_in_a_pod(agent, volume_id)
    orders.wait("pvc-1", "Exported", "False", "ExportDue")
    with (path / "data/ckpt").open():  # the disk of a volume with an image cannot be unmounted
        orders.release("pvc-1", discard=True)
        wait_for(lambda: orders.status("pvc-1").get("releaseCommitted"))
        hold_true(lambda: orders.has_condition("pvc-1", "Exported", "False", "Discarded"), 3)
    orders.wait_phase("pvc-1", "Released")
    assert orders.has_condition("pvc-1", "Exported", "False", "Discarded")


# ---- withdrawal ------------------------------------------------------------------------------------------------------

def withdraw(orders, name):
    """Without a word to the node."""
    orders.cluster.patch(f"{API}/cisternvolumes/{name}", {"spec": {"release": {"requested": False, "discard": False}}})


def written(agent, orders, folder, name="pvc-1"):
    volume_id = orders.make(name, source=exporting(folder), **blank())
    write_in_a_pod(agent, volume_id, "precious")
    return volume_id


def stage_of(agent, volume_id):
    return json.loads((agent.folder_of(volume_id) / "mounts.json").read_text()).get("release", "open")


def test_no_pod_gets_a_volume_whose_release_is_asked_for_until_it_is_withdrawn(agent, orders, folder):
    volume_id = written(agent, orders, folder)
    orders.release("pvc-1")
    wait_for(lambda: stage_of(agent, volume_id) == "sealed")
    def stage():
        return agent.client.fails("NodeStageVolume", volume_id=volume_id, volume_capability=capability(),
                                  staging_target_path=str(agent.staging(volume_id)))
    code = Code.ABORTED
    while code == Code.ABORTED:  # a step of the agent holds the volume's lock
        code, text = stage()
    assert code == Code.FAILED_PRECONDITION and "CIS3022" in text
    withdraw(orders, "pvc-1")
    orders.bump()
    wait_for(lambda: stage_of(agent, volume_id) == "open")
    wait_for(lambda: agent.is_staged(volume_id))
    target = agent.publish(volume_id)
    assert (target / "ckpt").read_text() == "precious"
    (target / "late").write_text("precious too")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.release("pvc-1")
    wait_for(lambda: stage_of(agent, volume_id) == "sealed")
    path = agent.folder_of(volume_id)
    assert job("export", path, "--for", "release").wait(30) == 0
    orders.wait_phase("pvc-1", "Released")
    assert (folder / "out" / "late").read_text() == "precious too"


def test_a_withdrawal_that_the_node_has_not_heard_of_is_obeyed_before_anything_goes(agent, orders, folder):
    volume_id = written(agent, orders, folder)
    orders.release("pvc-1")
    wait_for(lambda: stage_of(agent, volume_id) == "sealed")
    path = agent.folder_of(volume_id)
    withdraw(orders, "pvc-1")
    assert job("export", path, "--for", "release").wait(30) == 0  # now all that the node knows lets it go
    wait_for(lambda: stage_of(agent, volume_id) == "open")
    hold_true(path.exists, 1)
    assert "releaseCommitted" not in orders.status("pvc-1")
    orders.wait_phase("pvc-1", "Ready")


def test_a_volume_without_exports_stays_too_when_its_release_is_withdrawn_in_time(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    agent.stage(volume_id)
    orders.release("pvc-1")
    wait_for(lambda: stage_of(agent, volume_id) == "closed")
    withdraw(orders, "pvc-1")
    path = agent.folder_of(volume_id)
    agent.unstage(volume_id)
    wait_for(lambda: stage_of(agent, volume_id) == "open")
    hold_true(path.exists, 1)


def test_a_released_volume_was_committed_first(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    orders.release("pvc-1")
    assert orders.wait_phase("pvc-1", "Released")["releaseCommitted"] is True
    with pytest.raises(ApiError):
        withdraw(orders, "pvc-1")
    assert volume_id


def test_a_release_whose_pool_is_not_here_is_held_and_goes_on_when_it_is_back(agent, orders, folder):
    volume_id = written(agent, orders, folder)
    orders.wait("pvc-1", "Exported", "False")
    path, pools = agent.folder_of(volume_id), agent.pools
    agent.stop()
    (folder / "pool-other").mkdir()
    agent.pools = {"other": folder / "pool-other"}
    agent.start()
    orders.cluster.patch(f"{API}/cisternvolumes/pvc-1", {"spec": {"release": {"requested": True, "discard": False}}})
    orders.wait_for_pool(pool="other")
    orders.bump("other")
    held = orders.wait("pvc-1", "Exported", "False", "PoolAbsent")
    assert "CIS3023" in held["message"] and orders.status("pvc-1")["phase"] == "Lost"

    wait_for(lambda: any(e["reason"] == "ReleaseHeld" for e in orders.cluster.get("/api/v1/events")["items"]))
    agent.stop()
    agent.pools = pools
    agent.start()
    wait_for(lambda: stage_of(agent, volume_id) == "sealed")
    assert job("export", path, "--for", "release").wait(30) == 0
    orders.wait_phase("pvc-1", "Released")
    assert (folder / "out" / "ckpt").read_text() == "precious"


@pytest.mark.parametrize("why", ["discarded", "no policy", "never written"])
def test_a_release_whose_pool_is_not_here_ends_where_nothing_can_be_missing(agent, orders, folder, why):
    if why == "discarded":
        volume_id = written(agent, orders, folder)
        orders.wait("pvc-1", "Exported", "False")
    elif why == "no policy":
        volume_id = orders.make("pvc-1", **blank())
    else:
        volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
        orders.wait("pvc-1", "Exported", "True", "NothingWritten")
    path = agent.folder_of(volume_id)
    pools = agent.pools
    agent.stop()
    (folder / "pool-other").mkdir()
    agent.pools = {"other": folder / "pool-other"}
    agent.start()
    orders.wait_for_pool(pool="other")
    orders.cluster.patch(f"{API}/cisternvolumes/pvc-1", {"spec": {"release": {"requested": True, "discard": False}}})
    orders.bump("other")
    if why == "discarded":
        orders.wait("pvc-1", "Exported", "False", "PoolAbsent")
        orders.cluster.patch(f"{API}/cisternvolumes/pvc-1", {"spec": {"release": {"requested": True, "discard": True}}})
        orders.bump("other")
    orders.wait_phase("pvc-1", "Released")
    assert orders.condition("pvc-1", "Exported")["reason"] == {
        "discarded": "Discarded", "no policy": "", "never written": "NothingWritten"}[why], orders.status("pvc-1")
    assert path.exists(), "what is not here is not destroyed either"
    agent.pools = agent.pools | pools
