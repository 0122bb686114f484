# SPDX-License-Identifier: Apache-2.0
import re
import threading
import urllib.request

import grpc
import pytest
from driver import MIB, Client, Driver


@pytest.fixture
def watched(folder):
    d = Driver(folder, flags=["--metrics=127.0.0.1:0", "--log-format=json"])
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


def test_the_log_is_one_json_object_a_line_and_tells_of_refused_calls(watched):
    import json
    watched.client.fails("CreateVolume")
    lines = [json.loads(line) for line in watched.log_text().splitlines()]
    refused = [line for line in lines if line["event"] == "call refused"]
    assert refused[0]["method"] == "/csi.v1.Controller/CreateVolume" and refused[0]["code"] == "INVALID"


def test_those_who_wait_for_data_leave_threads_for_the_others(watched, folder):
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
                watched.client.call("NodePublishVolume", timeout=8, **watched.publish_fields(volume))
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
