# SPDX-License-Identifier: Apache-2.0
"""A client that means ill, or is another program altogether: it gets an error, and harms nothing."""
import os
import random
import socket

import grpc
import pytest

from .driver import MIB, Client, Driver, capability, csi, wait_for

Code = grpc.StatusCode
pytestmark = pytest.mark.asan


def raw(driver, method, payload, service="Controller", timeout=10):
    """The status of a call whose request is these bytes."""
    call = driver.client.channel.unary_unary(f"/csi.v1.{service}/{method}", request_serializer=lambda b: b,
                                             response_deserializer=lambda b: b)
    try:
        call(payload, timeout=timeout)
        return Code.OK, ""
    except grpc.RpcError as e:
        return e.code(), e.details()


def bytes_on_the_socket(driver, payload):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(1)
        s.connect(str(driver.socket))
        try:
            s.sendall(payload)
            s.recv(4096)
        except OSError:
            pass


def test_random_bytes_on_the_socket_disturb_no_other_call(driver):
    rng = random.Random(4)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for i in range(60):
        noise = rng.randbytes(rng.choice([1, 9, 100, 5000]))
        bytes_on_the_socket(driver, noise if i % 2 else preface + noise)
    bytes_on_the_socket(driver, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert driver.client.call("Probe").ready.value


def test_every_truncation_and_random_change_of_a_request_is_answered(driver):
    rng = random.Random(5)
    good = csi.CreateVolumeRequest(name="pvc", volume_capabilities=[capability()], parameters={"concurrency": "7"},
                                   capacity_range=csi.CapacityRange(required_bytes=1 << 60)).SerializeToString()
    seen = {raw(driver, "CreateVolume", good[:n])[0] for n in range(len(good))}
    for _ in range(500):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        seen.add(raw(driver, "CreateVolume", bytes(bad))[0])
    assert Code.INVALID_ARGUMENT in seen
    assert seen <= {Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED, Code.OUT_OF_RANGE, Code.ABORTED,
                    Code.ALREADY_EXISTS, Code.UNIMPLEMENTED}
    assert driver.client.call("Probe").ready.value


@pytest.mark.parametrize("service, method", [
    ("Controller", m) for m in ("CreateVolume", "DeleteVolume", "ValidateVolumeCapabilities", "ListVolumes", "GetCapacity",
                                "ControllerExpandVolume", "ControllerGetVolume", "ControllerModifyVolume",
                                "ControllerGetVolumeHealth", "ControllerListVolumeHealth")] + [
    ("Node", m) for m in ("NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume",
                          "NodeGetVolumeStats", "NodeGetVolumeHealth", "NodeExpandVolume")])
def test_noise_instead_of_a_request_is_answered_by_every_method(driver, service, method):
    rng = random.Random(method)
    for size in (0, 1, 2, 7, 40, 300, 4000):
        code, text = raw(driver, method, rng.randbytes(size), service)
        assert code == Code.OK or text
        assert code not in (Code.UNKNOWN, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    assert driver.client.call("Probe").ready.value


def test_a_nul_or_bad_utf8_in_a_string_is_refused_by_the_fields_name(driver):
    code, text = raw(driver, "DeleteVolume", b"\x0a\x05v1\x00-x")
    assert code == Code.INVALID_ARGUMENT and "volume_id" in text
    code, text = raw(driver, "DeleteVolume", b"\x0a\x02\xff\xfe")
    assert code == Code.INVALID_ARGUMENT and "UTF-8" in text


def test_a_huge_message_is_refused(driver):
    code, text = raw(driver, "DeleteVolume", bytes(8 * MIB))
    assert code == Code.RESOURCE_EXHAUSTED and text
    assert driver.client.call("Probe").ready.value


def test_a_message_of_a_million_parts_is_refused_and_not_unpacked(driver):
    code, text = raw(driver, "CreateVolume", b"\x1a\x00" * 500_000)
    assert code == Code.INVALID_ARGUMENT and "too many parts" in text


def test_unknown_method_is_unimplemented(driver):
    for service, method in (("Controller", "CreateSnapshot"), ("Controller", "NoSuchThing"), ("GroupController", "X")):
        code, text = raw(driver, method, b"", service)
        assert code == Code.UNIMPLEMENTED and method in text


def test_ids_and_paths_that_try_to_leave_the_pool_find_nothing(driver):
    for bad in ("../../etc", "v1-../../../../e-0123456789ab", "/", "x" * 5000, "%s%n"):
        assert driver.client.fails("ControllerGetVolume", volume_id=bad)[0] == Code.NOT_FOUND
        driver.client.call("DeleteVolume", volume_id=bad)
        code, text = driver.client.fails("NodeUnstageVolume", volume_id=bad, staging_target_path="/nowhere")
        assert code == Code.NOT_FOUND and bad[:64] in text
    foreign = "v1-" + "0" * 12 + "-" + "0" * 12  # of a pool that may be somewhere
    for method in ("ControllerGetVolume", "DeleteVolume"):
        assert driver.client.fails(method, volume_id=foreign)[0] == Code.FAILED_PRECONDITION


def test_callers_that_vanish_leave_nothing_behind(driver):
    volume = driver.client.create("pvc").volume_id
    fds = len(os.listdir(f"/proc/{driver.process.pid}/fd"))
    for _ in range(100):
        client = Client(driver.socket)
        client.stubs[1].ListVolumes.future(csi.ListVolumesRequest()).cancel()
        client.stubs[2].NodeStageVolume.future(csi.NodeStageVolumeRequest(volume_id=volume)).cancel()
        client.close()
    assert driver.client.call("Probe").ready.value
    wait_for(lambda: len(os.listdir(f"/proc/{driver.process.pid}/fd")) <= fds + 1)


def test_a_second_driver_takes_the_socket_and_the_first_leaves_it_alone(driver):
    second = Driver(driver.folder / "other")
    second.socket = driver.socket
    first_inode = os.stat(driver.socket).st_ino
    try:
        second.start()
        wait_for(lambda: os.stat(driver.socket).st_ino != first_inode)
        second.client = Client(driver.socket)
        inode = os.stat(driver.socket).st_ino
        driver.stop()
        assert os.stat(driver.socket).st_ino == inode
        assert second.client.call("Probe").ready.value
    finally:
        second.clean_up()
    assert not driver.socket.exists()
