# SPDX-License-Identifier: Apache-2.0
"""The token services of Google and Amazon for the test cluster, and a bucket of each that only their credentials open."""

import contextlib
import json
import threading
import urllib.error
import urllib.parse
import urllib.request

from servers.answering import Answering
from servers.bucket import BucketServer
from servers.fake_gcs import FakeGcs
from servers.sts import Sts

from . import ours
from .cluster import HOST, enter_network

AGENT = "169.254.170.23"  # of EKS Pod Identity, on each node
AGENT_TOKENS = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
CONTROLLER = f"system:serviceaccount:{ours.NAMESPACE}:cistern-controller"
HOP_BY_HOP = ("content-length", "date", "connection", "transfer-encoding")


class Clouds:
    """`sts` trusts the issuer of the cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.sts = Sts(HOST)
        self.sts.trust(*(json.loads(cluster.kubectl("get", "--raw", path))
                         for path in ("/.well-known/openid-configuration", "/openid/v1/jwks")))
        self.gcs, self.s3 = FakeGcs(), BucketServer()
        self.google, self.amazon = Answering(self.at_google, HOST), Answering(self.at_amazon, HOST)

    def __enter__(self):
        self.gcs.start()
        for node in self.cluster.nodes.values():
            node.run("ip", "address", "add", f"{AGENT}/32", "dev", "lo")
            listens = threading.Thread(target=self.listen_on, args=(node,))  # only this thread enters the node's network
            listens.start()
            listens.join()
        return self

    def __exit__(self, *_):
        for node in self.cluster.nodes.values():
            node.run("ip", "address", "delete", f"{AGENT}/32", "dev", "lo")
        for gate in (self.google, self.amazon, self.s3):
            gate.__exit__()
        self.gcs.stop()
        self.sts.stop()

    def listen_on(self, node):
        enter_network(f"/proc/{node.pid}/ns/net")
        self.sts.listen(AGENT, 80)

    # ---- buckets

    def at_google(self, request):
        """Of a bucket that is granted to federated identities only."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.sts.federated:
            return 401, {}, b'{"error": {"code": 401, "message": "Invalid Credentials"}}'
        return self.pass_on(request, self.gcs.url)

    def at_amazon(self, request):
        """Of a bucket that is granted to assumed roles only."""
        headers = request.headers
        if headers.get("x-amz-security-token") not in self.sts.session_tokens or \
                not self.sts.is_signed("s3", request.method, request.path, headers, headers["x-amz-content-sha256"]):
            return 403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        return self.pass_on(request, self.s3.url)

    @staticmethod
    def pass_on(request, url):
        fields = {k: v for k, v in request.headers.items() if k not in ("host", "connection", "accept-encoding")}
        asked = urllib.request.Request(url + request.path, request.body or None, fields, method=request.method)
        try:
            reply = urllib.request.urlopen(asked, timeout=30)
        except urllib.error.HTTPError as refused:
            reply = refused
        with contextlib.closing(reply):
            return reply.status, {k: v for k, v in reply.headers.items() if k.lower() not in HOP_BY_HOP}, reply.read()

    def fill(self, files):
        """Both buckets; the one of Google is called bench, too."""
        self.gcs.make_bucket("bench")
        for key, data in files.items():
            self.s3.put(key, data)
            path = f"{self.gcs.url}/upload/storage/v1/b/bench/o?uploadType=media&name={urllib.parse.quote(key, safe='')}"
            urllib.request.urlopen(urllib.request.Request(path, data, method="POST"), timeout=10).read()

    # ---- the controller

    @contextlib.contextmanager
    def known_to_the_controller(self, association):
        """Its pods reach these servers instead of the real ones, and EKS has associated their account with this role."""
        deployment = f"/apis/apps/v1/namespaces/{ours.NAMESPACE}/deployments/cistern-controller"
        before = self.cluster.api.get(deployment)["spec"]["template"]
        self.sts.associations[CONTROLLER] = association
        try:
            self.cluster.kubectl("patch", "deployment", "cistern-controller", "-n", ours.NAMESPACE, "--patch",
                                 json.dumps({"spec": {"template": {"spec": self.changed_pod()}}}))
            self.await_controller()
            yield
        finally:
            self.cluster.kubectl("patch", "deployment", "cistern-controller", "-n", ours.NAMESPACE, "--type=json", "--patch",
                                 json.dumps([{"op": "replace", "path": "/spec/template", "value": before}]))
            self.await_controller()

    def changed_pod(self):
        """As the webhook of EKS Pod Identity changes a pod, and with the addresses of the token services."""
        env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{AGENT}/v1/credentials",
               "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{AGENT_TOKENS}/eks-pod-identity-token",
               "AWS_ENDPOINT_URL_STS": self.sts.url, "CISTERN_GCP_STS_URL": self.sts.url, "CISTERN_GCP_IAM_URL": self.sts.url}
        token = {"serviceAccountToken": {"audience": "pods.eks.amazonaws.com", "path": "eks-pod-identity-token"}}
        return {"volumes": [{"name": "eks-pod-identity-token", "projected": {"sources": [token]}}],
                "containers": [{"name": "cisternd", "env": [{"name": k, "value": v} for k, v in env.items()],
                                "volumeMounts": [{"name": "eks-pod-identity-token", "mountPath": AGENT_TOKENS}]}]}

    def await_controller(self):
        self.cluster.kubectl("rollout", "status", "deployment/cistern-controller", "-n", ours.NAMESPACE, "--timeout=90s",
                             timeout=100)
