# SPDX-License-Identifier: Apache-2.0
"""A worker: containerd, kubelet, kube-proxy, and a pool on an XFS file system of its own at /mnt/disks/cistern."""

import os
import subprocess

from . import cgroups
from .machine import BIN, DEBIAN, Machine, eventually, release_image

POOL = "/mnt/disks/cistern"
POOL_BYTES = 12 << 30  # sparse
RUNTIME = "/run/containerd/containerd.sock"
POD_NET = "10.244.0.0/16"

CONTAINERD = """version = 3
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{runtime}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true    # or no sandbox starts where root lacks CAP_SYS_RESOURCE
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{debian}/usr/lib/cni"]
    conf_dir = "{folder}/etc/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{bin}/runc"
        SystemdCgroup = false
"""

# Routed, not bridged: what goes from pod to pod then passes the hooks where kube-proxy rewrites addresses.
CNI = """{{"cniVersion": "0.4.0", "name": "pods", "plugins": [{{"type": "ptp", "ipMasq": false,
  "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}
"""

KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {pki}/ca.crt}}
authorization: {{mode: Webhook}}
tlsCertFile: {pki}/{name}-server.crt
tlsPrivateKeyFile: {pki}/{name}-server.key
containerRuntimeEndpoint: unix://{runtime}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
volumePluginDir: /var/lib/kubelet/volumeplugins
evictionHard: {{memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}}
syncFrequency: 10s          # how soon an expanded volume is expanded on the node (default 1m)
nodeLeaseDurationSeconds: 8 # a node that is gone is noticed within seconds
imageGCHighThresholdPercent: 100
imageMinimumGCAge: 24h
"""


class Node(Machine):
    def __init__(self, cluster, name, number):
        super().__init__(name, cluster.folder / name, cluster.init)
        self.cluster = cluster
        self.address = f"10.250.0.{10 + number}"
        self.pods = f"10.244.{number}.0/24"
        self.cgroup = f"{cluster.folder.name}-{name}"
        self.image = self.folder / "pool.img"
        self.configure()

    def configure(self):
        pki = self.cluster.pki
        pki.kubeconfig(self.name, f"/O=system:nodes/CN=system:node:{self.name}")
        pki.certificate(f"{self.name}-server", f"/CN={self.name}", "serverAuth",
                        [f"IP:{self.address}", f"DNS:{self.name}"])
        words = {"folder": self.folder, "bin": BIN, "debian": DEBIAN, "runtime": RUNTIME, "pods": self.pods, "name": self.name,
                 "address": self.address, "pki": pki.folder, "cgroup": self.cgroup}
        (self.folder / "etc/cni").mkdir(parents=True)
        (self.folder / "etc/cni/10-pods.conflist").write_text(CNI.format(**words))
        (self.folder / "etc/containerd.toml").write_text(CONTAINERD.format(**words))
        (self.folder / "etc/kubelet.yaml").write_text(KUBELET.format(**words))
        with open(self.image, "wb") as image:
            os.truncate(image.fileno(), POOL_BYTES)
        subprocess.run(["mkfs.xfs", "-q", str(self.image)], check=True)

    def boot(self):
        cgroups.make(self.cgroup)
        super().boot()
        self.connect()
        self.run("mkdir", "-p", POOL)
        self.run("mount", "-o", "loop", self.image, POOL)
        told = self.boots_of_containerd()
        self.start_containerd()
        self.start_kube_proxy()
        # The kubelet ends at once if the runtime does not serve. containerd listens before that.
        eventually(lambda: self.boots_of_containerd() > told, "containerd serves")
        self.start_kubelet()

    def connect(self):
        """A cable to the control plane's switch, and the way to everybody's pods."""
        cable = f"""ip link delete {self.name} 2>/dev/null || : # of the last boot, if it is still there
                    ip link add {self.name} type veth peer name eth0 netns {self.pid}
                    ip link set {self.name} master lan up"""
        subprocess.run(["sh", "-ec", cable], check=True)  # we are in the control plane's network, and see all pids
        self.run("sh", "-ec", f"""ip address add {self.address}/24 dev eth0
                                  ip link set eth0 up
                                  ip route add default via {self.cluster.control.address}""")
        subprocess.run(["ip", "route", "replace", self.pods, "via", self.address], check=True)

    def start_containerd(self):
        self.start("containerd", "containerd", "--config", self.folder / "etc/containerd.toml")

    def boots_of_containerd(self):
        log = self.logs / "containerd.log"
        return log.read_text(errors="replace").count("containerd successfully booted") if log.exists() else 0

    def start_kubelet(self):
        self.start("kubelet", "kubelet", "--config", self.folder / "etc/kubelet.yaml", "--kubeconfig",
                   self.cluster.pki.folder / f"{self.name}.kubeconfig", "--root-dir", "/var/lib/kubelet",
                   "--hostname-override", self.name, "--node-ip", self.address, "--node-labels", "cistern.io/pool=default")

    def start_kube_proxy(self):
        self.start("kube-proxy", "kube-proxy", "--proxy-mode", "nftables", "--kubeconfig",
                   self.cluster.pki.folder / "kube-proxy.kubeconfig", "--hostname-override", self.name,
                   "--cluster-cidr", POD_NET, "--metrics-bind-address", "127.0.0.1:10249", "--healthz-bind-address", "127.0.0.1:10256",
                   "--conntrack-max-per-core", 0, "--conntrack-min", 0, "--conntrack-tcp-timeout-established", 0,
                   "--conntrack-tcp-timeout-close-wait", 0, "--nodeport-addresses", "127.0.0.1/32")

    def restart_kubelet(self):
        self.stop("kubelet")
        self.start_kubelet()

    def import_image(self, archive):
        self.run("ctr", "--address", RUNTIME, "--namespace", "k8s.io", "images", "import", archive, timeout=120)

    def power_off(self):
        super().power_off()
        release_image(self.image)
        cgroups.remove(self.cgroup)

    def reboot(self):
        self.power_off()
        self.boot()

    def wipe_pool(self):
        """As a cloud does to local disks when it gives the node another machine. Only for a node that is off."""
        assert self.launcher is None
        subprocess.run(["mkfs.xfs", "-q", "-f", str(self.image)], check=True)
