# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane as children: etcd and kube-apiserver, and kube-controller-manager and kube-scheduler on
request, on free ports, with certificates of their own. No node: pods stay Pending.

    with Kubernetes() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", ...})
        subprocess.run([program, "--kubeconfig", cluster.kubeconfig])
        cluster.kubectl("get", "configmaps")
"""

import base64
import functools
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.request

from paths import CACHE

from .process import free_port

BIN = pathlib.Path(os.environ.get("CISTERN_KUBERNETES_BIN", CACHE / "kubernetes/bin"))


# The kernel kills the program when the tests die. A preexec_fn could do the same, but makes subprocess use fork() instead
# of vfork(): the fork handlers of gRPC then run in the child, and end it now and then before its exec.
DIE_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]


class ApiError(Exception):
    """The server's Status object."""

    def __init__(self, code, status):
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code, self.status = code, status


class Pki:
    """One authority, and certificates signed by it: clients are who the subject says (CN is the user, O a group)."""

    def __init__(self, folder):
        self.folder = folder
        self.key("ca")
        self.openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=kubernetes-ca", "-days", "2", "-out", "ca.crt")
        self.key("service-account")
        self.openssl("ec", "-in", "service-account.key", "-pubout", "-out", "service-account.pub")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def key(self, name):
        self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    def certificate(self, name, subject, use="clientAuth", alternatives=None):
        self.key(name)
        extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={use}"]
        if alternatives:
            extensions.append(f"subjectAltName={alternatives}")
        (self.folder / f"{name}.ext").write_text("\n".join(extensions))
        self.openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                     "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")

    def path(self, name):
        return str(self.folder / name)

    def base64(self, name):
        return base64.b64encode((self.folder / name).read_bytes()).decode()


class Kubernetes:
    def __init__(self, controllers=False, scheduler=False, api_flags=(), controller_flags=(), bind_seconds=600):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="kubernetes-"))
        self.with_controllers, self.with_scheduler = controllers, scheduler
        self.api_flags, self.controller_flags = list(api_flags), list(controller_flags)
        self.bind_seconds = bind_seconds  # the scheduler's timeout for claims that do not bind
        self.children = {}
        self.kept = threading.local()  # connection: the one of the thread's last GET
        self.etcd_port, self.etcd_peer_port, self.port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.pki = Pki(self.root)
        self.pki.certificate("apiserver", "/CN=kube-apiserver", "serverAuth",
                             "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc")
        self.kubeconfig = self.kubeconfig_for("admin", groups=["system:masters"])

    # ---- children

    def run(self, name, *command):
        with open(self.root / f"{name}.log", "ab") as log:
            self.children[name] = subprocess.Popen([*DIE_WITH_PARENT, str(BIN / command[0]), *command[1:]], stdout=log,
                                                   stderr=log, stdin=subprocess.DEVNULL)

    def end(self, name, how=signal.SIGTERM):
        child = self.children.pop(name, None)
        if child is None:
            return
        child.send_signal(how)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def await_(self, name, is_ready, seconds=60):
        deadline = time.monotonic() + seconds
        while True:
            if self.children[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {(self.root / f'{name}.log').read_text()[-3000:]}")
            try:
                if is_ready():
                    return
            except (OSError, ApiError, http.client.HTTPException):
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} was not ready after {seconds} s: {(self.root / f'{name}.log').read_text()[-3000:]}")
            time.sleep(0.05)

    def start_etcd(self):
        here, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.etcd_peer_port}"
        self.run("etcd", "etcd", "--data-dir", str(self.root / "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
                 "--listen-client-urls", here, "--advertise-client-urls", here, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")
        # The API server gives up after 20 s without it.
        self.await_("etcd", lambda: socket.create_connection(("127.0.0.1", self.etcd_port), 5).close() is None)

    def start_api(self):
        p = self.pki.path
        self.run("api", "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}",
                 "--bind-address", "127.0.0.1", "--secure-port", str(self.port), "--advertise-address", "127.0.0.1",
                 "--service-cluster-ip-range", "10.96.0.0/24", "--allow-privileged", "--authorization-mode", "Node,RBAC",
                 "--enable-admission-plugins", "NodeRestriction", "--anonymous-auth=false",
                 "--client-ca-file", p("ca.crt"), "--tls-cert-file", p("apiserver.crt"),
                 "--tls-private-key-file", p("apiserver.key"), "--endpoint-reconciler-type", "none",
                 "--service-account-issuer", "https://kubernetes.default.svc",
                 "--service-account-key-file", p("service-account.pub"),
                 "--service-account-signing-key-file", p("service-account.key"), *self.api_flags)
        self.await_("api", lambda: self.raw("GET", "/readyz")[0] == 200)

    def stop_api(self, how=signal.SIGKILL):
        self.end("api", how)

    def start_controllers(self):
        config = self.kubeconfig_for("system:kube-controller-manager")
        self.run("controllers", "kube-controller-manager", "--kubeconfig", config, "--bind-address", "127.0.0.1",
                 "--secure-port", "0", "--leader-elect=false", "--use-service-account-credentials",
                 "--kube-api-qps", "200", "--kube-api-burst", "400", "--root-ca-file", self.pki.path("ca.crt"),
                 "--service-account-private-key-file", self.pki.path("service-account.key"), *self.controller_flags)
        self.await_("controllers", lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default"))

    def start_scheduler(self):
        config = self.root / "scheduler.json"
        config.write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig_for("system:kube-scheduler")},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": self.bind_seconds}}]}]}))
        self.run("scheduler", "kube-scheduler", "--config", str(config), "--bind-address", "127.0.0.1", "--secure-port", "0")

    def start(self):
        try:
            self.start_etcd()
            self.start_api()
            self.await_("api", lambda: self.get("/api/v1/namespaces/default"))
            if self.with_controllers:
                self.start_controllers()
            if self.with_scheduler:
                self.start_scheduler()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        for name in reversed(list(self.children)):
            self.end(name, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # ---- who asks

    def write_kubeconfig(self, name, user, server=None):
        """`user` as in the file; `server`: another address than the server's, for something in between."""
        path = self.root / f"{name.replace(':', '-')}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server or self.url,
                                                   "certificate-authority-data": self.pki.base64("ca.crt")}}],
            "users": [{"name": "u", "user": user}]}))
        return str(path)

    def kubeconfig_for(self, user, groups=(), server=None):
        """A kubeconfig with a certificate for this user."""
        name = user.replace(":", "-")
        if not (self.root / f"{name}.crt").exists():
            self.pki.certificate(name, "".join(f"/O={g}" for g in groups) + f"/CN={user}")
        return self.write_kubeconfig(f"{name}-{abs(hash(server))}" if server else name,
                                     {"client-certificate-data": self.pki.base64(f"{name}.crt"),
                                      "client-key-data": self.pki.base64(f"{name}.key")}, server)

    def token(self, namespace, account, audiences=(), bound_to=None, seconds=3600):
        """A token of a service account, which must exist."""
        spec = {"audiences": list(audiences), "expirationSeconds": seconds}
        if bound_to:
            spec["boundObjectRef"] = bound_to
        answer = self.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
                              {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        return answer["status"]["token"]

    # ---- asking

    @functools.cached_property
    def admin_tls(self):
        tls = ssl.create_default_context(cafile=self.pki.path("ca.crt"))
        tls.load_cert_chain(self.pki.path("admin.crt"), self.pki.path("admin.key"))
        return tls

    def connect(self, token=None):
        tls = ssl.create_default_context(cafile=self.pki.path("ca.crt")) if token else self.admin_tls
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=30)

    def raw(self, method, path, body=None, content_type="application/json", token=None):
        """(status, bytes), as the administrator or with `token`."""
        headers = {"content-type": content_type, "accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if method == "GET" and not token:
            return self.poll(path, headers)
        connection = self.connect(token)
        try:
            return self.exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def poll(self, path, headers):
        """A GET on the thread's own connection: tests wait by reading an object twenty times a second, and a handshake
        costs three times as much as the reply. A server that was restarted has closed the connection: once more."""
        kept = self.kept.__dict__.pop("connection", None)
        connection = kept or self.connect()
        try:
            reply = self.exchange(connection, "GET", path, None, headers)
        except (OSError, http.client.HTTPException):
            connection.close()
            if not kept:
                raise
            return self.poll(path, headers)
        self.kept.connection = connection
        return reply

    @staticmethod
    def exchange(connection, method, path, body, headers):
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def request(self, method, path, body=None, content_type="application/json", token=None):
        deadline = time.monotonic() + 30
        status, data = self.raw(method, path, body, content_type, token)
        while status == 429 and time.monotonic() < deadline:  # "storage is (re)initializing", just after a start
            time.sleep(0.2)
            status, data = self.raw(method, path, body, content_type, token)
        if status >= 300:
            raise ApiError(status, self.words(data))
        return json.loads(data) if data else {}

    @staticmethod
    def words(data):
        """A kind that is not served yet is refused in plain text."""
        try:
            return json.loads(data)
        except json.JSONDecodeError:
            return {"message": data.decode(errors="replace").strip()}

    def get(self, path):
        return self.request("GET", path)

    def create(self, path, body):
        return self.request("POST", path, body)

    def replace(self, path, body):
        return self.request("PUT", path, body)

    def patch(self, path, body, kind="merge"):
        return self.request("PATCH", path, body, f"application/{kind}-patch+json")

    def delete(self, path):
        return self.request("DELETE", path)

    def kubectl(self, *arguments, stdin=None, timeout=60):
        done = subprocess.run([str(BIN / "kubectl"), "--kubeconfig", self.kubeconfig, *map(str, arguments)], input=stdin,
                              capture_output=True, text=True, timeout=timeout,
                              env=dict(os.environ, HOME=str(self.root)))
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects):
        """Objects as dicts, or paths of manifests."""
        for o in objects:
            if isinstance(o, dict):
                self.kubectl("apply", "-f", "-", stdin=json.dumps(o))
            else:
                self.kubectl("apply", "-f", o)

    def etcd(self, path, body):
        """etcd's JSON gateway: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/"""
        request = urllib.request.Request(f"http://127.0.0.1:{self.etcd_port}/v3/{path}", method="POST",
                                         data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def compact(self):
        """etcd drops every version but the last: a request for an older one gets 410."""
        revision = self.etcd("kv/range", {"key": base64.b64encode(b"x").decode()})["header"]["revision"]
        self.etcd("kv/compaction", {"revision": revision, "physical": True})
