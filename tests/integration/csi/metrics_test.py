# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import threading
import time
import urllib.request

import grpc
import pytest

from .driver import MIB, Client, Driver, command_line, processes, wait_for


@pytest.fixture
def watched(folder):
    d = Driver(folder, flags=["--metrics=127.0.0.1:0", "--metrics-interval=200ms", "--log-format=json"])
    yield d.start()
    d.clean_up()


def scrape(driver, path="/metrics"):
    port = re.search(r'"metrics are served","port":"(\d+)"', driver.log_text()).group(1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
        return reply.read().decode()


def count(text, method, status):
    labels = f'driver_name="csi.cistern.io",method_name="{method}",grpc_status_code="{status}"'
    found = re.search(rf"^csi_plugin_operations_seconds_count{{{re.escape(labels)}}} (\d+)", text, re.M)
    return int(found.group(1)) if found else 0


def test_each_call_is_counted_under_its_method_and_status(watched):
    for _ in range(3):
        watched.client.call("NodeGetInfo")
    watched.client.fails("CreateVolume")
    watched.client.fails("CreateSnapshot")
    text = scrape(watched)
    assert count(text, "/csi.v1.Node/NodeGetInfo", "OK") == 3
    assert count(text, "/csi.v1.Controller/CreateVolume", "InvalidArgument") == 1
    assert "CreateSnapshot" not in text, "names that callers make up would grow the metric without bound"
    assert scrape(watched, "/healthz")


def test_log_is_one_json_object_a_line_and_has_refused_calls(watched):
    import json
    watched.client.fails("CreateVolume")
    lines = [json.loads(line) for line in watched.log_text().splitlines()]
    refused = [line for line in lines if line["event"] == "call refused"]
    assert refused[0]["method"] == "/csi.v1.Controller/CreateVolume" and refused[0]["code"] == "INVALID"


def test_calls_that_wait_for_data_leave_threads_for_other_calls(watched, folder):
    source = folder / "bucket" / "data"
    source.mkdir(parents=True)
    (source / "big").write_bytes(bytes(8 * MIB))
    waiting = []
    for i in range(40):
        volume = watched.client.create(f"pvc-{i}", size=16 * MIB, access="bind", uri=f"file://{source}/",
                                       bandwidth="64Ki").volume_id
        watched.stage(volume)
        watched.target(volume).parent.mkdir(parents=True, exist_ok=True)

        def wait(volume=volume):
            try:
                watched.client.call("NodePublishVolume", timeout=4, **watched.publish_fields(volume))
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAVAILABLE
        waiting.append(threading.Thread(target=wait))
        waiting[-1].start()
    other = Client(watched.socket)
    for _ in range(20):
        other.call("Probe", timeout=2)
    watched.unstage(watched.client.create("blank", access="bind").volume_id)
    other.close()
    for t in waiting:
        t.join()


LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(?:,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.]+(?:e[+-][0-9]+)?')


def value(text, name, **labels):
    """The value of the one series with this name and these labels; None if it is missing."""
    wanted = ",".join(f'{k}="{v}"' for k, v in labels.items())
    found = re.findall(rf"^{name}{{{re.escape(wanted)}}} (-?\d+)$", text, re.M)
    assert len(found) <= 1
    return int(found[0]) if found else None


def volumes(driver, phase, pool="default"):
    return value(scrape(driver), "cistern_volumes", node="node-1", pool=pool, phase=phase) or 0


def test_scrape_is_valid_and_each_series_has_its_type(watched):
    watched.client.create("blank", access="bind")
    text = scrape(watched)
    types = dict(re.findall(r"^# TYPE (\S+) (counter|gauge|histogram)$", text, re.M))
    for line in text.splitlines():
        if not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name = re.match(r"[a-z_]+", line).group()
            assert name in types or re.sub(r"_(bucket|sum|count)$", "", name) in types, line
    assert types["cistern_pool_capacity_bytes"] == types["cistern_volumes"] == "gauge"
    assert text.endswith("\n")


def test_a_pool_shows_what_it_has_what_it_promised_and_whether_it_lives(watched):
    pool = {"node": "node-1", "pool": "default"}
    before = scrape(watched)
    whole = value(before, "cistern_pool_capacity_bytes", **pool)
    disk = os.statvfs(watched.pools["default"])
    assert 0 <= disk.f_blocks * disk.f_frsize - whole <= 64 * MIB  # the pool's own files
    assert value(before, "cistern_pool_reserved_bytes", **pool) == 0
    assert 0 < value(before, "cistern_pool_available_bytes", **pool) <= whole
    assert value(before, "cistern_pool_healthy", **pool) == 1
    watched.client.create("a", size=64 * MIB, access="bind")
    volume = watched.client.create("b", size=32 * MIB, access="bind").volume_id
    wait_for(lambda: value(scrape(watched), "cistern_pool_reserved_bytes", **pool) == 96 * MIB)
    wait_for(lambda: volumes(watched, "Ready") == 2)
    watched.delete(volume)
    wait_for(lambda: volumes(watched, "Ready") == 1)
    wait_for(lambda: value(scrape(watched), "cistern_pool_reserved_bytes", **pool) == 64 * MIB)
    gone = watched.folder / "gone"
    watched.pools["default"].rename(gone)
    watched.pools["default"].mkdir()
    wait_for(lambda: value(scrape(watched), "cistern_pool_healthy", **pool) == 0)
    watched.pools["default"].rmdir()
    gone.rename(watched.pools["default"])
    wait_for(lambda: value(scrape(watched), "cistern_pool_healthy", **pool) == 1)


@pytest.mark.tsan
def test_bytes_of_a_running_transfer_are_shown(watched, folder):
    source = folder / "bucket" / "data"
    source.mkdir(parents=True)
    (source / "big").write_bytes(bytes(4 * MIB))
    volume = watched.client.create("pvc", size=32 * MIB, access="bind", uri=f"file://{source}/",
                                   bandwidth="1Mi").volume_id
    node = {"node": "node-1"}
    wait_for(lambda: value(scrape(watched), "cistern_hydration_inflight", **node) == 1)
    wait_for(lambda: 0 < value(scrape(watched), "cistern_hydration_rate_bytes_per_second", **node) < 8 * MIB)
    assert volumes(watched, "Listing") + volumes(watched, "Hydrating") == 1
    wait_for(lambda: value(scrape(watched), "cistern_hydration_inflight", **node) == 0, seconds=60)
    assert value(scrape(watched), "cistern_hydration_rate_bytes_per_second", **node) == 0
    assert volumes(watched, "Ready") == 1 and volumes(watched, "Hydrating") == 0
    assert watched.folder_of(volume)


def test_bytes_that_the_bucket_has_not_confirmed_are_pending(watched, folder):
    blocked = folder / "out"
    blocked.write_text("a file, where a folder should be")
    volume = watched.client.create("pvc", access="bind", **{"export.uri": f"file://{blocked}/x/"}).volume_id
    watched.stage(volume)
    target = watched.publish(volume)
    (target / "result").write_bytes(bytes(3 * MIB))
    watched.unpublish(volume)
    wait_for(lambda: value(scrape(watched), "cistern_export_pending_bytes", node="node-1") == 3 * MIB)
    blocked.unlink()
    result = blocked / "x" / "result"
    wait_for(lambda: result.exists() and result.stat().st_size == 3 * MIB, seconds=60)
    wait_for(lambda: value(scrape(watched), "cistern_export_pending_bytes", node="node-1") == 0, seconds=60)
    watched.unstage(volume)


def requests(text, op, result="ok"):
    return value(text, "cistern_fuse_ops_total", op=op, result=result) or 0


@pytest.mark.tsan
def test_requests_of_mounts_are_counted_across_restarts_and_a_hanging_mount_delays_no_scrape(watched):
    volume = watched.client.create("pvc", access="fuse").volume_id
    watched.stage(volume)
    target = watched.publish(volume)
    for i in range(20):
        (target / f"folder-{i}").mkdir()
    (target / "file").write_bytes(b"x")
    wait_for(lambda: requests(scrape(watched), "make") == 21)  # the file, too
    text = scrape(watched)
    opens = {how: value(text, "cistern_fuse_passthrough_opens_total", node="node-1", result=how) for how in ("ok", "plain")}
    assert sorted(opens.values()) == [0, 1], opens
    assert 'cistern_fuse_op_seconds_bucket{op="make",result="ok",le="+Inf"} 21\n' in text
    assert requests(text, "make", "error") == 0

    (pid,) = (p for p in processes() if "cistern-mount" in command_line(p) and volume in command_line(p))
    os.kill(pid, signal.SIGKILL)
    (target / "one-more").mkdir()
    wait_for(lambda: requests(scrape(watched), "make") == 22)
    wait_for(lambda: value(scrape(watched), "cistern_fuse_handover_total", node="node-1", result="ok") == 1)

    (pid,) = (p for p in processes() if "cistern-mount" in command_line(p) and volume in command_line(p))
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        for _ in range(10):
            assert requests(scrape(watched), "make") == 22
        assert time.monotonic() - began < 8
    finally:
        os.kill(pid, signal.SIGCONT)
    watched.unpublish(volume)
    watched.unstage(volume)
    other = watched.client.create("another", access="fuse").volume_id
    watched.stage(other)
    (watched.publish(other) / "folder").mkdir()
    wait_for(lambda: requests(scrape(watched), "make") == 23)  # the counts of a mount outlive it
    watched.unpublish(other)
    watched.unstage(other)
