# SPDX-License-Identifier: Apache-2.0
"""Forbidden actions of each of Cistern's accounts, tried with its own token."""

import json

import pytest

from e2e.lib.control import Api, ApiError
from e2e.lib.ours import API, NAMESPACE, bound_token, pods

STATUS = "application/apply-patch+yaml"


def volume(name, node):
    return {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume",
            "metadata": {"name": name, "labels": {"cistern.io/node": node, "test": "power"},
                         "finalizers": ["cistern.io/release"]},
            "spec": {"volumeID": "v1-0123456789ab-0123456789ab", "nodeName": node, "pool": "elsewhere",
                     "capacityBytes": 1 << 20}}


def pool(node, name):
    return {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternPool", "metadata": {"name": f"{node}.{name}"},
            "spec": {"nodeName": node, "pool": name}}


@pytest.fixture(scope="module")
def accounts(cluster, cistern):
    """The API as each of Cistern's accounts sees it."""
    def token(account, **bound):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], **bound}}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        return cluster.api.create(path, body)["status"]["token"]

    class Accounts:
        node = Api(cluster.pki, bound_token(cluster, "cistern-node", pods(cluster, "node")["node-a"]))
        unbound = Api(cluster.pki, token("cistern-node"))
        controller = Api(cluster.pki, token("cistern-controller"))
        job = Api(cluster.pki, token("cistern-job"))

    return Accounts


@pytest.fixture
def volumes(cluster, accounts):
    """A volume of node-a and one of node-b, as the controller orders them."""
    made = {}
    for node in ("node-a", "node-b"):
        made[node] = f"{API}/cisternvolumes/power-{node}"
        accounts.controller.create(f"{API}/cisternvolumes", volume(f"power-{node}", node))
    yield made
    for path in made.values():
        accounts.controller.patch(path, {"metadata": {"finalizers": None}})
        if cluster.api.exists(path):
            accounts.controller.delete(path)


def refused(call, *arguments, status=403):
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    assert caught.value.status == status, caught.value
    return json.loads(caught.value.body)["message"]


def report(api, path, phase="Ready"):
    name = path.rsplit("/", 1)[1]
    body = {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume", "metadata": {"name": name},
            "status": {"phase": phase}}
    return api.ask("PATCH", f"{path}/status?fieldManager=test&force=true", json.dumps(body), STATUS)


def test_a_node_reports_on_its_own_volume_and_on_no_other(cluster, accounts, volumes):
    report(accounts.node, volumes["node-a"])
    assert cluster.api.get(volumes["node-a"])["status"]["phase"] == "Ready"
    said = refused(report, accounts.node, volumes["node-b"], "Released", status=422)
    assert 'node "node-a" may write only its own objects' in said
    assert "status" not in cluster.api.get(volumes["node-b"])


def test_a_token_that_is_bound_to_no_node_reports_on_nothing(accounts, volumes):
    assert "not bound to a node" in refused(report, accounts.unbound, volumes["node-a"], status=422)


def test_node_cannot_release_or_delete_a_volume(cluster, accounts, volumes):
    before = cluster.api.get(volumes["node-a"])["spec"]
    refused(accounts.node.patch, volumes["node-a"], {"spec": {"release": {"requested": True, "discard": True}}})
    refused(accounts.node.patch, volumes["node-a"], {"metadata": {"finalizers": None}})
    refused(accounts.node.delete, volumes["node-a"])
    # A status document may carry the rest of the object; the API server drops it.
    body = {"apiVersion": "cistern.io/v1alpha1", "kind": "CisternVolume", "metadata": {"name": "power-node-a", "finalizers": []},
            "spec": {**before, "release": {"requested": True}}, "status": {"phase": "Ready"}}
    try:
        accounts.node.ask("PATCH", f"{volumes['node-a']}/status?fieldManager=other&force=true", json.dumps(body), STATUS)
    except ApiError:
        pass
    after = cluster.api.get(volumes["node-a"])
    assert after["spec"] == before and after["metadata"]["finalizers"] == ["cistern.io/release"]


def test_a_node_announces_its_own_pools_only(cluster, accounts):
    assert "its own objects" in refused(accounts.node.create, f"{API}/cisternpools", pool("node-b", "stolen"), status=422)
    refused(accounts.node.delete, f"{API}/cisternpools/node-a.default")
    accounts.node.create(f"{API}/cisternpools", pool("node-a", "spare"))
    refused(accounts.node.patch, f"{API}/cisternpools/node-a.spare", {"spec": {"volumesGeneration": 7}})
    cluster.api.delete(f"{API}/cisternpools/node-a.spare")


def event(name, node, component="cistern-node"):
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "Forged", "type": "Warning", "message": "m",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"},
            "reportingComponent": component, "reportingInstance": node, "source": {"component": component, "host": node}}


def test_a_node_writes_events_in_its_own_name_only(cluster, accounts):
    events = "/api/v1/namespaces/default/events"
    accounts.node.create(events, event("power-own", "node-a"))
    accounts.node.patch(f"{events}/power-own", {"count": 2})
    named = [{**event("power-4", "node-a"), "source": source} for source in (
        {"component": "cistern-controller", "host": "node-a"}, {"component": "cistern-node", "host": "node-b"}, {})]
    for forged in (event("power-1", "node-b"), event("power-2", "node-a", "cistern-controller"), *named):
        assert "its own events" in refused(accounts.node.create, events, forged, status=422)
    assert "not bound to a node" in refused(accounts.unbound.create, events, event("power-3", "node-a"), status=422)
    accounts.controller.create(events, event("power-other", "controller-0", "cistern-controller"))
    assert "its own events" in refused(accounts.node.patch, f"{events}/power-other", {
        "message": "another", "reportingComponent": "cistern-node", "reportingInstance": "node-a"}, status=422)
    for name in ("power-own", "power-other"):
        cluster.api.delete(f"{events}/{name}")


@pytest.mark.parametrize("account", ["node", "job"])
@pytest.mark.parametrize("path", [
    "/api/v1/secrets", f"/api/v1/namespaces/{NAMESPACE}/secrets", "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims", "/api/v1/pods", f"/api/v1/namespaces/{NAMESPACE}/configmaps", "/api/v1/nodes",
    f"{API}/bucketsources"])
def test_neither_node_nor_job_reads_foreign_objects(accounts, account, path):
    refused(getattr(accounts, account).get, path)


def test_a_job_may_do_nothing_at_all(cluster, accounts):
    for path in (f"{API}/cisternvolumes", f"{API}/cisternpools", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"):
        refused(accounts.job.get, path)
    review = accounts.job.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": NAMESPACE}})
    assert {r for rule in review["status"]["resourceRules"] for r in rule["resources"]} == {
        "selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}, "what everybody has"


@pytest.mark.parametrize("account", ["node", "job"])
def test_neither_node_nor_job_mints_tokens(accounts, account):
    refused(getattr(accounts, account).create, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/cistern-controller/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}})


def test_the_controller_mints_tokens_where_a_namespace_grants_it_and_none_for_the_api_server(cluster, accounts):
    def mint(*audiences):
        return accounts.controller.create("/api/v1/namespaces/power/serviceaccounts/trainer/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": list(audiences)}})

    cluster.kubectl("create", "namespace", "power")
    try:
        cluster.kubectl("create", "serviceaccount", "trainer", "-n", "power")
        cluster.kubectl("create", "secret", "generic", "keys", "-n", "power", "--from-literal=a=b")
        assert "forbidden" in refused(mint, "sts.amazonaws.com")
        refused(accounts.controller.get, "/api/v1/namespaces/power/secrets/keys")
        cluster.kubectl("create", "rolebinding", "cistern-credentials", "-n", "power", "--clusterrole=cistern-credentials",
                        f"--serviceaccount={NAMESPACE}:cistern-controller")
        assert mint("sts.amazonaws.com")["status"]["token"]
        accounts.controller.get("/api/v1/namespaces/power/secrets/keys")
        for audiences in ((), ("https://kubernetes.default.svc",), ("sts.amazonaws.com", "https://kubernetes.default.svc"),
                          ("cistern-broker",)):
            assert "cistern-token-audience" in refused(mint, *audiences, status=422)
        refused(accounts.controller.get, "/api/v1/namespaces/power/secrets")
    finally:
        cluster.kubectl("delete", "namespace", "power", "--wait=false")


def test_the_controller_reads_no_secret_of_its_own_namespace_but_its_certificate(cluster, accounts):
    cluster.kubectl("create", "secret", "generic", "other", "-n", NAMESPACE, "--from-literal=a=b")
    refused(accounts.controller.get, f"/api/v1/namespaces/{NAMESPACE}/secrets/other")
    cluster.kubectl("delete", "secret", "other", "-n", NAMESPACE)
    refused(accounts.controller.delete, "/api/v1/nodes/node-a")
    refused(accounts.controller.create, f"/api/v1/namespaces/{NAMESPACE}/pods", {"apiVersion": "v1", "kind": "Pod"})


def test_an_administrator_cannot_forge_an_order_and_deleting_one_destroys_nothing(cluster, volumes):
    said = refused(cluster.api.patch, volumes["node-a"], {"spec": {"release": {"requested": True}}}, status=422)
    assert "delete its claim" in said
    assert "delete its claim" in refused(cluster.api.create, f"{API}/cisternvolumes", volume("forged", "node-a"), status=422)
    cluster.api.delete(volumes["node-a"])
    left = cluster.api.get(volumes["node-a"])
    assert left["metadata"]["finalizers"] == ["cistern.io/release"] and "release" not in left["spec"]
    cluster.api.patch(volumes["node-a"], {"metadata": {"labels": {"note": "allowed"}}})


def test_editors_of_a_namespace_write_sources_and_only_read_volumes(cluster, cistern):
    def may(verb, resource):
        done = cluster.kubectl("auth", "can-i", verb, resource, "--as=ann", "-n", "default", check=False)
        return done.stdout.strip() == "yes"

    cluster.kubectl("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann", "-n", "default")
    try:
        assert may("create", "bucketsources.cistern.io")
        assert not may("delete", "cisternvolumes.cistern.io") and not may("update", "cisternvolumes.cistern.io")
    finally:
        cluster.kubectl("delete", "rolebinding", "ann", "-n", "default")
