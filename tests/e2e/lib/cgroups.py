# SPDX-License-Identifier: Apache-2.0
"""A control group a node, below which the kubelet puts its pods: one directory in every hierarchy of version 1, or one in
the single hierarchy of version 2."""

import pathlib
import subprocess

from .machine import DEATH_SECONDS, eventually

ROOT = pathlib.Path("/sys/fs/cgroup")


def hierarchies():
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [h for h in ROOT.iterdir() if (h / "cgroup.procs").exists()]


def version():
    return 2 if hierarchies() == [ROOT] else 1


def make(name):
    for hierarchy in hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if version() == 2:
            controllers = (hierarchy / "cgroup.controllers").read_text().split()
            (hierarchy / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))
        elif (group / "cpuset.cpus").exists():  # an empty cpuset takes no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy / file).read_text())


def remove(name):
    """Of a node whose processes were killed; the last of them may still be on their way out."""
    def no_group_left():
        left = [h / name for h in hierarchies() if (h / name).exists()]
        for group in left:
            subprocess.run(["find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], capture_output=True)
        return not any(group.exists() for group in left)

    eventually(no_group_left, f"the control groups of {name} are gone", DEATH_SECONDS)


def names(prefix):
    return {group.name for h in hierarchies() for group in h.glob(f"{prefix}*")}
