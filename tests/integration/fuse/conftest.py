# SPDX-License-Identifier: Apache-2.0
import subprocess

import mounts
import pytest


@pytest.fixture(scope="session")
def disk(tmp_path_factory):
    made = mounts.Disk(tmp_path_factory.mktemp("disk"))
    yield made
    made.unmount()


@pytest.fixture
def volumes(disk, tmp_path):
    """Makes volumes: volumes("name", "exclusive", kill_at="mkdir:before:1"). Everything is gone afterwards."""
    made = []
    keepers = []

    def make(name, *options, kill_at=None):
        if not keepers:
            keepers.append(mounts.Keeper(tmp_path, kill_at))
        made.append(mounts.Volume(keepers[0], disk, tmp_path, name, *options))
        return made[-1]

    yield make
    for volume in made:
        volume.keeper.ask("unmount", volume.name, 0, check=False)
        subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", volume.data], check=True)
    for keeper in keepers:
        keeper.stop()
