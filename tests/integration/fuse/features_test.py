# SPDX-License-Identifier: Apache-2.0
"""Features of file systems, mounted against the disk below: each difference has its row in docs/design/004-mounts.md."""

import errno
import os
import re
import subprocess

import pytest

from paths import TOP

from . import features_data, features_names, mounts

PAGE = TOP / "docs/design/004-mounts.md"
FEATURES = features_data.FEATURES | features_names.FEATURES


def outcome(act, folder):
    """The value that act() returns, or the name of its error."""
    folder.mkdir()
    try:
        return act(folder)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    except subprocess.CalledProcessError as e:
        return f"{e.cmd[0]} fails"


@pytest.fixture(scope="module")
def xfs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xfs")
    subprocess.run(["truncate", "-s", "1G", folder / "image"], check=True)
    subprocess.run(["mkfs.xfs", "-q", folder / "image"], check=True)
    (folder / "disk").mkdir()
    subprocess.run(["mount", "-o", "loop", folder / "image", folder / "disk"], check=True)
    yield folder / "disk"
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


@pytest.fixture(scope="module")
def mounted(xfs, tmp_path_factory):
    """A directory of the disk, and the mount of another one."""
    class Lower:
        path = xfs

    keeper = mounts.Keeper(tmp_path_factory.mktemp("keeper"))
    volume = mounts.Volume(keeper, Lower, tmp_path_factory.mktemp("places"), "features", "exclusive", "must", "allow-other")
    below = xfs / "below"
    below.mkdir()
    yield below, volume.path
    os.chdir("/")
    keeper.ask("unmount", volume.name, 0, check=False)
    subprocess.run(["umount", "-l", volume.path], capture_output=True, check=False)
    keeper.stop()


def rows():
    text = PAGE.read_text().split("## Against the disk below")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| (.+?) \| (\w+) \|", text, re.M))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_works_as_on_the_disk_below_or_has_its_row(mounted, feature):
    name = re.sub(r"\W", "-", feature)
    below, mount = (outcome(FEATURES[feature], folder / name) for folder in mounted)
    if feature in rows():  # "False", or the name of an error
        assert str(mount) == rows()[feature] != str(below)
    else:
        assert mount == below


def test_no_file_becomes_immutable_since_its_volume_could_not_be_deleted(mounted):
    assert outcome(features_data.set_immutable, mounted[1] / "immutable") == "ENOTSUP"


def test_each_row_is_a_feature():
    assert set(rows()) - set(FEATURES) == {"feature"}
