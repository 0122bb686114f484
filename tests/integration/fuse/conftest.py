# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from integration.lib.disk import Disk

from . import mounts


def public_folder():
    """pytest's own are closed to other users, whom some tests are about."""
    folder = Path(tempfile.mkdtemp(prefix="cistern-mounts-"))
    os.chmod(folder, 0o755)
    return folder


@pytest.fixture(scope="session")
def disk():
    folder = public_folder()
    made = Disk(folder / "disk", "2G")
    yield made
    made.unmount()
    shutil.rmtree(folder)


@pytest.fixture
def volumes(disk, tmp_path):
    """Makes volumes: volumes("name", "exclusive", kill_at="mkdir:before:1"). Everything is gone afterwards."""
    made = []
    keepers = []
    places = public_folder()

    def make(name, *options, kill_at=None):
        if not keepers:
            keepers.append(mounts.Keeper(tmp_path, kill_at))
        made.append(mounts.Volume(keepers[0], disk, places, name, *options))
        return made[-1]

    yield make
    for volume in made:
        volume.keeper.ask("unmount", volume.name, 0, check=False)
        subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", volume.data], check=True)
    for keeper in keepers:
        keeper.stop()
    shutil.rmtree(places)
