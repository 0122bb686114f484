# SPDX-License-Identifier: Apache-2.0
"""Requests to a real API server: every verb, and every refusal by its own code."""

import pytest

from integration.lib.kube import KubeTool

pytestmark = pytest.mark.asan


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def maps(tool, namespace):
    """tool.ask for ConfigMaps of a namespace of our own."""
    return lambda do, **arguments: tool.ask(do, resource="configmaps", ns=namespace, **arguments)


def test_an_object_is_created_read_replaced_and_deleted(maps):
    made = maps("create", body=config_map("a", x="1"))
    assert (made.code, made.status) == ("OK", 201), made
    assert maps("get", name="a").object["data"] == {"x": "1"}
    changed = dict(made.object, data={"x": "2"})
    assert maps("replace", name="a", body=changed).object["data"] == {"x": "2"}
    assert maps("delete", name="a").code == "OK"
    gone = maps("get", name="a")
    assert (gone.code, gone.status) == ("NOT_FOUND", 404)
    assert 'cannot get configmaps' in gone.text and '"a" not found' in gone.text


def test_an_existing_object_and_a_changed_object_have_different_codes(maps):
    made = maps("create", body=config_map("a")).object
    assert maps("create", body=config_map("a")).code == "EXISTS"
    assert maps("replace", name="a", body=dict(made, data={"x": "1"})).code == "OK"
    assert maps("replace", name="a", body=dict(made, data={"x": "2"})).code == "CHANGED"
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    assert maps("merge-patch", name="a", body=stale).code == "CHANGED"


def test_a_delete_with_a_precondition_leaves_another_object_alone(maps):
    made = maps("create", body=config_map("a")).object
    assert maps("delete", name="a", uid="00000000-0000-0000-0000-000000000000").code == "CHANGED"
    assert maps("delete", name="a", version="1").code == "CHANGED"
    assert maps("get", name="a").code == "OK"
    assert maps("delete", name="a", uid=made["metadata"]["uid"],
                version=made["metadata"]["resourceVersion"]).code == "OK"


def test_a_foreground_delete_leaves_the_object_until_its_dependents_are_gone(maps):
    maps("create", body=config_map("a"))
    maps("delete", name="a", foreground=True)
    assert "foregroundDeletion" in maps("get", name="a").object["metadata"]["finalizers"]


def test_patches_of_two_kinds_do_what_theirs_is(maps):
    maps("create", body=dict(config_map("a", x="1", y="2"), metadata={"name": "a", "finalizers": ["e.io/a"]}))
    assert maps("merge-patch", name="a", body={"data": {"x": None, "z": "3"}}).object["data"] == {"y": "2", "z": "3"}
    patched = maps("merge-patch", name="a", body={"metadata": {"finalizers": ["e.io/b"]}})
    assert patched.object["metadata"]["finalizers"] == ["e.io/b"]
    remove = [{"op": "test", "path": "/metadata/finalizers/0", "value": "e.io/b"},
              {"op": "remove", "path": "/metadata/finalizers/0"}]
    assert "finalizers" not in maps("json-patch", name="a", body=remove).object["metadata"]
    assert maps("json-patch", name="a", body=remove).code == "INVALID"


def test_an_apply_owns_its_fields_and_takes_others_only_by_force(maps):
    assert maps("apply", name="a", manager="one", body=config_map("a", x="1")).status == 201
    refused = maps("apply", name="a", manager="two", body=config_map("a", x="2"))
    assert refused.code == "CHANGED" and 'conflict with "one"' in refused.text
    assert maps("apply", name="a", manager="two", force=True, body=config_map("a", x="2")).object["data"] == {"x": "2"}
    # A field that its only owner applies no longer is removed.
    assert "data" not in maps("apply", name="a", manager="two", body=config_map("a")).object


def test_status_is_written_apart_from_the_rest(tool, namespace):
    claims = {"resource": "persistentvolumeclaims", "group": "", "version": "v1", "namespaced": True, "ns": namespace}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
             "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    assert tool.ask("create", **claims, body=claim).code == "OK"
    body = {"spec": {"volumeName": "ignored"}, "status": {"phase": "Lost"}}
    assert tool.ask("merge-patch", **claims, name="c", subresource="status", body=body).code == "OK"
    kept = tool.ask("get", **claims, name="c").object
    assert kept["status"]["phase"] == "Lost" and "volumeName" not in kept["spec"]


def test_a_list_goes_through_all_pages(tool, maps, namespace, cluster):
    for i in range(25):
        cluster.create(f"/api/v1/namespaces/{namespace}/configmaps",
                       dict(config_map(f"m-{i:02}"), metadata={"name": f"m-{i:02}", "labels": {"odd": str(i % 2)}}))
    names = [f"m-{i:02}" for i in range(25)]
    before = tool.ask("stats").requests
    listed = maps("list", page=10)
    assert [o["metadata"]["name"] for o in listed.object["items"]] == names
    assert tool.ask("stats").requests - before == 3
    by_page = maps("list", page=10, by_page=True)
    assert (by_page.pages, by_page["items"]) == (3, 25) and "items" not in by_page.object
    assert len(maps("list", page=10, labels="odd=1").object["items"]) == 12
    assert [o["metadata"]["name"] for o in maps("list", fields="metadata.name=m-07").object["items"]] == ["m-07"]
    everywhere = tool.ask("list", resource="configmaps", page=7).object["items"]
    assert len(everywhere) >= 25


def test_tokens_are_requested_and_reviewed(tool, namespace):
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    assert tool.ask("create", resource="serviceaccounts", ns=namespace, body=account).code == "OK"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
              "spec": {"audiences": ["cistern"], "expirationSeconds": 600}}
    given = tool.ask("create", resource="serviceaccounts", ns=namespace, name="robot", subresource="token", body=wanted)
    token = given.object["status"]["token"]
    for audience, good in (("cistern", True), ("somebody-else", None)):
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                  "spec": {"token": token, "audiences": [audience]}}
        status = tool.ask("create", resource="tokenreviews", body=review).object["status"]
        assert status.get("authenticated") is good, status


def test_a_body_that_the_server_refuses_is_invalid(maps):
    refused = maps("create", body=config_map("Not A Name"))
    assert (refused.code, refused.status, refused.error) == ("INVALID", 422, 5006)
    assert maps("create", body={"kind": "Wrong"}).code == "INVALID"


@pytest.mark.parametrize("name", ["..", "a/b", "a%2fb", ""])
def test_a_name_that_would_be_another_path_is_not_sent(tool, maps, name):
    before = tool.ask("stats").requests
    assert maps("get", name=name).code == "INVALID"
    assert tool.ask("stats").requests == before


def test_a_user_without_permission_is_denied(cluster, namespace):
    with KubeTool(cluster.kubeconfig_for("nobody-special")) as tool:
        refused = tool.ask("get", resource="configmaps", ns=namespace, name="a")
        assert (refused.code, refused.status, refused.error) == ("DENIED", 403, 5003)
        assert "nobody-special" in refused.text


def test_a_cancelled_request_ends_as_cancelled(maps):
    assert maps("get", name="a", cancel=True).code == "CANCELLED"


def test_a_client_that_stops_ends_what_waits_and_takes_no_more(cluster, namespace):
    with KubeTool(cluster.kubeconfig, "--qps", 1, "--burst", 1) as tool:
        asked = [tool.send("get", resource="configmaps", ns=namespace, name="a") for _ in range(5)]
        assert tool.wait(asked[0]).code == "NOT_FOUND"
        tool.ask("stop")
        assert [tool.wait(n).code for n in asked[1:]] == ["CANCELLED"] * 4
        assert tool.ask("call", resource="configmaps", ns=namespace, name="a").code == "CANCELLED"
