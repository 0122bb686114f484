# SPDX-License-Identifier: Apache-2.0
"""Clients keep their access while the broker renews its certificate and its CA."""

import base64
import json
import os
import subprocess
import threading
import time

import pytest

from integration.lib.buckets import clean_environment, run_tool

from .world import NAMESPACE

SHORT = {"check_ms": 200, "authority": 10, "authority_before": 8, "published": 1, "certificate": 5, "certificate_before": 3}


@pytest.fixture(autouse=True)
def without_certificate(world):
    """Deletes the certificate before and after each test."""
    def delete():
        world.cluster.kubectl("-n", NAMESPACE, "delete", "--ignore-not-found", "secret/cistern-broker-tls",
                              "configmap/cistern-broker-ca")
    delete()
    yield
    delete()


def secret(world):
    data = world.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/cistern-broker-tls")["data"]
    return {k: base64.b64decode(v).decode() for k, v in data.items()}


@pytest.fixture
def volume(world, sts):
    team = world.trusting_namespace()
    world.account(team, "reader", opted_in=True, **{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"})
    sts.roles["arn:aws:iam::1:role/r"] = {"sub": f"system:serviceaccount:{team}:reader", "aud": "sts.amazonaws.com"}
    return world.volume(team, {"uri": "s3://bucket/", "serviceAccountName": "reader"})


class Client:
    """The environment of a Job: its token, the published CAs, and the address of the broker."""

    def __init__(self, world, broker, volume, directory, token=None):
        self.broker, self.ca = broker, directory / "ca.crt"
        (directory / "token").write_text(token or world.job_token(volume))
        self.publish()
        self.env = clean_environment(
            CISTERN_BROKER_URL=f"https://cistern-broker.{NAMESPACE}.svc", CISTERN_BROKER_SERVICE_HOST="127.0.0.1",
            CISTERN_BROKER_SERVICE_PORT=str(broker.port), CISTERN_BROKER_VOLUME=volume, CISTERN_BROKER_FOR="hydrate",
            CISTERN_BROKER_TOKEN_FILE=str(directory / "token"), CISTERN_BROKER_CA_FILE=str(self.ca),
            https_proxy="http://127.0.0.1:1")

    def publish(self):
        """Replaces the CA file atomically, as the kubelet does with a mounted ConfigMap."""
        temporary = self.ca.with_suffix(".new")
        temporary.write_text(self.broker.bundle())
        os.rename(temporary, self.ca)

    def list(self, sts, *flags, uri="s3://bucket/", **env):
        return run_tool("--endpoint", sts.url, *flags, uri, "list", env={**self.env, **env})


def test_store_gets_its_credentials_from_the_broker(world, sts, broker, volume, tmp_path):
    answer = Client(world, broker, volume, tmp_path).list(sts)
    assert answer.code == "OK", answer
    assert sts.seen[0][1] == "token-1" and "ASIAEXAMPLE" in sts.seen[0][0]


def test_error_of_the_broker_is_reported_with_its_id_and_advice(world, sts, broker, volume, tmp_path):
    client = Client(world, broker, volume, tmp_path)
    answer = client.list(sts, CISTERN_BROKER_FOR="export")
    assert answer.code == "DENIED" and answer.id == 1903 and "not of its export Job" in answer.text, answer
    assert "from the broker" in answer.text and "Jobs of the volume" in answer.advice
    answer = client.list(sts, CISTERN_BROKER_VOLUME="")
    assert answer.code == "INVALID" and answer.id == 1909, answer
    answer = client.list(sts, "--retries", "1", CISTERN_BROKER_SERVICE_PORT="1")
    assert answer.code == "IO" and answer.id == 1909, answer
    answer = client.list(sts, "--retries", "1", CISTERN_BROKER_URL="http://127.0.0.1")
    assert answer.code == "INVALID" and answer.id == 1909, answer
    answer = client.list(sts, uri="gs://bucket/")
    assert answer.code == "DENIED" and answer.id == 1908, answer


def test_broker_with_another_ca_is_not_trusted(world, sts, broker, volume, tmp_path):
    client = Client(world, broker, volume, tmp_path)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=other",
                    "-out", str(client.ca)], check=True, capture_output=True)
    answer = client.list(sts, "--retries", "1")
    assert answer.code != "OK" and answer.id == 1909 and sts.seen == [], answer


def test_credential_is_renewed_before_its_end_and_after_a_401(world, sts, start, volume, tmp_path):
    # Tokens are valid for 17 s, and are renewed 15 s before their end by the store and by the broker.
    broker = start(gke_project="acme", gke_provider="https://container.googleapis.com/v1/projects/acme/x")
    team = world.trusting_namespace()
    world.account(team, "reader", opted_in=True)
    client = Client(world, broker, world.volume(team, {"uri": "gs://bucket/", "serviceAccountName": "reader"}), tmp_path)
    client.env["CISTERN_BROKER_VOLUME"] = gs = world.volume(team, {"uri": "gs://bucket/", "serviceAccountName": "reader"})
    (tmp_path / "token").write_text(world.job_token(gs))
    sts.expires_in, sts.pages, sts.page_seconds = 17, 5, 0.8
    assert client.list(sts, uri="gs://bucket/").code == "OK"
    tokens = [token for _, token in sts.seen]
    assert len(tokens) == 5 and tokens[-1] != tokens[0], tokens
    sts.expires_in, sts.pages, sts.page_seconds, sts.seen = 3600, 1, 0, []
    time.sleep(2.5)  # until the cached token is too close to its end
    assert client.list(sts, uri="gs://bucket/").code == "OK"
    refused = sts.seen[-1][1]
    sts.refuse_tokens, sts.seen = {refused}, []
    answer = client.list(sts, "--retries", "3", uri="gs://bucket/")
    assert answer.code == "OK" and sts.seen[0][1] == refused and sts.seen[-1][1] != refused, (answer, sts.seen)


def test_certificate_and_ca_rotate_while_clients_renew(world, sts, start, volume, tmp_path):
    broker = start(**SHORT)
    client = Client(world, broker, volume, tmp_path)
    first = secret(world)
    stopping, failures, asked = threading.Event(), [], []

    def kubelet():
        while not stopping.wait(0.3):
            client.publish()

    def job():
        while not stopping.is_set():
            answer = client.list(sts, "--retries", "1")
            asked.append(answer.code)
            if answer.code != "OK":
                failures.append(answer)
    threads = [threading.Thread(target=f) for f in (kubelet, job, job)]
    for t in threads:
        t.start()
    seen_authorities, seen_servers = {first["authority.crt"]}, {first["tls.crt"]}
    end = time.monotonic() + 14
    while time.monotonic() < end and len(seen_authorities) < 3:
        now = secret(world)
        seen_authorities.add(now["authority.crt"])
        seen_servers.add(now["tls.crt"])
        time.sleep(0.2)
    stopping.set()
    for t in threads:
        t.join()
    assert len(seen_authorities) >= 3 and len(seen_servers) >= 3, (len(seen_authorities), len(seen_servers))
    assert not failures and len(asked) > 10, failures[:3]


def test_second_replica_serves_the_same_certificate(world, start):
    one, two = start(), start()
    assert one.serves() and two.serves()
    made = secret(world)
    assert json.dumps(made).count("BEGIN CERTIFICATE") == 3  # CA, server, and bundle
    assert made["ca.crt"] == one.bundle()


def test_deleted_secret_is_created_again(world, start):
    broker = start(check_ms=200)
    before = secret(world)
    world.cluster.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/cistern-broker-tls")
    broker.wait_for(lambda: before["authority.crt"] not in (broker.bundle() or before["ca.crt"]) and broker.serves())
    assert secret(world)["tls.crt"] != before["tls.crt"]
