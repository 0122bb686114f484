# SPDX-License-Identifier: Apache-2.0
"""A pod makes a tree that is deeper than any path. Its volume is unstaged and deleted all the same."""
import os

import pytest

from .driver import MIB, wait_for

LEVELS = 5000  # a removal that recursed ended after 2,048


def make_chain(path, levels):
    fd = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("far", os.O_CREAT, dir_fd=fd))
    os.close(fd)


@pytest.mark.parametrize("access", ["fuse", "bind"])
def test_volume_with_a_tree_deeper_than_any_path_is_deleted(driver, access):
    pool = driver.pools["default"]
    volume = driver.client.create("pvc", size=128 * MIB, access=access).volume_id
    driver.stage(volume)
    make_chain(driver.publish(volume), LEVELS)
    driver.unpublish(volume)
    driver.unstage(volume)
    driver.delete(volume)
    wait_for(lambda: not os.listdir(pool / "trash"))
    assert os.listdir(pool / "volumes") == []


def test_directory_of_a_volume_on_a_quota_is_removed_at_any_depth(driver):
    """The volume is a directory there, whose files are removed one by one. CI's kernels have no project quotas: this is
    the directory as the deletion of such a volume leaves it."""
    trash = driver.pools["default"] / "trash"
    volume = driver.client.create("pvc", size=32 * MIB).volume_id
    driver.delete(volume)
    wait_for(lambda: not os.listdir(trash))
    driver.stop()
    (trash / volume / "data").mkdir(parents=True)
    make_chain(trash / volume / "data", LEVELS)
    driver.start()
    wait_for(lambda: not os.listdir(trash))
