# SPDX-License-Identifier: Apache-2.0
"""Cistern in the test cluster: its image, made of this machine's build."""

import os
import pathlib
import subprocess

from . import image
from .machine import BIN, TOP

BUILD = pathlib.Path(os.environ.get("CISTERN_BUILD", TOP / "build"))
IMAGE = "localhost/cistern:test"
SIDECARS = "localhost/csi-sidecars:test"


def suite():
    release = pathlib.Path("/etc/os-release").read_text()
    return next(line.split("=")[1].strip('"') for line in release.splitlines() if line.startswith("VERSION_CODENAME="))


def make_rootfs(folder):
    subprocess.run([TOP / "deploy/image/rootfs", suite(), BUILD / "bin", folder], check=True)
    return folder


def import_images(cluster):
    image.write(cluster.folder / "cistern.tar", IMAGE, image.layer_of_folder(make_rootfs(cluster.folder / "rootfs")),
                entrypoint=["/usr/bin/cisternd"], user="65532:65532")
    image.programs(cluster.folder / "sidecars.tar", SIDECARS, BIN / "csi-provisioner", BIN / "csi-resizer")
    for name in ("cistern", "sidecars"):
        cluster.import_image(cluster.folder / f"{name}.tar")
