# SPDX-License-Identifier: Apache-2.0
"""The control plane's machine: etcd, API server, controller manager, scheduler, and the switch that joins the nodes."""

import http.client
import json
import ssl

from .machine import Machine, eventually
from .node import POD_NET
from .pki import Pki

ADDRESS = "10.250.0.1"
PORT = 6443
SERVICE_NET = "10.96.0.0/16"
ETCD = "http://127.0.0.1:2379"
# As of a GKE cluster, which Cistern recognises by it. Other clouds accept any issuer that is registered with them.
ISSUER = "https://container.googleapis.com/v1/projects/acme/locations/europe-west4/clusters/main"


class Control(Machine):
    address = ADDRESS

    def __init__(self, cluster):
        super().__init__("control", cluster.folder / "control", cluster.init)
        self.api_flags = cluster.api_flags
        self.pki = Pki(cluster.folder / "pki", f"https://{ADDRESS}:{PORT}")
        self.pki.certificate("apiserver", "/CN=kube-apiserver", "serverAuth",
                             [f"IP:{ADDRESS}", "IP:10.96.0.1", "IP:127.0.0.1", "DNS:kubernetes", "DNS:kubernetes.default",
                              "DNS:kubernetes.default.svc"])
        self.pki.certificate("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self.admin = self.pki.kubeconfig("admin", "/O=system:masters/CN=admin")
        for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
            self.pki.kubeconfig(name, f"/CN=system:{name}")

    def boot(self):
        super().boot()
        self.run("sh", "-ec", f"ip link add lan type bridge; ip address add {ADDRESS}/24 dev lan; ip link set lan up")
        self.start("etcd", "etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
                   "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD,
                   "--listen-peer-urls", "http://127.0.0.1:2380")
        self.start_api_server()

    def start_api_server(self):
        pki = self.pki.folder
        self.start("kube-apiserver", "kube-apiserver", "--etcd-servers", ETCD, "--bind-address", "0.0.0.0",
                   "--secure-port", PORT, "--advertise-address", ADDRESS, "--service-cluster-ip-range", SERVICE_NET,
                   "--allow-privileged", "--authorization-mode", "Node,RBAC",
                   "--enable-admission-plugins", "NodeRestriction", "--anonymous-auth=false",
                   "--client-ca-file", pki / "ca.crt", "--tls-cert-file", pki / "apiserver.crt",
                   "--tls-private-key-file", pki / "apiserver.key", "--kubelet-certificate-authority", pki / "ca.crt",
                   "--kubelet-client-certificate", pki / "apiserver-kubelet-client.crt",
                   "--kubelet-client-key", pki / "apiserver-kubelet-client.key",
                   "--kubelet-preferred-address-types", "InternalIP",
                   "--service-account-issuer", ISSUER,
                   "--service-account-key-file", pki / "service-account.pub",
                   "--service-account-signing-key-file", pki / "service-account.key",
                   "--shutdown-delay-duration", "0s", *self.api_flags)

    def start_controllers(self):
        """They back off for seconds if they come before the API server has made its roles."""
        api = Api(self.pki)
        eventually(lambda: (self.check(), api.text("/readyz"))[1] == "ok", "the API server is ready", 90)
        pki = self.pki.folder
        self.start("kube-controller-manager", "kube-controller-manager", "--kubeconfig",
                   pki / "kube-controller-manager.kubeconfig", "--bind-address", "127.0.0.1", "--leader-elect=false",
                   "--use-service-account-credentials", "--kube-api-qps", 200, "--kube-api-burst", 400,
                   "--root-ca-file", pki / "ca.crt", "--service-account-private-key-file", pki / "service-account.key",
                   "--cluster-cidr", POD_NET, "--node-monitor-period", "1s", "--node-monitor-grace-period", "16s")
        self.start_scheduler()

    def start_scheduler(self, bind_timeout_seconds=600):
        """It waits this long for the volumes of a pod with a node; then it schedules the pod again."""
        config, group = self.folder / "scheduler.json", "kubescheduler.config.k8s.io/v1"
        args = {"apiVersion": group, "kind": "VolumeBindingArgs", "bindTimeoutSeconds": bind_timeout_seconds}
        config.write_text(json.dumps({
            "apiVersion": group, "kind": "KubeSchedulerConfiguration", "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.pki.folder / "kube-scheduler.kubeconfig"), "qps": 200, "burst": 400},
            "profiles": [{"schedulerName": "default-scheduler",
                          "pluginConfig": [{"name": "VolumeBinding", "args": args}]}]}))
        self.start("kube-scheduler", "kube-scheduler", "--config", config, "--bind-address", "127.0.0.1")


class ApiError(RuntimeError):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body[:500]}")
        self.status, self.body = status, body


class Api:
    """Requests to the API server with a client certificate, or a bearer token instead; one connection."""

    def __init__(self, pki, token=None, name="admin"):
        self.context = ssl.create_default_context(cafile=pki.folder / "ca.crt")
        if token is None:
            self.context.load_cert_chain(pki.folder / f"{name}.crt", pki.folder / f"{name}.key")
        self.token = token
        self.connection = None

    def ask(self, method, path, body=None, content="application/json"):
        headers = {"Accept": "application/json", "Content-Type": content}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
        for attempt in (1, 2):  # a connection that was kept may be dead
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPSConnection(ADDRESS, PORT, context=self.context, timeout=30)
                self.connection.request(method, path, data, headers)
                reply = self.connection.getresponse()
                text = reply.read().decode()
                break
            except (OSError, http.client.HTTPException):
                self.connection = None
                if attempt == 2:
                    raise
        if reply.status >= 300:
            raise ApiError(reply.status, text)
        return text

    def text(self, path):
        return self.ask("GET", path)

    def get(self, path):
        return json.loads(self.ask("GET", path))

    def list(self, path):
        return self.get(path)["items"]

    def exists(self, path):
        try:
            self.get(path)
            return True
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def create(self, path, body):
        return json.loads(self.ask("POST", path, body))

    def patch(self, path, body):
        return json.loads(self.ask("PATCH", path, body, "application/merge-patch+json"))

    def delete(self, path):
        return json.loads(self.ask("DELETE", path))
