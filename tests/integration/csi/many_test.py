# SPDX-License-Identifier: Apache-2.0
"""Volumes by the hundred (CISTERN_VOLUMES=1000) walk their whole way, and nothing of them is left: no descriptor,
mount, loop device, thread, child or byte."""
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .driver import MIB, Client, mounts, processes, wait_for

VOLUMES, WORKERS = int(os.environ.get("CISTERN_VOLUMES", "200")), 8


def children_of(pid):
    found = []
    for p in processes():
        try:
            fields = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(p)
    return found


def loops_of(folder):
    out = subprocess.run(["losetup", "-l", "-n", "-O", "BACK-FILE"], capture_output=True, text=True, check=True).stdout
    return [line for line in out.splitlines() if str(folder) in line]


def held(pid):
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def walk(driver, client, name, access):
    volume = client.create(name, size=16 * MIB, access=access).volume_id
    driver.stage(volume, client=client)
    target = driver.publish(volume, client=client)
    (target / "file").write_text(name)
    assert (target / "file").read_text() == name
    driver.unpublish(volume, client=client)
    assert not target.exists()
    driver.unstage(volume, client=client)
    driver.delete(volume, client=client)


@pytest.mark.timeout(900)
def test_hundreds_of_volumes_leave_nothing_behind(driver):
    local, clients = threading.local(), []

    def one(i):
        if not hasattr(local, "client"):
            local.client = Client(driver.socket)
            clients.append(local.client)
        walk(driver, local.client, f"pvc-{i}", "fuse" if i % 2 else "bind")

    walk(driver, driver.client, "first", "fuse")  # what is made once and kept is made now
    keeper, = driver.keeper_pids()
    pool = driver.pools["default"]
    wait_for(lambda: not list((pool / "trash").iterdir()))
    before = held(driver.process.pid), held(keeper)
    with ThreadPoolExecutor(WORKERS) as pool_of_threads:
        list(pool_of_threads.map(one, range(VOLUMES)))
        wait_for(lambda: not list((pool / "trash").iterdir()))
    for client in clients:
        client.close()
    assert not driver.client.call("ListVolumes").entries
    assert [m for m in mounts() if str(driver.folder) in m] == []
    wait_for(lambda: not loops_of(driver.folder))
    for part in ("volumes", "making", "trash"):
        assert list((pool / part).iterdir()) == []
    assert sum(f.stat().st_blocks for f in pool.rglob("*")) * 512 < MIB
    assert list((driver.folder / "pods" / "pod").iterdir()) == []
    assert children_of(keeper) == [] and [p for p in children_of(driver.process.pid) if p != keeper] == []
    wait_for(lambda: held(driver.process.pid)[0] <= before[0][0] and held(keeper) == before[1])
    assert held(driver.process.pid)[1] <= before[0][1] + 2  # gRPC keeps a few threads of its own
