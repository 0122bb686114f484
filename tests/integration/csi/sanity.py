# SPDX-License-Identifier: Apache-2.0
"""csi-sanity, run as Kubernetes' storage developers run it, against a driver in one process or in two."""
import subprocess
import xml.etree.ElementTree as ElementTree

from paths import CACHE

from .driver import MIB

# Attaching, snapshots, clones and groups are not served.
NOT_SERVED = [
    "ControllerPublishVolume", "ControllerUnpublishVolume", "volume lifecycle", "CreateSnapshot", "DeleteSnapshot",
    "ListSnapshots", "GetSnapshot", "GroupController", "source snapshot", "source volume",
]


def names_of(cases, *statuses):
    """The cases that ended so, without those that we do not offer."""
    return [name for name, status in cases.items()
            if status in statuses and not (status == "skipped" and any(words in name for words in NOT_SERVED))]


def run_sanity(folder, access, socket, controller_socket=None):
    """How each case ended, by its name; the whole has passed."""
    parameters, mutable, report = folder / "parameters.yaml", folder / "mutable.yaml", folder / "junit.xml"
    parameters.write_text(f"access: {access}\n")
    mutable.write_text('concurrency: "32"\n')
    other = [f"--csi.controllerendpoint=unix://{controller_socket}"] if controller_socket else []
    out = subprocess.run(
        [CACHE / "bin" / "csi-sanity", f"--csi.endpoint=unix://{socket}", *other, f"--csi.mountdir={folder / 'mount'}",
         f"--csi.stagingdir={folder / 'stage'}", f"--csi.testvolumesize={32 * MIB}",
         f"--csi.testvolumeexpandsize={64 * MIB}", f"--csi.testvolumeparameters={parameters}",
         f"--csi.testvolumemutableparameters={mutable}", f"--ginkgo.junit-report={report}", "--ginkgo.no-color"],
        capture_output=True, text=True, timeout=280)
    assert out.returncode == 0, out.stdout[-9000:]
    cases = {c.get("name"): c.get("status") for c in ElementTree.parse(report).getroot().iter("testcase")
             if c.get("name").startswith("[It]")}
    assert set(cases.values()) <= {"passed", "skipped", "pending"}
    return cases
