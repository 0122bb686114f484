# SPDX-License-Identifier: Apache-2.0
"""Features of file systems, mounted against the disk below: each difference has its row in docs/design/004-mounts.md."""

import errno
import os
import re
import shutil
import subprocess

import pytest

from paths import TOP

from . import features_calls, features_data, features_names, features_programs, features_rights, mounts
from .conftest import public_folder

PAGE = TOP / "docs/design/004-mounts.md"
FEATURES = (features_data.FEATURES | features_names.FEATURES | features_rights.FEATURES | features_calls.FEATURES |
            features_programs.FEATURES)


def outcome(act, folder):
    """The value that act() returns, or the name of its error."""
    folder.mkdir()
    try:
        return act(folder)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    except subprocess.CalledProcessError as e:
        return f"{e.cmd[0]} fails"


@pytest.fixture(scope="module", params=["xfs", "ext4"])
def mounted(request, tmp_path_factory):
    """A directory of the disk, and the mount of another one."""
    top = public_folder()
    subprocess.run(["truncate", "-s", "1G", top / "image"], check=True)
    subprocess.run([f"mkfs.{request.param}", "-q", top / "image"], check=True)

    class Lower:
        path = top / "disk"

    Lower.path.mkdir()
    subprocess.run(["mount", "-o", "loop", top / "image", Lower.path], check=True)
    keeper = mounts.Keeper(tmp_path_factory.mktemp("keeper"))
    volume = mounts.Volume(keeper, Lower, top, "features", "exclusive", "must", "allow-other")
    below = Lower.path / "below"
    below.mkdir()
    yield below, volume.path
    os.chdir("/")
    keeper.ask("unmount", volume.name, 0, check=False)
    subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
    keeper.stop()
    subprocess.run(["umount", "-l", Lower.path], check=True)
    shutil.rmtree(top)


def rows():
    text = PAGE.read_text().split("## Against the disk below")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) \| (\w+) \|", text, re.M))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_works_as_on_the_disk_below_or_has_its_row(mounted, request, feature):
    name = re.sub(r"\W", "-", feature)
    below, mount = (outcome(FEATURES[feature], folder / name) for folder in mounted)
    if feature in rows():  # a value, or the name of an error
        assert str(mount) == rows()[feature]
        assert below != mount or request.node.callspec.params["mounted"] == "ext4", "the row says a difference from XFS"
    else:
        assert mount == below


def test_no_file_becomes_immutable_since_its_volume_could_not_be_deleted(mounted):
    assert outcome(features_data.set_immutable, mounted[1] / "immutable") == "ENOTSUP"


def test_each_row_is_a_feature():
    assert set(rows()) - set(FEATURES) == {"feature"}
