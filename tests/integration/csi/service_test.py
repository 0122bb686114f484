# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from integration.lib.disk import Disk

from .driver import MIB, Driver, Mode, capability, csi, mounts, wait_for

Code = grpc.StatusCode


# ---- making -----------------------------------------------------------------------------------------------------------

def test_the_same_name_is_the_same_volume_and_another_size_or_parameter_is_refused(driver):
    first = driver.client.create("pvc-1", pool="default", concurrency="8")
    assert driver.client.create("pvc-1", pool="default", concurrency="8").volume_id == first.volume_id
    base = {"name": "pvc-1", "volume_capabilities": [capability()]}
    code, text = driver.client.fails("CreateVolume", **base, parameters={"concurrency": "8"},
                                     capacity_range=csi.CapacityRange(required_bytes=64 * MIB))
    assert code == Code.ALREADY_EXISTS
    code, text = driver.client.fails("CreateVolume", **base, parameters={"concurrency": "9"},
                                     capacity_range=csi.CapacityRange(required_bytes=32 * MIB))
    assert code == Code.ALREADY_EXISTS and "concurrency" in text


def test_an_unknown_parameter_is_refused_with_the_nearest_name(driver):
    code, text = driver.client.fails("CreateVolume", name="a", volume_capabilities=[capability()],
                                     parameters={"hydratoin": "eager"})
    assert code == Code.INVALID_ARGUMENT and "hydratoin" in text and "hydration" in text and "CIS2001" in text


def test_a_parameter_of_the_provisioner_is_accepted_and_a_file_system_type_is_not(driver):
    driver.client.create("a", **{"csi.storage.k8s.io/pvc/name": "x", "csi.storage.k8s.io/fstype": ""})
    code, _ = driver.client.fails("CreateVolume", name="b", volume_capabilities=[capability()],
                                  parameters={"csi.storage.k8s.io/fstype": "xfs"})
    assert code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("required, limit, code", [
    (64 * MIB, 63 * MIB, Code.OUT_OF_RANGE), (0, 1 * MIB, Code.OUT_OF_RANGE), (-1, 0, Code.INVALID_ARGUMENT),
    (1 << 60, 0, Code.RESOURCE_EXHAUSTED)])
def test_a_size_that_cannot_be_is_refused(driver, required, limit, code):
    got, _ = driver.client.fails("CreateVolume", name="a", volume_capabilities=[capability()],
                                 capacity_range=csi.CapacityRange(required_bytes=required, limit_bytes=limit))
    assert got == code


def test_the_size_is_exactly_what_was_asked(driver):
    odd = 32 * MIB + 4097
    assert driver.client.create("a", size=odd, limit=odd).capacity_bytes == odd


def test_a_volume_for_another_node_goes_elsewhere(driver):
    here = csi.Topology(segments={"topology.cistern.io/node": "node-1"})
    there = csi.Topology(segments={"topology.cistern.io/node": "node-2"})
    fields = {"name": "a", "volume_capabilities": [capability()]}
    code, _ = driver.client.fails("CreateVolume", **fields,
                                  accessibility_requirements=csi.TopologyRequirement(requisite=[there]))
    assert code == Code.RESOURCE_EXHAUSTED
    volume = driver.client.call("CreateVolume", **fields, capacity_range=csi.CapacityRange(required_bytes=32 * MIB),
                                accessibility_requirements=csi.TopologyRequirement(requisite=[there, here])).volume
    assert list(volume.accessible_topology) == [here]


def test_a_name_of_128_bytes_and_any_letters_is_taken_and_a_longer_one_refused(driver):
    name = "../é\n%" + "x" * (128 - 7)
    assert len(name.encode()) == 128
    volume = driver.client.create(name)
    assert driver.client.create(name).volume_id == volume.volume_id
    code, _ = driver.client.fails("CreateVolume", name=name + "y", volume_capabilities=[capability()])
    assert code == Code.INVALID_ARGUMENT


def test_unsupported_fields_of_create_volume_are_refused(driver):
    source = csi.VolumeContentSource(volume=csi.VolumeContentSource.VolumeSource(volume_id="v"))
    block = csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(),
                                 access_mode=Mode(mode=Mode.SINGLE_NODE_WRITER))
    for fields in ({"volume_capabilities": [capability()], "volume_content_source": source},
                   {"volume_capabilities": [block]},
                   {"volume_capabilities": [capability(Mode.MULTI_NODE_MULTI_WRITER)]},
                   {"volume_capabilities": []},
                   {"volume_capabilities": [capability()], "parameters": {"pool": "nowhere"}}):
        code, _ = driver.client.fails("CreateVolume", name="a", **fields)
        assert code == Code.INVALID_ARGUMENT
    for key, value, error in (("hydration", "lazy", "CIS2002"), ("export.trigger", "OnRelease,OnClose", "CIS2002"),
                              ("suspend", "true", "CIS2003"), ("identity.method", "irsa", "CIS2003"),
                              ("shard.indexFrom", "podLabel", "CIS2001")):
        code, text = driver.client.fails("CreateVolume", name="a", volume_capabilities=[capability()],
                                         parameters={key: value})
        assert code == Code.INVALID_ARGUMENT and key in text and error in text
    assert not driver.client.call("ListVolumes").entries
    code, text = driver.client.fails("CreateSnapshot", name="s", source_volume_id="v")
    assert code == Code.UNIMPLEMENTED and "CreateSnapshot" in text


@pytest.mark.tsan
def test_many_calls_for_one_name_make_one_volume(driver):
    def create(_):
        try:
            return driver.client.create("pvc").volume_id
        except grpc.RpcError as e:
            return e.code()
    with ThreadPoolExecutor(16) as pool:
        results = set(pool.map(create, range(64)))
    assert len({r for r in results if isinstance(r, str)}) == 1
    assert {r for r in results if not isinstance(r, str)} <= {Code.ABORTED}
    assert len(driver.client.call("ListVolumes").entries) == 1


# ---- asking -----------------------------------------------------------------------------------------------------------

def test_a_list_comes_in_pages_over_all_pools_and_survives_a_deletion(folder):
    driver = Driver(folder, pools=("one", "two")).start()
    try:
        ids = {driver.client.create(f"v{i}", pool=("one", "two")[i % 2]).volume_id for i in range(7)}
        assert {e.volume.volume_id for e in driver.client.call("ListVolumes").entries} == ids
        seen, token = [], ""
        while True:
            page = driver.client.call("ListVolumes", max_entries=2, starting_token=token)
            assert len(page.entries) <= 2
            seen += [e.volume.volume_id for e in page.entries]
            token = page.next_token
            if not token:
                break
            driver.delete(seen[-1])
        assert sorted(seen) == sorted(ids)
        code, _ = driver.client.fails("ListVolumes", starting_token="nonsense")
        assert code == Code.ABORTED
        code, _ = driver.client.fails("ListVolumes", max_entries=-1)
        assert code == Code.INVALID_ARGUMENT
    finally:
        driver.clean_up()


@pytest.fixture
def driver_on_its_own_disk(folder):
    disk = Disk(folder / "pool-default", "1G")
    (disk.path / "lost+found").rmdir()
    d = Driver(folder)
    try:
        yield d.start()
    finally:
        d.clean_up()  # which unmounts the disk, too


def test_capacity_shrinks_with_each_volume_and_is_zero_elsewhere(driver_on_its_own_disk):
    driver = driver_on_its_own_disk
    before = driver.client.call("GetCapacity")
    assert before.available_capacity > 0 and before.maximum_volume_size.value > 0
    driver.client.create("a", size=64 * MIB)
    assert before.available_capacity - driver.client.call("GetCapacity").available_capacity >= 64 * MIB
    there = csi.Topology(segments={"topology.cistern.io/node": "node-2"})
    assert driver.client.call("GetCapacity", accessible_topology=there).available_capacity == 0
    limited = driver.client.call("GetCapacity", parameters={"maxVolumeSize": "40Mi", "minVolumeSize": "32Mi"})
    assert (limited.minimum_volume_size.value, limited.maximum_volume_size.value) == (32 * MIB, 40 * MIB)
    block = csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=Mode(mode=1))
    assert driver.client.call("GetCapacity", volume_capabilities=[block]).available_capacity == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_capacity_after_a_restart_counts_each_volume_as_before(driver_on_its_own_disk, how):
    """The image of one volume has holes, so that only its record reserves its size."""
    driver = driver_on_its_own_disk

    def capacity():
        reply = driver.client.call("GetCapacity")
        return reply.available_capacity, reply.maximum_volume_size.value

    def is_alike(then):
        return all(abs(a - b) < 2 * MIB for a, b in zip(capacity(), then))

    empty = capacity()
    volumes = [driver.client.create(f"v{i}", size=64 * MIB).volume_id for i in range(3)]
    driver.delete(volumes.pop())
    driver.stage(volumes[0])
    (driver.publish(volumes[0]) / "file").write_bytes(os.urandom(10 * MIB))
    image = max(driver.folder_of(volumes[1]).iterdir(), key=lambda f: f.lstat().st_size)
    subprocess.run(["fallocate", "--punch-hole", "--offset", "16M", "--length", "40M", image], check=True)
    assert image.stat().st_blocks * 512 < 32 * MIB
    before = capacity()
    assert empty[0] - before[0] >= 2 * 64 * MIB
    driver.stop(how)
    driver.start()
    assert is_alike(before), (capacity(), before)
    driver.client.create("v0", size=64 * MIB)  # the same volume again
    assert is_alike(before), (capacity(), before)
    driver.unpublish(volumes[0])
    driver.unstage(volumes[0])
    for volume in volumes:
        driver.delete(volume)
    wait_for(lambda: is_alike(empty))


def test_a_modification_is_done_whole_or_not_at_all(driver):
    volume = driver.client.create("a", concurrency="8")
    code, _ = driver.client.fails("ControllerModifyVolume", volume_id=volume.volume_id,
                                  mutable_parameters={"concurrency": "9", "pool": "other"})
    assert code == Code.INVALID_ARGUMENT
    assert driver.client.create("a", concurrency="8").volume_id == volume.volume_id
    driver.client.call("ControllerModifyVolume", volume_id=volume.volume_id, mutable_parameters={"concurrency": "9"})
    assert driver.client.create("a", concurrency="9").volume_id == volume.volume_id


def test_a_healthy_volume_says_so_in_the_words_of_both_versions(driver):
    volume = driver.client.create("a")
    assert not driver.client.call("ListVolumes").entries[0].status.volume_condition.abnormal
    assert not driver.client.call("ControllerGetVolume", volume_id=volume.volume_id).status.volume_condition.abnormal
    health = driver.client.call("ControllerGetVolumeHealth", volume_id=volume.volume_id).volume_health
    assert health.volume_id == volume.volume_id and not health.health_statuses
    assert not driver.client.call("ControllerListVolumeHealth").entries
    assert not driver.client.call("NodeGetStorageHealth").backend_health


# ---- mounting ---------------------------------------------------------------------------------------------------------

@pytest.fixture(params=["bind", "fuse"])
def volume(driver, request):
    return driver.client.create("pvc", access=request.param).volume_id


@pytest.mark.asan
def test_a_file_written_by_one_pod_is_there_for_the_next(driver, volume):
    driver.stage(volume)
    target = driver.publish(volume, "one")
    (target / "file").write_text("words")
    driver.unpublish(volume, "one")
    assert not target.exists()
    assert (driver.publish(volume, "two") / "file").read_text() == "words"
    driver.unpublish(volume, "two")
    driver.unstage(volume)
    driver.stage(volume)
    assert (driver.publish(volume, "three") / "file").read_text() == "words"
    driver.unpublish(volume, "three")
    driver.unstage(volume)
    driver.delete(volume)
    assert not [m for m in mounts() if str(driver.folder) in m]


def test_every_step_may_be_repeated(driver, volume):
    for _ in range(3):
        driver.stage(volume)
    for _ in range(3):
        target = driver.publish(volume)
    assert len([m for m in mounts() if m == str(target)]) == 1
    for _ in range(3):
        driver.unpublish(volume)
    for _ in range(3):
        driver.unstage(volume)
    for _ in range(3):
        driver.delete(volume)


def test_a_republish_after_a_restart_of_the_driver_answers_ok(driver, volume):
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_text("words")
    driver.kill()
    assert (target / "file").read_text() == "words"
    driver.start()
    driver.stage(volume)
    driver.publish(volume)
    assert (target / "file").read_text() == "words"
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)


def test_a_read_only_publish_cannot_be_written_and_a_writable_one_beside_it_can(driver, volume):
    shared = capability(Mode.SINGLE_NODE_MULTI_WRITER)
    driver.stage(volume, shared)
    writable = driver.publish(volume, "writer", shared)
    readable = driver.publish(volume, "reader", shared, readonly=True)
    (writable / "file").write_text("words")
    assert (readable / "file").read_text() == "words"
    with pytest.raises(OSError):
        (readable / "file").write_text("other")
    code, _ = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume, "reader", shared, False))
    assert code == Code.ALREADY_EXISTS


def test_a_pod_that_went_with_its_machine_does_not_keep_the_volume_published(driver, volume):
    def record():
        return json.loads((driver.folder_of(volume) / "mounts.json").read_text())

    shared = capability(Mode.SINGLE_NODE_MULTI_WRITER)
    driver.stage(volume, shared)
    gone = driver.publish(volume, "gone", shared)
    driver.publish(volume, "stays", shared)
    subprocess.run(["umount", gone], check=True)  # as a restarted machine does: without an unpublish
    driver.unpublish(volume, "stays")
    assert record()["targets"] == [] and record()["unpublished"] > 0
    gone = driver.publish(volume, "gone", shared)
    assert "unpublished" not in record()
    subprocess.run(["umount", gone], check=True)
    driver.unstage(volume)
    assert record()["targets"] == [] and record()["unpublished"] > 0


@pytest.mark.parametrize("mode", [Mode.SINGLE_NODE_WRITER, Mode.SINGLE_NODE_SINGLE_WRITER])
def test_a_second_pod_is_refused_where_there_is_one_writer(driver, volume, mode):
    driver.stage(volume, capability(mode))
    driver.publish(volume, "one", capability(mode))
    driver.target(volume, "two").parent.mkdir(parents=True)
    code, text = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume, "two", capability(mode)))
    assert code == Code.FAILED_PRECONDITION and str(driver.target(volume, "one")) in text


def test_a_volume_in_use_is_neither_unstaged_nor_deleted(driver, volume):
    driver.stage(volume)
    driver.publish(volume)
    code, _ = driver.client.fails("NodeUnstageVolume", volume_id=volume,
                                  staging_target_path=str(driver.staging(volume)))
    assert code == Code.FAILED_PRECONDITION
    code, text = driver.client.fails("DeleteVolume", volume_id=volume)
    assert code == Code.FAILED_PRECONDITION and "published" in text
    driver.unpublish(volume)
    code, text = driver.client.fails("DeleteVolume", volume_id=volume)
    assert code == Code.FAILED_PRECONDITION and "staged" in text


def test_publishing_needs_staging(driver, volume):
    driver.target(volume).parent.mkdir(parents=True)
    code, _ = driver.client.fails("NodePublishVolume", **driver.publish_fields(volume))
    assert code == Code.FAILED_PRECONDITION


def test_the_group_is_shown_through_fuse_and_belongs_to_the_mount(driver):
    volume = driver.client.create("pvc", access="fuse").volume_id
    with_group = capability(group="4242")
    driver.stage(volume, with_group)
    target = driver.publish(volume, cap=with_group)
    (target / "folder").mkdir()
    assert (target / "folder").stat().st_gid == 4242
    code, text = driver.client.fails("NodeStageVolume", volume_id=volume, volume_capability=capability(group="4243"),
                                     staging_target_path=str(driver.staging(volume)))
    assert code == Code.FAILED_PRECONDITION and "group" in text


def test_a_group_on_a_plain_bind_is_refused(driver):
    volume = driver.client.create("pvc", access="bind").volume_id
    driver.staging(volume).mkdir(parents=True)
    code, text = driver.client.fails("NodeStageVolume", volume_id=volume, volume_capability=capability(group="1"),
                                     staging_target_path=str(driver.staging(volume)))
    assert code == Code.INVALID_ARGUMENT and "CIS3017" in text


def test_the_limit_is_felt_by_the_writer_and_grows_while_it_writes(driver, volume):
    driver.stage(volume)
    target = driver.publish(volume)

    def fill(name, bytes):
        with open(target / name, "wb") as f:
            for _ in range(bytes // MIB):
                f.write(os.urandom(MIB))
            f.flush()
            os.fsync(f.fileno())
    with pytest.raises(OSError):
        fill("too-much", 48 * MIB)
    (target / "too-much").unlink()
    reply = driver.client.call("ControllerExpandVolume", volume_id=volume,
                               capacity_range=csi.CapacityRange(required_bytes=128 * MIB))
    assert reply.node_expansion_required and reply.capacity_bytes == 128 * MIB
    for _ in range(2):
        grown = driver.client.call("NodeExpandVolume", volume_id=volume, volume_path=str(target),
                                   capacity_range=csi.CapacityRange(required_bytes=128 * MIB))
        assert grown.capacity_bytes == 128 * MIB
    fill("fits", 48 * MIB)
    code, _ = driver.client.fails("NodeExpandVolume", volume_id=volume, volume_path=str(target),
                                  capacity_range=csi.CapacityRange(required_bytes=1 << 60))
    assert code == Code.OUT_OF_RANGE


def test_stats_are_of_the_volume_and_only_where_it_is(driver, volume):
    driver.stage(volume)
    target = driver.publish(volume)
    (target / "file").write_bytes(os.urandom(4 * MIB))
    os.sync()
    for path in (target, driver.staging(volume)):
        stats = driver.client.call("NodeGetVolumeStats", volume_id=volume, volume_path=str(path))
        bytes = next(u for u in stats.usage if u.unit == csi.VolumeUsage.BYTES)
        inodes = next(u for u in stats.usage if u.unit == csi.VolumeUsage.INODES)
        assert bytes.total <= 32 * MIB and 4 * MIB <= bytes.used <= 32 * MIB and bytes.available > 0
        assert inodes.total > inodes.used > 0
        assert not stats.volume_condition.abnormal and stats.volume_condition.message
    for path in ("some/path", "/", str(driver.folder)):
        code, _ = driver.client.fails("NodeGetVolumeStats", volume_id=volume, volume_path=path)
        assert code == Code.NOT_FOUND


def test_full_volume_is_reported(driver):
    volume = driver.client.create("pvc", access="bind").volume_id
    driver.stage(volume)
    target = driver.publish(volume)
    with pytest.raises(OSError), open(target / "file", "wb") as f:
        while True:
            f.write(bytes(MIB))
            f.flush()
            os.fsync(f.fileno())
    stats = driver.client.call("NodeGetVolumeStats", volume_id=volume, volume_path=str(target))
    assert stats.volume_condition.abnormal
    health = driver.client.call("NodeGetVolumeHealth", volume_id=volume, volume_publish_path=str(target)).volume_health
    assert [h.reason for h in health.health_statuses] == ["VolumeFull"]
    assert [e.volume_id for e in driver.client.call("ControllerListVolumeHealth").entries] == [volume]
