# SPDX-License-Identifier: Apache-2.0
"""TLS to a server whose certificate only we know."""

import subprocess

import pytest

from integration.lib.buckets import clean_environment, run_tool
from servers.versitygw import ACCESS_KEY, SECRET_KEY, Versitygw


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    with Versitygw(tls=(str(certificate), str(key))) as server:
        server.make_bucket("bucket")
        yield server, certificate


def tool(server, *arguments, **env):
    return run_tool(*arguments[:-1], "--endpoint", server.url, "s3://bucket/", *arguments[-1],
                    env=clean_environment(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, **env))


def test_a_certificate_of_our_own_is_trusted_when_it_is_named(secured, tmp_path):
    server, certificate = secured
    sent = tmp_path / "sent"
    sent.write_bytes(b"over TLS")
    assert tool(server, "--ca", certificate, ["put", "k", sent]).code == "OK"
    assert tool(server, ["list"], AWS_CA_BUNDLE=str(certificate)).lines[0]["key"] == "k"


def test_an_unknown_certificate_is_refused(secured):
    server, _ = secured
    answer = tool(server, ["list"])
    assert answer.code != "OK" and not answer.may_retry, answer
    assert "certificate" in answer.text.lower()
