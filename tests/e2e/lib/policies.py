# SPDX-License-Identifier: Apache-2.0
"""Enforces the NetworkPolicies of our namespace, which kubelet and kube-proxy leave to others: each pod that a policy
selects gets rules of nftables on both nodes. An unknown field of a policy fails the test."""

import contextlib
import threading

from .control import Api
from .ours import NAMESPACE

TABLE = "cistern-test-policies"


def matches(selector, pod):
    assert set(selector) <= {"matchLabels", "matchExpressions"}, selector
    labels = pod["metadata"].get("labels", {})
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In", one
        if labels.get(one["key"]) not in one["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def number_of(port, pod):
    """A policy names the port of a container, or has its number."""
    if isinstance(port, int):
        return port
    return next((p["containerPort"] for c in pod["spec"]["containers"] for p in c.get("ports", []) if p.get("name") == port), None)


def sources(rule, pods):
    """Whom a rule lets in, as a match of nftables: all of them, or some pods of the namespace."""
    assert set(rule) <= {"from", "ports"}, rule
    if "from" not in rule:
        return ""
    assert all(set(peer) == {"podSelector"} for peer in rule["from"]), rule
    found = [p["status"]["podIP"] for p in pods if any(matches(peer["podSelector"], p) for peer in rule["from"])]
    return f"ip saddr {{ {', '.join(found)} }} " if found else None


def rules_for(policy, pod, pods):
    spec, ip = policy["spec"], pod["status"]["podIP"]
    assert set(spec) <= {"podSelector", "policyTypes", "ingress"}, "egress rules are not understood here"
    if "Ingress" in spec["policyTypes"]:
        for rule in spec.get("ingress", []):
            who = sources(rule, pods)
            ports = [number_of(p["port"], pod) for p in rule["ports"]]
            if who is not None:
                yield from (f"{who}ip daddr {ip} tcp dport {port} accept" for port in ports if port)
        yield f"ip daddr {ip} drop"
    if "Egress" in spec["policyTypes"]:
        yield f"ip saddr {ip} drop"


def table(api):
    pods = [p for p in api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
            if p["status"].get("podIP") and p["status"]["phase"] in ("Pending", "Running")]
    policies = api.list(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies")
    lines = [line for pod in pods for policy in policies if matches(policy["spec"]["podSelector"], pod)
             for line in rules_for(policy, pod, pods)]
    # Accepting rules come before dropping ones: policies add up.
    lines.sort(key=lambda line: line.endswith("drop"))
    chain = ["type filter hook forward priority filter", "ct state established,related accept", *lines]
    return f"table inet {TABLE} {{\n  chain forward {{\n    {'; '.join(chain)};\n  }}\n}}\n"


@contextlib.contextmanager
def enforced(cluster):
    """Kept up to date with the pods that come and go."""
    api, over, failures = Api(cluster.pki), threading.Event(), []

    def put(text):
        for node in cluster.nodes.values():
            node.run("nft", "-f", "-", input=f"table inet {TABLE} {{}}\ndelete table inet {TABLE}\n{text}")

    def follow(before):
        try:
            while not over.wait(0.2):
                now = table(api)
                if now != before:
                    put(now)
                    before = now
        except Exception as error:  # noqa: BLE001 (reported by the thread that waits)
            failures.append(error)

    first = table(api)
    put(first)
    thread = threading.Thread(target=follow, args=(first,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        put("")
    assert not failures, failures
