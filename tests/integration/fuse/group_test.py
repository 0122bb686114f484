# SPDX-License-Identifier: Apache-2.0
"""A mount that shows a group is compared with a copy of its files that really has that group."""

import json
import os
import random
import stat
import subprocess
import sys

import pytest

GROUP, STEPS = 4321, 100
USERS = [(0, 0, []), (1000, 1000, [GROUP]), (1001, 1001, [GROUP, 5]), (1002, GROUP, [5, 7]), (1003, 1003, [])]
NAMES = ["d", "d/e", "d/g", "d/g/h", "new", "d/new", "d/g/new", "dir", "dir/x", "dir/y/z", "other", "other/a", "other/b",
         "other/b/c", "link"]
MODES = [0o600, 0o644, 0o2755, 0o6755, 0o770, 0o1777, 0o7777, 0o700]


def filled(folder):
    os.chmod(folder, 0o777)
    for name, group, mode in ("d", 0, 0o755), ("d/g", 0, 0o755), ("other", 77, 0o2777):
        (folder / name).mkdir()
        os.chown(folder / name, 0, group)
        os.chmod(folder / name, mode)
    for name in "d/e", "d/g/h":
        (folder / name).write_text("x")
        os.chmod(folder / name, 0o640)
    (folder / "link").symlink_to("d/e")


def change_group(folder):
    """As the kubelet does it."""
    for base, _, files in os.walk(folder):
        os.chown(base, -1, GROUP)
        os.chmod(base, os.stat(base).st_mode | 0o2070)
        for path in (os.path.join(base, name) for name in files):
            if not os.path.islink(path):
                os.chown(path, -1, GROUP)
                os.chmod(path, os.stat(path).st_mode | 0o060)


def seen(root):
    found = {}
    for base, folders, files in os.walk(root):
        for path in (os.path.join(base, name) for name in folders + files):
            st = os.lstat(path)
            mode = "link" if stat.S_ISLNK(st.st_mode) else oct(st.st_mode)
            found[os.path.relpath(path, root)] = [st.st_uid, st.st_gid, mode]
    return found


def act(rnd, root):
    path, other = (os.path.join(root, rnd.choice(NAMES)) for _ in range(2))
    uid, gid, mode = rnd.choice([-1, 0, 1000, 1001, 5]), rnd.choice([-1, 0, 5, 7, GROUP, 2000]), rnd.choice(MODES)
    if os.path.isdir(path):
        mode |= stat.S_ISGID  # new files get the mount's group even where that was taken away
    acts = {
        "chown": lambda: os.chown(path, uid, gid),
        "chgrp": lambda: os.chown(path, -1, gid),
        "chgrp -h": lambda: os.lchown(path, -1, gid),
        "fchown": lambda: os.fchown(os.open(path, os.O_RDONLY), uid, gid),
        "chmod": lambda: os.chmod(path, mode),
        "create": lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode & 0o777),
        "mkdir": lambda: os.mkdir(path, mode & 0o777),
        "rename": lambda: os.rename(path, other),
        "link": lambda: os.link(path, other, follow_symlinks=False),
        "symlink": lambda: os.symlink("d/e", path),
        "unlink": lambda: os.unlink(path),
    }
    name = rnd.choice(list(acts))
    try:
        acts[name]()
        error = 0
    except OSError as e:
        error = e.errno
    return f"{name} {path[len(root):]} {uid}:{gid} {mode:o}", error


def steps(root, seed):
    rnd = random.Random(seed)
    for _ in range(STEPS):
        uid, gid, groups = rnd.choice(USERS)
        os.umask(rnd.choice([0, 0o022, 0o027, 0o077]))
        os.setgroups(groups)
        os.setresgid(gid, gid, 0)
        os.setresuid(uid, uid, 0)
        done = act(rnd, root)
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.closerange(3, 64)
        yield f"uid {uid}: {done[0]}", done[1], seen(root)


def run(root, seed):
    done = subprocess.run([sys.executable, __file__, str(root), str(seed)], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", range(20))
def test_a_shown_group_behaves_as_one_on_disk_to_each_user(volumes, disk, seed):
    volume = volumes("v", "exclusive", "allow-other", f"group={GROUP}")
    real = disk.path / "real"
    subprocess.run(["rm", "-rf", real], check=True)
    real.mkdir()
    filled(volume.data)
    filled(real)
    change_group(real)
    volume.unmount()
    volume.mount()
    for ours, theirs in zip(run(volume.path, seed), run(real, seed), strict=True):
        assert ours == theirs
    volume.unmount()
    volume.mount()
    assert seen(volume.path) == ours[2], "after a mount"


if __name__ == "__main__":
    print(json.dumps(list(steps(sys.argv[1], int(sys.argv[2])))))
