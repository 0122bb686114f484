# SPDX-License-Identifier: Apache-2.0
"""Records on the disk that a node finds corrupt: the order is enough to continue. Files that may not be exported
go to the bucket or stay, until an administrator discards them explicitly."""
import json
import os
import subprocess

import grpc
import pytest

from integration.csi.driver import capability, mounts, wait_for

from .agent import MIB, blank, bucket, exporting, hold_true, job, wipe

DAMAGES = {"garbage": lambda b: b"\x00{garbage", "cut short": lambda b: b[:len(b) // 2], "empty": lambda b: b"",
           "missing": None, "another volume's": lambda b: b.replace(b"v1-", b"v1-0", 1)}


def damage(path, how):
    if DAMAGES[how]:
        path.write_bytes(DAMAGES[how](path.read_bytes()))
    else:
        path.unlink()


def replace(path, text):
    """At once: the driver writes a record again that it finds empty."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def write_a_checkpoint(agent, orders, folder, name="pvc-1"):
    volume_id = orders.make(name, source=exporting(folder), **blank())
    agent.stage(volume_id)
    (agent.publish(volume_id) / "ckpt").write_text("precious")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait(name, "Exported", "False", "ExportDue")
    return volume_id, agent.folder_of(volume_id)


def export_and_release(orders, folder, path, name="pvc-1"):
    """Nothing goes before the bucket has it."""
    orders.release(name)
    orders.wait_export_before_release(name)
    hold_true(path.exists, 0.5)
    assert job("export", path, "--for", "release").wait(60) == 0
    orders.wait_phase(name, "Released")
    assert not path.exists() and (folder / "out" / "ckpt").read_text() == "precious"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_volume_with_a_corrupt_record_is_exported_and_released_from_its_order(agent, orders, folder, how):
    volume_id, path = write_a_checkpoint(agent, orders, folder)
    before = json.loads((path / "volume.json").read_text())
    damage(path / "volume.json", how)
    orders.release("pvc-1")
    wait_for(lambda: "written again from its order" in agent.log_text())
    after = json.loads((path / "volume.json").read_text())
    assert {k: v for k, v in after.items() if k != "createdAt"} == {k: v for k, v in before.items() if k != "createdAt"}
    assert (path / "volume.json.damaged").exists() == (how != "missing")
    export_and_release(orders, folder, path)


def test_a_pod_finds_its_volume_again_although_volume_json_was_damaged_and_leaves_it(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)})
    path = agent.folder_of(volume_id)
    assert job("hydrate", path).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    damage(path / "volume.json", "garbage")
    assert (target / "object-0").exists()

    def is_gone():
        """As the kubelet does: it asks until it is so."""
        try:
            agent.unpublish(volume_id)
            agent.unstage(volume_id)
            return True
        except grpc.RpcError:
            return False
    wait_for(is_gone)
    assert orders.has_condition("pvc-1", "Hydrated", "True")
    agent.stage(volume_id)
    assert (agent.publish(volume_id) / "object-0").exists()


def test_a_record_of_a_newer_version_is_reported_and_kept_and_usable_later(agent, orders):
    path = agent.folder_of(orders.make("pvc-1", **blank())) / "volume.json"
    record = path.read_text()
    newer = json.dumps(json.loads(record) | {"version": 1000})
    replace(path, newer)
    orders.touch("pvc-1")
    assert "CIS2004" in orders.wait("pvc-1", "Healthy", "False", "Unreadable")["message"]
    assert path.read_text() == newer
    replace(path, record)
    orders.touch("pvc-1")
    orders.wait("pvc-1", "Healthy", "True")


def test_an_unrestorable_volume_stays_until_it_is_discarded_explicitly(agent, orders, folder):
    volume_id, path = write_a_checkpoint(agent, orders, folder)
    replace(path / "volume.json", json.dumps(json.loads((path / "volume.json").read_text()) | {"version": 1000}))
    orders.release("pvc-1")
    orders.wait("pvc-1", "Healthy", "False", "Unreadable")
    hold_true(path.exists, 1)
    orders.release("pvc-1", discard=True)
    orders.wait_phase("pvc-1", "Released")
    assert not path.exists() and not (folder / "out" / "ckpt").exists()


def test_discarding_what_cannot_be_read_waits_for_the_pod_that_has_it(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    path = agent.folder_of(volume_id)
    agent.stage(volume_id)
    target = agent.publish(volume_id)
    record = (path / "volume.json").read_text()
    (path / "volume.json").write_text(json.dumps(json.loads(record) | {"version": 1000}))
    orders.release("pvc-1", discard=True)
    hold_true(path.exists, 1.5)
    (target / "still").write_text("here")
    (path / "volume.json").write_text(record)
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait_phase("pvc-1", "Released")


@pytest.mark.parametrize("how", [h for h in DAMAGES if h != "another volume's"])
def test_a_volume_whose_record_of_mounts_is_damaged_counts_as_written(agent, orders, folder, how):
    volume_id, path = write_a_checkpoint(agent, orders, folder)
    damage(path / "mounts.json", how)
    export_and_release(orders, folder, path)


@pytest.mark.parametrize("how", ["garbage", "missing"])
def test_a_mounted_volume_whose_record_of_mounts_is_damaged_is_kept_until_its_pod_has_left(agent, orders, folder, how):
    volume_id = orders.make("pvc-1", source=exporting(folder), **blank())
    path = agent.folder_of(volume_id)
    agent.stage(volume_id)
    (agent.publish(volume_id) / "ckpt").write_text("precious")
    damage(path / "mounts.json", how)
    agent.publish(volume_id)  # a republish answers OK
    agent.stage(volume_id)
    code, text = agent.client.fails("NodePublishVolume", **agent.publish_fields(volume_id, pod="another"))
    assert code == grpc.StatusCode.FAILED_PRECONDITION and "CIS3012" in text
    orders.release("pvc-1")
    hold_true(path.exists, 1.5)
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    assert not any(volume_id in m for m in mounts() if not m.endswith("/data"))
    export_and_release(orders, folder, path)


def test_a_verdict_that_is_damaged_counts_as_none(agent, orders, folder):
    volume_id, path = write_a_checkpoint(agent, orders, folder)
    assert job("export", path, "--for", "unpublish").wait(60) == 0
    orders.wait("pvc-1", "Exported", "True", "Confirmed")
    verdict = next((path / "export").glob("verdict*"))
    verdict.write_bytes(b"{")
    export_and_release(orders, folder, path)


def test_a_hydration_whose_status_is_damaged_runs_again_and_the_volume_goes_when_asked(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)})
    path = agent.folder_of(volume_id)
    assert job("hydrate", path).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    (path / "status.json").write_bytes(b"{")
    orders.bump()
    orders.wait("pvc-1", "Hydrated", "False", "Waiting")
    assert job("hydrate", path).wait(30) == 0
    orders.wait("pvc-1", "Hydrated", "True")
    (path / "status.json").write_bytes(b"")
    orders.release("pvc-1")
    orders.wait_phase("pvc-1", "Released")


def test_an_empty_volume_made_after_a_loss_stays_empty_when_its_record_is_restored(agent, orders, folder):
    volume_id = orders.make("pvc-1", source={"uri": bucket(folder)}, onDataLoss="empty", size=64 * MIB)
    wipe(agent, orders)
    orders.wait("pvc-1", "Hydrated", "True", "NothingToHydrate")
    agent.stage(volume_id)
    (agent.publish(volume_id) / "mine").write_text("mine")
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    damage(agent.folder_of(volume_id) / "volume.json", "garbage")
    orders.bump()
    wait_for(lambda: "written again from its order" in agent.log_text())
    hold_true(lambda: orders.has_condition("pvc-1", "Hydrated", "True"), 1)
    agent.staging(volume_id).mkdir(parents=True, exist_ok=True)
    agent.client.call("NodeStageVolume", volume_id=volume_id, volume_capability=capability(),
                      staging_target_path=str(agent.staging(volume_id)))
    assert (agent.publish(volume_id) / "mine").read_text() == "mine"


def test_a_file_system_that_shut_down_is_unhealthy_until_the_pod_has_gone(agent, orders):
    volume_id = orders.make("pvc-1", **blank())
    agent.stage(volume_id)
    (agent.publish(volume_id) / "file").write_text("words")
    os.sync()
    subprocess.run(["xfs_io", "-x", "-c", "shutdown", agent.folder_of(volume_id) / "data"], check=True)
    said = orders.wait_touching("pvc-1", "Healthy", "False", "Unreadable")
    assert "Input/output error" in said["message"]
    agent.unpublish(volume_id)
    agent.unstage(volume_id)
    orders.wait_touching("pvc-1", "Healthy", "True")  # it is mounted again
    agent.stage(volume_id)
    assert (agent.publish(volume_id) / "file").read_text() == "words"
