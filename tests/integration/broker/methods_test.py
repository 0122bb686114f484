# SPDX-License-Identifier: Apache-2.0
"""Each identity method, from the token of a Job to the credential of the cloud, and its errors."""

import base64
import json
import socket
import subprocess
import time

import pytest

from .world import CONTROLLER, NAMESPACE

GKE = "https://container.googleapis.com/v1/projects/acme/locations/europe-west4/clusters/main"
PROVIDER = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/kube"
ROLE = "arn:aws:iam::1:role/reader"


def gs(**more):
    return {"uri": "gs://bucket/data/", **more}


def s3(**more):
    return {"uri": "s3://bucket/data/", **more}


@pytest.fixture
def team(world):
    return world.trusting_namespace()


def irsa(world, sts, team, name="reader", role=ROLE):
    world.account(team, name, opted_in=True, **{"eks.amazonaws.com/role-arn": role})
    sts.roles[role] = {"sub": f"system:serviceaccount:{team}:{name}", "aud": "sts.amazonaws.com"}


def assert_error(answer, status, number, *words):
    assert answer.status == status and answer.error["id"] == f"CIS{number}", answer
    for word in words:
        assert word in answer.error["message"] + answer.error.get("advice", ""), answer


def test_gke_workload_identity_is_exchanged(world, sts, start, team):
    broker = start(gke_project="acme", gke_provider=GKE)
    world.account(team, "reader", opted_in=True)
    volume = world.volume(team, gs(serviceAccountName="reader"))
    answer = broker.ask_as_job(volume)
    assert answer.status == 200 and answer.scheme == "gs" and answer.accessToken == "token-1", answer
    assert answer.method == "gke" and answer.principal == f"ns/{team}/sa/reader"
    assert sts.granted == [("federation", f"system:serviceaccount:{team}:reader")]


def test_a_gke_cluster_is_known_by_the_issuer_of_its_tokens(world, sts, start, team):
    world.account(team, "reader", opted_in=True)
    answer = start(issuer=GKE).ask_as_job(world.volume(team, gs(serviceAccountName="reader")))
    assert answer.status == 200 and answer.method == "gke", answer
    assert sts.granted == [("federation", f"system:serviceaccount:{team}:reader")]


@pytest.mark.parametrize("issuer", ["https://kubernetes.default.svc", "https://container.googleapis.com/v1/projects/",
                                    "https://container.googleapis.com/v1/projects/acme", "http" + GKE[5:]])
def test_another_issuer_does_not_make_it_a_gke_cluster(world, start, team, issuer):
    world.account(team, "reader", opted_in=True)
    answer = start(issuer=issuer).ask_as_job(world.volume(team, gs(serviceAccountName="reader")))
    assert "workload identity of the cluster is not configured" in answer.error["message"]


def test_annotated_account_impersonates_a_google_account(world, sts, start, team):
    broker = start(gke_project="acme", gke_provider=GKE)
    robot = "robot@acme.iam.gserviceaccount.com"
    world.account(team, "reader", opted_in=True, **{"iam.gke.io/gcp-service-account": robot})
    volume = world.volume(team, gs(serviceAccountName="reader", identity={"method": "gke"}))
    assert_error(broker.ask_as_job(volume), 403, 1702, "getAccessToken", "roles/iam.workloadIdentityUser")
    sts.workload_users[robot] = [f"system:serviceaccount:{team}:reader"]
    other = start(gke_project="acme", gke_provider=GKE)  # without the cached failure
    answer = other.ask_as_job(volume)
    assert answer.status == 200 and answer.principal == robot, answer
    assert ("impersonation", robot) in sts.granted


@pytest.mark.parametrize("audience", [None, "https://iam.googleapis.com/projects/1/x"])
def test_token_of_another_cluster_is_federated(world, sts, broker, team, audience):
    world.account(team, "reader", opted_in=True)
    sts.providers[PROVIDER] = audience or PROVIDER
    identity = {"provider": PROVIDER, **({"audience": audience} if audience else {})}
    answer = broker.ask_as_job(world.volume(team, gs(serviceAccountName="reader", identity=identity)))
    assert answer.status == 200 and answer.method == "wif" and answer.accessToken == "token-1", answer


def test_irsa_assumes_the_role(world, sts, broker, team):
    irsa(world, sts, team)
    answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader")))
    assert answer.status == 200 and answer.scheme == "s3" and answer.method == "irsa" and answer.principal == ROLE, answer
    assert (answer.accessKeyID, answer.secretAccessKey, answer.sessionToken) == ("ASIAEXAMPLE", "fetched-secret", "token-1")
    assert sts.granted == [(ROLE, f"system:serviceaccount:{team}:reader")]


def test_irsa_role_that_trusts_another_account_is_denied(world, sts, broker, team):
    irsa(world, sts, team)
    sts.roles[ROLE]["sub"] = "system:serviceaccount:another:reader"
    answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader")))
    assert_error(answer, 403, 1702, "AccessDenied", f"{team}/reader")


HOSTILE = ["arn:aws:iam::1:role/a&Action=AssumeRole&RoleArn=b", "role/../../latest/meta-data", "a?b=c#d", "%2e%2e/x",
           "a@evil.example:80/"]
NO_NAME = ["a\nHost: evil.example\n\n", "a b", "a\0b", "\\\\evil.example", 'a"b', "\u0430\u202e"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_of_a_role_is_one_value_of_the_request(world, sts, broker, team, name):
    irsa(world, sts, team, role=name)
    answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader")))
    assert answer.status == 200 and sts.granted == [(name, f"system:serviceaccount:{team}:reader")], answer
    assert set(sts.requests) == {("POST", "/")}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_of_an_account_is_one_segment_of_the_path(world, sts, start, team, name):
    broker = start(gke_project="acme", gke_provider=GKE)
    world.account(team, "reader", opted_in=True, **{"iam.gke.io/gcp-service-account": name})
    sts.workload_users[name] = [f"system:serviceaccount:{team}:reader"]
    answer = broker.ask_as_job(world.volume(team, gs(serviceAccountName="reader", identity={"method": "gke"})))
    assert answer.status == 200 and ("impersonation", name) in sts.granted, answer
    first, second = sts.requests
    assert first == ("POST", "/v1/token") and second[1].count("/") == 5, sts.requests


@pytest.mark.parametrize("annotation", ["eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account"])
@pytest.mark.parametrize("name", NO_NAME)
def test_hostile_name_with_a_character_of_no_name_is_refused_before_any_request(world, sts, start, team, annotation, name):
    """The reply was "the principal has invalid characters", after the token had been exchanged."""
    broker = start(gke_project="acme", gke_provider=GKE)
    world.account(team, "reader", opted_in=True, **{annotation: name})
    source = s3(serviceAccountName="reader") if "aws" in annotation else gs(serviceAccountName="reader", identity={"method": "gke"})
    answer = broker.ask_as_job(world.volume(team, source))
    assert_error(answer, 403, 1908, f"{team}/reader", annotation, "correct the annotation")
    assert sts.requests == []


@pytest.fixture
def agent(sts, tmp_path):
    """The environment of a pod that EKS has associated with a role; the agent is at an address of this machine."""
    (tmp_path / "eks-pod-identity-token").write_text("container-token")
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{sts.url}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "eks-pod-identity-token")}


def pod_identity(**more):
    return s3(serviceAccountName="reader", identity={"method": "podIdentity"}, **more)


def test_pod_identity_of_the_controller_assumes_the_role_of_the_account(world, sts, start, team, agent):
    world.account(team, "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": ROLE})
    sts.assumable[ROLE] = f"system:serviceaccount:{team}:reader"
    answer = start(env=agent).ask_as_job(world.volume(team, pod_identity(region="eu-west-1")))
    assert answer.status == 200 and answer.method == "podIdentity" and answer.principal == ROLE, answer
    assert (answer.accessKeyID, answer.sessionToken) == ("ASIAEXAMPLE", "token-2"), "the controller's own role was given away"
    assert sts.granted == [(ROLE, f"system:serviceaccount:{team}:reader")]
    assert sts.requests[:2] == [("GET", "/v1/credentials"), ("POST", "/")]


def test_pod_identity_role_that_trusts_another_account_is_denied(world, sts, start, team, agent):
    world.account(team, "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": ROLE})
    sts.assumable[ROLE] = "system:serviceaccount:another:reader"
    assert_error(start(env=agent).ask_as_job(world.volume(team, pod_identity())), 403, 1702, "sts:AssumeRole", f"{team}/reader")
    assert sts.granted == []


def test_pod_identity_without_association_of_the_controller_is_denied(world, sts, start, team):
    world.account(team, "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": ROLE})
    assert_error(start().ask_as_job(world.volume(team, pod_identity())), 403, 1908, "EKS Pod Identity", "restart the controller")
    assert sts.requests == []


def test_pod_identity_needs_consent_and_a_role(world, start, team, agent):
    broker = start(env=agent)
    world.account(team, "reader", **{"eks.amazonaws.com/role-arn": ROLE})
    assert_error(broker.ask_as_job(world.volume(team, pod_identity())), 403, 1904)
    other = world.trusting_namespace()
    world.account(other, "reader", opted_in=True)
    assert_error(broker.ask_as_job(world.volume(other, pod_identity())), 403, 1908, "eks.amazonaws.com/role-arn")


def test_keys_of_a_secret_are_returned_unchanged(world, broker, team):
    world.secret(team, "keys", access_key_id="AKIA", secret_access_key="s3-secret")
    answer = broker.ask_as_job(world.volume(team, s3(secretRef={"name": "keys"})))
    assert answer.status == 200 and answer.method == "secret", answer
    assert (answer.accessKeyID, answer.secretAccessKey, answer.sessionToken) == ("AKIA", "s3-secret", None)


def test_newline_after_a_key_is_removed(world, broker, team):
    world.secret(team, "keys", access_key_id="AKIA\n", secret_access_key="s3-secret\r\n")
    answer = broker.ask_as_job(world.volume(team, s3(secretRef={"name": "keys"})))
    assert answer.status == 200, answer
    assert (answer.accessKeyID, answer.secretAccessKey) == ("AKIA", "s3-secret")


def test_key_file_is_exchanged_for_a_token(world, sts, broker, team, tmp_path):
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    sts.public_key = str(public)
    key = {"type": "service_account", "private_key_id": "key-1", "private_key": private.read_text(),
           "client_email": "robot@project.iam.gserviceaccount.com", "token_uri": "https://evil.example/token"}
    world.secret(team, "key", service_account__json=json.dumps(key))
    answer = broker.ask_as_job(world.volume(team, gs(secretRef={"name": "key"})))
    assert answer.status == 200 and answer.accessToken == "token-1", answer
    assert "PRIVATE" not in repr(answer) and ("POST", "/token") in sts.requests


def costly_key():
    """An RSA key of 2048 bits. One of its primes has 65536 bits: a signature would take a minute."""
    def element(tag, content):
        return bytes([tag, 0x82]) + len(content).to_bytes(2, "big") + content

    numbers = b"".join(element(2, b"\0" + b"\xff" * size) for size in (0, 256, 3, 255, 3, 8192, 1, 8192, 1))
    body = base64.encodebytes(element(0x30, numbers)).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----\n"


def test_costly_key_of_a_secret_is_denied_without_delay(world, broker, team):
    key = {"type": "service_account", "private_key": costly_key(), "client_email": "robot@project.iam.gserviceaccount.com"}
    world.secret(team, "costly", service_account__json=json.dumps(key))
    volume = world.volume(team, gs(secretRef={"name": "costly"}))
    began = time.monotonic()
    assert_error(broker.ask_as_job(volume), 400, 1907, "no RSA key")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("values, words", [
    ({"access_key_id": "AKIA"}, "secret_access_key"), ({}, "service_account.json"),
    ({"service_account__json": '{"type": "external_account"}'}, "external_account"),
    ({"service_account__json": "rubbish"}, "service_account.json")])
def test_secret_without_credentials_is_denied(world, broker, team, values, words):
    world.secret(team, "bad", **values)
    source = s3 if "access_key_id" in values else gs
    answer = broker.ask_as_job(world.volume(team, source(secretRef={"name": "bad"})))
    assert answer.error["id"] == "CIS1907" and words in repr(answer), answer


def test_anonymous_method_sends_no_request(world, sts, broker, team):
    answer = broker.ask_as_job(world.volume(team, gs(identity={"method": "anonymous"})))
    assert answer.status == 200 and answer.scheme == "anonymous" and answer.accessToken is None, answer
    assert sts.requests == []


def test_metadata_method_needs_permission_of_the_chart(world, sts, start, team):
    volume = world.volume(team, gs(identity={"method": "metadata"}))
    unnamed = world.volume(team, gs())
    strict, free = start(), start(driver=1)
    assert_error(strict.ask_as_job(volume), 403, 1908, "identity.method metadata is not allowed")
    assert_error(strict.ask_as_job(unnamed), 403, 1908, "the source has no identity")
    for one in (volume, unnamed):
        answer = free.ask_as_job(one)
        assert answer.status == 200 and answer.method == "metadata", answer
    assert sts.given == 1


@pytest.mark.parametrize("source, words", [
    (s3(identity={"method": "gke"}, serviceAccountName="reader"), "does not work for s3://"),
    (gs(identity={"method": "irsa"}, serviceAccountName="reader"), "does not work for gs://"),
    (gs(identity={"method": "podIdentity"}, serviceAccountName="reader"), "does not work for gs://"),
    (s3(identity={"method": "secret"}), "secretRef is missing"),
    (s3(serviceAccountName="reader"), "eks.amazonaws.com/role-arn"),
    (gs(serviceAccountName="reader"), "workload identity")])
def test_unsupported_method_has_advice(world, sts, broker, team, source, words):
    world.account(team, "reader", opted_in=True)
    assert_error(broker.ask_as_job(world.volume(team, source)), 403, 1908, words)
    assert sts.requests == []


@pytest.mark.parametrize("audience", ["https://kubernetes.default.svc", "cistern-broker", "acme.svc.id.goog/x", ""])
def test_token_for_an_audience_outside_the_clouds_is_denied(world, sts, broker, team, audience):
    irsa(world, sts, team)
    source = s3(serviceAccountName="reader", identity={"audience": audience} if audience else {})
    answer = broker.ask_as_job(world.volume(team, source))
    if audience:
        assert_error(answer, 403, 1908, audience, "identity.audience")
        assert sts.requests == []
    else:
        assert answer.status == 200


def test_audience_of_the_chart_is_allowed(world, sts, start, team):
    broker = start(audience="internal-sts")
    irsa(world, sts, team)
    sts.roles[ROLE]["aud"] = "internal-sts"
    answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader", identity={"audience": "internal-sts"})))
    assert answer.status == 200, answer


@pytest.mark.parametrize("audiences, may", [
    (["sts.amazonaws.com"], True), (["sts.amazonaws.com.cn"], True), (["internal-sts"], True), (["acme.svc.id.goog"], True),
    ([PROVIDER], True), ([f"https:{PROVIDER}"], True),
    (["vault"], False), (["https://kubernetes.default.svc.cluster.local"], False), (["cistern-broker"], False), ([], False),
    (["sts.amazonaws.com", "vault"], False), (["https://evil.example//iam.googleapis.com/"], False), (["sts.amazonaws.com.evil.example"], False),
    (["evil.example/x.svc.id.goog"], False), ([f"{PROVIDER} x"], False), (["of-the-api-server"], False),
    (["//iam.googleapis.com/kubernetes.default"], False)])
def test_api_server_creates_tokens_for_cloud_audiences_only(world, team, audiences, may):
    """The admission policy applies even to a compromised controller."""
    world.account(team, "reader", opted_in=True)
    order = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences}}
    path, refusal = f"/api/v1/namespaces/{team}/serviceaccounts/reader/token", ""
    try:
        world.cluster.kubectl("--as", CONTROLLER, "create", "--raw", path, "-f", "-", stdin=json.dumps(order))
    except RuntimeError as error:
        refusal = str(error)
    assert (refusal == "") == may and (may or "cistern-token-audience" in refusal), refusal


def test_account_without_opt_in_is_denied(world, sts, start, team):
    world.account(team, "shy", **{"eks.amazonaws.com/role-arn": ROLE})
    sts.roles[ROLE] = {"sub": f"system:serviceaccount:{team}:shy", "aud": "sts.amazonaws.com"}
    volume = world.volume(team, s3(serviceAccountName="shy"))
    assert_error(start().ask_as_job(volume), 403, 1904, f"{team}/shy", "cistern.io/allow-bucket-access=true")
    assert sts.requests == []
    assert start(no_opt_in=1).ask_as_job(volume).status == 200


def test_namespace_without_role_binding_is_denied_with_advice(world, sts, broker):
    world.namespace("closed")
    world.account("closed", "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": ROLE})
    world.secret("closed", "keys", access_key_id="AKIA", secret_access_key="s3-secret")
    for source in (s3(serviceAccountName="reader"), s3(secretRef={"name": "keys"})):
        answer = broker.ask_as_job(world.volume("closed", source))
        assert_error(answer, 403, 1905, "access is forbidden", "-n closed", f"{NAMESPACE}:cistern-controller")
    assert sts.requests == []


def test_missing_account_or_secret_is_named(world, broker, team):
    assert_error(broker.ask_as_job(world.volume(team, s3(serviceAccountName="gone"))), 404, 1906, f"ServiceAccount '{team}/gone': not found")
    assert_error(broker.ask_as_job(world.volume(team, s3(secretRef={"name": "gone"}))), 404, 1906, f"Secret '{team}/gone'")


# ---- exports

def export(**more):
    return s3(serviceAccountName="reader", export={"uri": "s3://results/", **more})


def test_export_uses_its_own_identity(world, sts, broker, team):
    irsa(world, sts, team)
    irsa(world, sts, team, "writer", "arn:aws:iam::1:role/writer")
    volume = world.volume(team, export(serviceAccountName="writer"))
    assert broker.ask_as_job(volume).principal == ROLE
    assert broker.ask_as_job(volume, "export").principal == "arn:aws:iam::1:role/writer"
    plain = world.volume(team, export())
    assert broker.ask_as_job(plain, "export").principal == ROLE


def create_export_secret(world):
    """Creates the Secret of the administrator, and the permission to read it."""
    world.create_if_absent(f"/api/v1/namespaces/{NAMESPACE}/secrets", {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "last-resort"},
        "stringData": {"access_key_id": "AKIA-LAST", "secret_access_key": "s3-secret"}})
    world.create_if_absent(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "cistern-credentials"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cistern-credentials"},
        "subjects": [{"kind": "ServiceAccount", "name": "cistern-controller", "namespace": NAMESPACE}]})


def test_export_with_a_deleted_account_uses_the_cache_then_the_export_secret(world, sts, start, team):
    irsa(world, sts, team)
    create_export_secret(world)
    volume = world.volume(team, export(), parameters={"exportSecret": "last-resort"}, has_exported=True)
    first = start()
    assert first.ask_as_job(volume, "export").principal == ROLE
    world.cluster.delete(f"/api/v1/namespaces/{team}/serviceaccounts/reader")
    assert first.ask_as_job(volume, "export").principal == ROLE  # cached for an hour
    second = start()
    assert_error(second.ask_as_job(volume, "export"), 404, 1911, f"ServiceAccount '{team}/reader'", "exportSecret")
    third = start(export_secret="last-resort=s3://results/")
    answer = third.ask_as_job(volume, "export")
    assert answer.status == 200 and answer.accessKeyID == "AKIA-LAST", answer
    # exportSecret is not for reading.
    assert_error(third.ask_as_job(volume), 404, 1906, f"ServiceAccount '{team}/reader'")


@pytest.mark.parametrize("more, has_exported", [
    ({}, False),                                     # no earlier export under its own identity
    ({"uri": "s3://results-of-others/"}, True),      # a prefix that the administrator did not bind
    ({"endpoint": "https://evil.example"}, True)])   # another server
def test_export_secret_is_denied_outside_its_binding(world, sts, start, team, more, has_exported):
    create_export_secret(world)
    source = s3(serviceAccountName="never-was", export={"uri": "s3://results/", **more})
    volume = world.volume(team, source, parameters={"exportSecret": "last-resort"}, has_exported=has_exported)
    answer = start(export_secret="last-resort=s3://results/", driver=1).ask_as_job(volume, "export")
    assert answer.status in (403, 404) and answer.accessKeyID is None, answer
    assert answer.error["id"] in ("CIS1911", "CIS1912") and sts.requests == []


# ---- endpoints

@pytest.mark.parametrize("source", [
    gs(serviceAccountName="reader", identity={"provider": PROVIDER}), s3(serviceAccountName="reader"),
    gs(identity={"method": "metadata"}), s3(identity={"method": "metadata"})])
@pytest.mark.parametrize("endpoint", ["http://collect.evil.example", "https://collect.evil.example",
                                      "https://storage.googleapis.com.evil.example", "https://storage.googleapis.com@evil.example",
                                      "http://storage.googleapis.com"])
def test_credential_for_an_untrusted_endpoint_is_denied(world, sts, start, team, source, endpoint):
    irsa(world, sts, team)
    sts.providers[PROVIDER] = PROVIDER
    answer = start(driver=1).ask_as_job(world.volume(team, {**source, "endpoint": endpoint}))
    assert_error(answer, 403, 1912, "endpoint", "endpoints.trusted")
    assert sts.requests == []


def test_keys_of_a_secret_are_allowed_at_any_endpoint(world, broker, team):
    world.secret(team, "keys", access_key_id="AKIA", secret_access_key="s3-secret")
    answer = broker.ask_as_job(world.volume(team, s3(secretRef={"name": "keys"}, endpoint="http://minio.team.example:9000")))
    assert answer.status == 200 and answer.accessKeyID == "AKIA", answer


def test_role_is_allowed_at_a_trusted_endpoint(world, sts, start, team):
    irsa(world, sts, team)
    broker = start(trust="https://minio.corp.example:9000")
    volume = world.volume(team, s3(serviceAccountName="reader", endpoint="https://minio.corp.example:9000/"))
    assert broker.ask_as_job(volume).principal == ROLE
    other = world.volume(team, s3(serviceAccountName="reader", endpoint="http://minio.corp.example:9000"))
    assert_error(broker.ask_as_job(other), 403, 1912)


@pytest.mark.parametrize("region", ["x@127.0.0.1:{port}/?", "127.0.0.1:{port}/", "eu-west-1.evil.example", "s3-eu-west-1", "elb"])
def test_invalid_region_is_denied(world, sts, start, team, region):
    """The first region would make the controller send the token of the service account to the listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        irsa(world, sts, team)
        broker = start(aws_sts="")
        region = region.format(port=listener.getsockname()[1])
        answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader", region=region)))
        with pytest.raises(TimeoutError):
            listener.accept()
    assert answer.status >= 400 and answer.error["id"] in ("CIS1002", "CIS2002"), answer


# ---- faults of the clouds

@pytest.mark.parametrize("fault, status, number, words", [
    ({"fail_with": (400, {"error": "invalid_grant", "error_description": "no"})}, 403, 1702, "invalid_grant"),
    ({"fail_with": (500, b"")}, 503, 1702, "500"),
    ({"fail_with": (200, {"access_token": "x", "token_type": "MAC"})}, 502, 1702, "no bearer token"),
    ({"fail_with": (200, b"x" * 1_000_000)}, 502, 1702, "longer than"),
    ({"truncate": True}, 503, 1614, ""),
    ({"clock_offset": 600}, 403, 1901, "behind the server"),
    ({"clock_offset": -600}, 403, 1901, "ahead of the server")])
def test_fault_of_google_is_reported(world, sts, start, team, fault, status, number, words):
    broker = start(gke_project="acme", gke_provider=GKE)
    world.account(team, "reader", opted_in=True)
    for name, value in fault.items():
        setattr(sts, name, value)
    answer = broker.ask_as_job(world.volume(team, gs(serviceAccountName="reader")))
    assert answer.status == status and answer.error["id"] == f"CIS{number}" and words in answer.error["message"], answer


@pytest.mark.parametrize("fault, status, number, words", [
    ({"fail_with": (200, b"<AssumeRoleWithWebIdentityResponse><Assume")}, 502, 1702, ""),
    ({"fail_with": (200, b"{}")}, 502, 1702, ""),
    ({"truncate": True}, 503, 1614, ""),
    ({"clock_offset": 600}, 403, 1901, "behind the server"),
    ({"clock_offset": -600}, 403, 1901, "ahead of the server")])
def test_fault_of_aws_is_reported(world, sts, broker, team, fault, status, number, words):
    irsa(world, sts, team)
    for name, value in fault.items():
        setattr(sts, name, value)
    answer = broker.ask_as_job(world.volume(team, s3(serviceAccountName="reader")))
    assert answer.status == status and answer.error["id"] == f"CIS{number}" and words in answer.error["message"], answer


def test_failure_is_cached_for_retry_after(world, sts, broker, team):
    irsa(world, sts, team)
    sts.fail_with = (429, b"<ErrorResponse/>", {"Retry-After": "120"})
    volume = world.volume(team, s3(serviceAccountName="reader"))
    for _ in range(5):
        assert broker.ask_as_job(volume).status == 503
    assert len(sts.requests) == 1


def test_credential_of_two_seconds_is_renewed(world, sts, broker, team):
    irsa(world, sts, team)
    sts.expires_in = 2
    volume = world.volume(team, s3(serviceAccountName="reader"))
    tokens = [broker.ask_as_job(volume).sessionToken for _ in range(3)]
    assert tokens == ["token-1", "token-2", "token-3"]


def test_credential_that_the_store_rejected_is_replaced_once(world, sts, broker, team):
    import hashlib
    irsa(world, sts, team)
    volume = world.volume(team, s3(serviceAccountName="reader"))
    token = world.job_token(volume)
    first = broker.ask(token, volume)
    assert broker.ask(token, volume).sessionToken == first.sessionToken
    print_of = hashlib.sha256(first.secretAccessKey.encode()).hexdigest()[:16]
    assert broker.ask(token, volume, refused=print_of).sessionToken == "token-2"
    assert broker.ask(token, volume, refused=print_of).sessionToken == "token-2"
    assert sts.given == 2
