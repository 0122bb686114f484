# SPDX-License-Identifier: Apache-2.0
"""Runs the broker alone beside a real API server, with the permissions of the chart, and sends requests as its callers."""

import base64
import http.client
import itertools
import json
import re
import ssl
import subprocess
import threading
import time

from integration.lib.buckets import clean_environment
from paths import BUILD, CACHE, TOP
from servers import kubernetes

NAMESPACE = "cistern-system"
AUDIENCE = "cistern-broker"
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:cistern-controller"
numbers = itertools.count(1)


class World:
    """A cluster of two nodes without kubelets: pods are objects only, for which the tests create tokens."""

    def __init__(self):
        self.cluster = kubernetes.Kubernetes().start()
        try:
            self.prepare()
        except BaseException:
            self.cluster.stop()
            raise

    def prepare(self):
        c = self.cluster
        c.kubectl("apply", "-f", str(TOP / "charts/cistern/templates/crds"))
        c.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        self.namespace(NAMESPACE)
        self.apply_chart("templates/rbac.yaml", "templates/admission.yaml")
        for account in ("cistern-controller", "cistern-job", "cistern-node"):
            self.account(NAMESPACE, account)
        for node in ("node-a", "node-b"):
            c.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        self.kubeconfig = c.kubeconfig_for(CONTROLLER)
        self.published = [json.loads(c.kubectl("get", "--raw", path))
                          for path in ("/.well-known/openid-configuration", "/openid/v1/jwks")]

    def apply_chart(self, *templates):
        shown = [flag for t in templates for flag in ("--show-only", t)]
        text = subprocess.run([str(CACHE / "kubernetes/bin/helm"), "template", "cistern", str(TOP / "charts/cistern"),
                               "--namespace", NAMESPACE, "--kube-version", "1.34.4",
                               "--set", "identity.audiences={internal-sts,of-the-api-server}",
                               "--set", "identity.apiServerAudiences={of-the-api-server}", *shown],
                              check=True, capture_output=True, text=True).stdout
        self.cluster.kubectl("apply", "-f", "-", stdin=text)

    def stop(self):
        self.cluster.stop()

    # ---- objects

    def create_if_absent(self, path, body):
        try:
            return self.cluster.create(path, body)
        except kubernetes.ApiError as e:
            if e.code != 409:
                raise
            return self.cluster.get(f"{path}/{body['metadata']['name']}")

    def namespace(self, name):
        self.create_if_absent("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def trusting_namespace(self):
        """Creates a namespace with the RoleBinding that lets the controller use its accounts and secrets."""
        name = f"team-{next(numbers)}"
        self.namespace(name)
        self.cluster.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "cistern-credentials"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cistern-credentials"},
            "subjects": [{"kind": "ServiceAccount", "name": "cistern-controller", "namespace": NAMESPACE}]})
        return name

    def account(self, namespace, name, opted_in=False, **annotations):
        marks = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
        if opted_in:
            marks["cistern.io/allow-bucket-access"] = "true"
        self.create_if_absent(f"/api/v1/namespaces/{namespace}/serviceaccounts", {
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "annotations": marks}})
        return name

    def secret(self, namespace, name, **values):
        self.cluster.create(f"/api/v1/namespaces/{namespace}/secrets", {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "data": {k.replace("__", "."): base64.b64encode(v.encode()).decode() for k, v in values.items()}})
        return name

    def volume(self, namespace, source, node="node-a", parameters=None, has_exported=False):
        """Creates a CisternVolume as the controller does; returns its name."""
        number = next(numbers)
        name = f"pvc-{number}"
        self.cluster.kubectl("--as", CONTROLLER, "create", "-f", "-", stdin=json.dumps({
            "apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
            "metadata": {"name": name, "annotations": {"cistern.io/has-exported": "true"} if has_exported else {}},
            "spec": {"volumeID": f"v1-0123456789ab-{number:012x}", "nodeName": node, "pool": "default", "capacityBytes": 1 << 20,
                     "parameters": parameters or {}, "claimRef": {"namespace": namespace, "name": "claim", "uid": name},
                     "source": {"namespace": namespace, "name": "source", "generation": 1, "spec": source}}}))
        return name

    def volume_id(self, volume):
        return self.cluster.get(f"/apis/cistern.io/v1alpha1/cisternvolumes/{volume}")["spec"]["volumeID"]

    def pod(self, job=None, node="node-a", account="cistern-job"):
        """Creates a pod on a node, owned by the Job if one is given."""
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}] if job else []
        return self.cluster.create(f"/api/v1/namespaces/{NAMESPACE}/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{next(numbers)}", "ownerReferences": owners},
            "spec": {"nodeName": node, "serviceAccountName": account, "automountServiceAccountToken": False,
                     "containers": [{"name": "c", "image": "x"}]}})

    def token_of(self, pod, audience=AUDIENCE, seconds=3600):
        meta = pod["metadata"]
        return self.cluster.token(NAMESPACE, pod["spec"]["serviceAccountName"], [audience], seconds=seconds, bound_to={
            "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]})

    def job_token(self, volume, purpose="hydrate", node="node-a"):
        return self.token_of(self.pod(f"{purpose}-{self.volume_id(volume)}", node))


class Answer:
    def __init__(self, status, headers, document):
        self.status, self.headers, self.document = status, headers, document
        self.error = document.get("error", {})

    def __getattr__(self, name):
        return self.document.get(name)

    def __repr__(self):
        return f"{self.status} {self.document}"


class Broker:
    def __init__(self, world, sts=None, namespace=NAMESPACE, **options):
        self.world = world
        env = clean_environment(AWS_EC2_METADATA_DISABLED="true")
        if sts:
            env.update(CISTERN_GCP_STS_URL=sts.url, CISTERN_GCP_IAM_URL=sts.url, CISTERN_GCP_OAUTH_URL=sts.url,
                       AWS_ENDPOINT_URL_STS=sts.url + "/", GCE_METADATA_HOST=sts.host)
        env.update(options.pop("env", {}))
        if "aws_sts" in options:
            env["AWS_ENDPOINT_URL_STS"] = options.pop("aws_sts")
        command = [BUILD / "tests/broker_tool", world.kubeconfig, namespace,
                   *(f"{k.replace('_', '-')}={v}" for k, v in options.items())]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env=env)
        self.lines, self.errors = [], []
        for stream, into in ((self.child.stdout, self.lines), (self.child.stderr, self.errors)):
            threading.Thread(target=lambda s=stream, i=into: i.extend(line for line in s), daemon=True).start()
        self.port = int(self.wait_for(lambda: self.lines and self.lines[0]).split()[1])
        self.wait_for(self.serves)

    def wait_for(self, is_so, seconds=30):
        deadline = time.monotonic() + seconds
        while not (answer := is_so()):
            assert self.child.poll() is None, "".join(self.errors)
            assert time.monotonic() < deadline, (self.lines, self.errors)
            time.sleep(0.02)
        return answer

    def bundle(self):
        try:
            return self.world.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cistern-broker-ca")["data"]["ca.crt"]
        except kubernetes.ApiError:
            return None

    def serves(self):
        try:
            connection = self.connect(self.bundle() or "", timeout=1)
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def connect(self, bundle=None, source="127.0.0.1", timeout=60):
        tls = ssl.create_default_context(cadata=bundle or self.bundle() or "")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=tls, timeout=timeout,
                                                 source_address=(source, 0))
        # Connect to the test's address, but verify the name of the Service.
        connection._context = Named(tls, f"cistern-broker.{NAMESPACE}.svc")
        return connection

    def ask(self, token, volume, purpose="hydrate", body=None, source="127.0.0.1", **more):
        connection = self.connect(source=source)
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"} if token is not None else {}
        asked = {"volume": volume, "for": purpose, **more} if body is None else body
        connection.request("POST", "/v1/credentials", body=asked if isinstance(asked, (str, bytes)) else json.dumps(asked),
                           headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, json.loads(answer.read()))

    def ask_as_job(self, volume, purpose="hydrate", **more):
        return self.ask(self.world.job_token(volume, purpose), volume, purpose, **more)

    def stop(self):
        self.child.stdin.close()
        assert self.child.wait(60) == 0, "".join(self.errors)

    def output(self):
        return "".join(self.lines) + "".join(self.errors)


class Named:
    """A TLS context that verifies a given name instead of the address."""

    def __init__(self, context, name):
        self.context, self.name = context, name

    def wrap_socket(self, sock, server_hostname=None):
        return self.context.wrap_socket(sock, server_hostname=self.name)


JWT = re.compile(r"ey[A-Za-z0-9_-]{10,}\.ey[A-Za-z0-9_-]{10,}\.")
