# SPDX-License-Identifier: Apache-2.0
"""--disks: cisternd on a machine whose /sys, /dev and mdadm are replaced, with loop devices for NVMe disks. This kernel may
have no arrays and no quotas of XFS: what the real ones do is tests/vm's."""
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from .agent import Node, wait_for

MIB = 1 << 20
DISK = 320 * MIB
MODEL = "Amazon EC2 NVMe Instance Storage"

# Writes what it was asked, the members' superblocks (metadata 1.2), and the array's entries in /sys and /dev.
MDADM = """#!/usr/bin/python3
import os, struct, sys
asked = sys.argv[1:]
with open("{folder}/mdadm.log", "a") as log:
    log.write(" ".join(asked) + "\\n")
devices = [word for word in asked if word.startswith("/dev/nvme")]
for device in devices:
    if asked[0] == "--create":
        name = next(word[7:] for word in asked if word.startswith("--name="))
        with open(device, "r+b") as disk:
            disk.seek(4096)
            disk.write(struct.pack("<II8s16s32s8sI", 0xa92b4efc, 1, b"", b"u" * 16, b"any:" + name.encode(), b"", 0)
                       .ljust(92, b"\\0") + struct.pack("<I", len(devices)))
    os.mkdir("{folder}/sys/block/" + os.path.basename(device) + "/holders/md127")
"""

# As xfsprogs from 6.5 on, which are in the image: a feature that kernels before 5.19 do not know is on unless it is refused.
MKFS = """#!/bin/sh
case "$*" in *nrext64=*) ;; *) set -- -i nrext64=1 "$@" ;; esac
exec {folder}/mkfs.xfs "$@"
"""


class Loop:
    def __init__(self, path):
        with open(path, "wb") as file:
            file.truncate(DISK)
        self.device = subprocess.run(["losetup", "--find", "--show", path], capture_output=True, text=True,
                                     check=True).stdout.strip()
        self.number = f"b {os.major(os.stat(self.device).st_rdev)} {os.minor(os.stat(self.device).st_rdev)}"

    def content(self):
        with open(self.device, "rb") as device:
            return hashlib.sha256(device.read()).hexdigest()

    def remove(self):
        subprocess.run(["losetup", "--detach", self.device], check=True)


class Machine:
    """The disks are called by their serials' last letter: nvme0n1 has the serial SN0."""

    def __init__(self, folder, count):
        self.folder, self.disks = folder, {}
        for n in range(count):
            name = f"nvme{n}n1"
            self.disks[name] = Loop(folder / name)
            self.tell(name, "size", DISK // 512)
            self.tell(name, "ro", 0)
            self.tell(name, "device/model", MODEL)
            self.tell(name, "device/serial", f"SN{n}")
            (folder / "sys/block" / name / "holders").mkdir()
        self.array = Loop(folder / "array")
        (folder / "sbin").mkdir()
        shutil.copy("/usr/sbin/mkfs.xfs", folder)
        for name, text in (("mdadm", MDADM), ("mkfs.xfs", MKFS)):
            (folder / "sbin" / name).write_text(text.format(folder=folder))
            (folder / "sbin" / name).chmod(0o755)
        nodes = " ".join(f"mknod {folder}/dev/{name} {loop.number};" for name, loop in
                         [*self.disks.items(), ("md127", self.array)])
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f"""
             mkdir {folder}/dev; mount -t tmpfs dev {folder}/dev
             cp -a /dev/null /dev/zero /dev/urandom /dev/fuse /dev/loop* {folder}/dev/
             {nodes}
             mount -t overlay sbin -o lowerdir={folder}/sbin:/usr/sbin /usr/sbin
             mount --bind {folder}/dev /dev; mount --bind {folder}/sys /sys; touch {folder}/ready; exec sleep 1000000"""])
        wait_for(lambda: (folder / "ready").exists() or self.holder.poll() is not None)
        assert self.holder.poll() is None

    def tell(self, disk, what, value):
        path = self.folder / "sys/block" / disk / what
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def inside(self, *command):
        return ["nsenter", "--target", str(self.holder.pid), "--mount", "--", *map(str, command)]

    def run(self, *command):
        return subprocess.run(self.inside(*command), capture_output=True, text=True, check=True).stdout

    def asked(self):
        log = self.folder / "mdadm.log"
        return log.read_text().splitlines() if log.exists() else []

    def assert_linux_5_15_knows(self, device):
        features = self.run("xfs_db", "-r", "-c", "version", device)
        assert "CRC" in features and "NREXT64" not in features, features

    def remove(self):
        self.holder.kill()
        self.holder.wait()
        for loop in [*self.disks.values(), self.array]:
            loop.remove()


class OnMachine(Node):
    def __init__(self, folder, machine, *disks):
        super().__init__(folder, flags=[f"--disks={which}" for which in disks])
        self.machine = machine

    def command(self):
        return self.machine.inside(*super().command())

    def run_once(self):
        """Until it serves, or has said why not: this kernel may not know prjquota."""
        process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: process.poll() is not None or self.socket.exists(), 60)
        finally:
            process.terminate()
            said = process.communicate(timeout=20)[1]
        return said

    def reports(self):
        """Why its pool stays closed, from the log of a driver that serves in spite of it."""
        lines = [line for line in self.run_once().splitlines() if "pool cannot be opened" in line]
        assert lines and "pool=default" in lines[-1], lines
        return lines[-1]

    def refusal(self):
        """The last line of one whose flags are refused."""
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 10, done
        return done.stderr.splitlines()[-1]


IDENTITY = json.dumps({"version": 1, "uuid": "0123456789ab", "pool": "default", "node": "node-1", "createdAt": "x"})


@pytest.fixture
def machine(folder):
    made = Machine(folder, 3)
    yield made
    made.remove()


def driver(folder, machine, *disks):
    return OnMachine(folder, machine, *(f"default={which}" for which in disks))


def start_twice(node, machine, device, said):
    """Starts the driver twice on the pool that its run before made on `device`; `said` is the report of that run."""
    pool = node.pools["default"]
    if str(pool) not in machine.run("cat", "/proc/mounts"):  # then it is mounted for it
        assert f"cannot mount '{device}' on '{pool}'" in said
        machine.run("mount", device, pool)
    machine.run("sh", "-c", f"echo '{IDENTITY}' >{pool}/cistern.json")  # as if the API server had been asked
    for _ in range(2):
        try:
            node.start()
        finally:
            node.stop()


def test_blank_disks_of_a_model_become_the_pool_once_and_others_are_left_alone(folder, machine):
    machine.tell("nvme0n1", "device/model", "Amazon Elastic Block Store")
    boot = machine.disks["nvme0n1"].content()
    node = driver(folder, machine, "model:Amazon EC2 NVMe*")
    pool = node.pools["default"]
    said = node.run_once()
    assert machine.asked() == ["--create /dev/md/cistern-default --run --force --level=0 --metadata=1.2 --homehost=any "
                               "--name=cistern-default --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1"], said
    assert machine.disks["nvme0n1"].content() == boot
    assert machine.run("blkid", "-p", "-o", "value", "-s", "TYPE", "/dev/md127").strip() == "xfs", said
    machine.assert_linux_5_15_knows("/dev/md127")
    start_twice(node, machine, "/dev/md127", said)
    assert "volumes" in machine.run("ls", pool), "the pool is on the array"
    assert len(machine.asked()) == 1, "and is made once"
    node.clean_up()


@pytest.mark.parametrize("make,what", [("mkfs.ext4 -q", "an ext file system"), ("mkfs.xfs -q", "XFS"), ("mkswap -q", "swap"),
                                       ("sh -c 'echo x >$0'", "unknown data")])
def test_a_disk_with_content_is_refused_unless_it_is_named_by_its_own_serial(folder, machine, make, what):
    subprocess.run(f"{make} {machine.disks['nvme1n1'].device}", shell=True, check=True)
    before = machine.disks["nvme1n1"].content()
    for wipe in ([], ["wipe:SN0"], ["wipe:SN"], ["wipe:SN*"], ["wipe:nvme1n1"]):
        said = driver(folder, machine, "path:/dev/nvme1n1", *wipe).reports()
        assert f"nvme1n1' ({MODEL}, serial SN1) is not blank: it has {what}" in said and "CIS2041" in said, said
    assert machine.disks["nvme1n1"].content() == before and not machine.asked()
    driver(folder, machine, "path:/dev/nvme1n1", "wipe:SN1").run_once()
    assert [line.split()[-1] for line in machine.asked()] == ["/dev/nvme1n1"]


@pytest.mark.parametrize("file,value,why", [("ro", "1", "it is read-only"), ("nvme1n1p1/partition", "1", "it has partitions"),
                                            ("holders/dm-0", "", "is in use by 'dm-0'")])
def test_a_disk_in_use_is_refused_and_with_it_the_pool(folder, machine, file, value, why):
    machine.tell("nvme1n1", file, value)
    said = driver(folder, machine, "path:/dev/nvme*", "wipe:SN1").reports()
    assert f"pool 'default': the disk 'nvme1n1' ({MODEL})" in said and why in said and "CIS2041" in said, said
    assert not machine.asked()


def test_missing_disks_and_invalid_words_are_reported(folder, machine):
    assert "none of the 3 NVMe disks of this node matches the devices of the pool" in driver(folder, machine, "model:Other*").reports()
    for word in ("nvme0n1", "path:nvme0n1", "model:", "wipe:", "device:", "device:sdb"):
        assert f"--disks: '{word}' is not model:PATTERN, path:/dev/NAME, wipe:SERIAL or device:/dev/NAME" in driver(folder, machine, word).refusal()
    assert "'fast=path:/dev/nvme0n1' is not POOL=... of a pool" in OnMachine(folder, machine, "fast=path:/dev/nvme0n1").refusal()
    assert not machine.asked()


def test_an_array_that_lost_a_disk_is_not_created_again(folder, machine):
    driver(folder, machine, "path:/dev/nvme0n1", "path:/dev/nvme1n1").run_once()
    shutil.rmtree(folder / "sys/block/nvme1n1")
    said = driver(folder, machine, "path:/dev/nvme0n1", "path:/dev/nvme1n1", "wipe:SN0", "wipe:SN1").reports()
    assert "1 disks of its array were found, but it has 2" in said and "CIS2042" in said, said
    assert len(machine.asked()) == 1


def test_an_array_that_holds_something_else_is_not_formatted(folder, machine):
    driver(folder, machine, "path:/dev/nvme0n1").run_once()
    subprocess.run(["mkfs.ext4", "-q", "-F", machine.array.device], check=True)
    before = machine.array.content()
    said = driver(folder, machine, "path:/dev/nvme0n1", "wipe:SN0").reports()
    assert "its array '/dev/md127' has an ext file system instead of an XFS" in said, said
    assert machine.array.content() == before


LABEL = "/dev/disk/by-partlabel/cistern"


@pytest.fixture
def labelled(folder, machine):
    """The driver of a node whose partition, a disk like any other, has the label of the pool."""
    machine.run("mkdir", "-p", os.path.dirname(LABEL))
    machine.run("ln", "-s", "/dev/nvme1n1", LABEL)
    return driver(folder, machine, f"device:{LABEL}")


def test_a_blank_disk_by_its_label_is_formatted_once_and_mounted(machine, labelled):
    pool = labelled.pools["default"]
    others = [machine.disks[name].content() for name in ("nvme0n1", "nvme2n1")]
    said = labelled.run_once()
    assert machine.run("blkid", "-p", "-o", "value", "-s", "TYPE", LABEL).strip() == "xfs", said
    start_twice(labelled, machine, LABEL, said)
    assert "volumes" in machine.run("ls", pool), "the pool is on the disk, which was not formatted again"
    assert [machine.disks[name].content() for name in ("nvme0n1", "nvme2n1")] == others and not machine.asked()
    labelled.clean_up()


def test_a_labelled_disk_with_content_is_refused_and_a_missing_one_named(machine, labelled):
    subprocess.run(["mkfs.ext4", "-q", machine.disks["nvme1n1"].device], check=True)
    before = machine.disks["nvme1n1"].content()
    said = labelled.reports()
    assert f"pool 'default': the disk '{LABEL}' is not blank: it has an ext file system" in said and "CIS2041" in said, said
    assert machine.disks["nvme1n1"].content() == before
    machine.run("rm", LABEL)
    said = labelled.reports()
    assert f"the disk '{LABEL}' is missing" in said and "CIS2040" in said, said


def test_a_pool_is_one_disk_or_an_array(folder, machine):
    said = driver(folder, machine, "path:/dev/nvme0n1", f"device:{LABEL}").refusal()
    assert "pool 'default' has a device, and model, path or wipe" in said
