# SPDX-License-Identifier: Apache-2.0
"""A volume with `access: bind` behaves as a disk."""
import os
import subprocess

import pytest

from integration.lib import suites

from .driver import MIB


@pytest.fixture
def places(driver, folder):
    """A volume on the disk and as a container has it. Both paths are short, since sockets have at most 107 bytes."""
    os.chmod(folder, 0o755)
    volume = driver.client.create("pvc", size=64 * MIB, access="bind").volume_id
    driver.stage(volume)
    mounted = {"disk": driver.folder_of(volume) / "data", "pod": driver.publish(volume)}
    for name, path in mounted.items():
        (folder / name).mkdir()
        subprocess.run(["mount", "--bind", path, folder / name], check=True)
    yield [folder / name for name in mounted]
    subprocess.run(["umount", *(folder / name for name in mounted)], check=True)
    driver.unpublish(volume)
    driver.unstage(volume)


def test_pjdfstest_passes_where_it_passes_on_the_disk_below(places, tmp_path):
    found = []
    for path in places:
        (path / "empty").mkdir()
        found.append(suites.pjdfstest(path / "empty", tmp_path))
        subprocess.run(["rm", "-rf", path / "empty"], check=True)
    assert suites.different(*found) == {}
    assert list(found[1].values()).count("ok") >= 380


@pytest.mark.timeout(suites.FSX_SECONDS + 30)
def test_fsx_finds_nothing(places, tmp_path):
    assert suites.COMPLETE in suites.fsx(places[1] / "fsx", tmp_path, 1)
