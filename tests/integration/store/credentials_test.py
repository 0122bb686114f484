# SPDX-License-Identifier: Apache-2.0
"""Sources of credentials: each is asked as its manual says, the store gets the credentials that it gave, and no error
contains a secret."""

import ctypes
import json
import subprocess
import time

import pytest

from integration.lib.buckets import clean_environment, run_tool
from paths import CISTERN
from servers.sts import Sts

SECRETS = ("client-secret", "refresh", "subject", "fetched-secret", "PRIVATE KEY", "container-token", "web+identity")


@pytest.fixture
def identity():
    server = Sts()
    yield server
    server.stop()


@pytest.fixture
def key_file(identity, tmp_path):
    """A service account's key, as the console gives it."""
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", private],
                   check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    identity.public_key = str(public)
    path = tmp_path / "service-account.json"
    path.write_text(json.dumps({
        "type": "service_account", "project_id": "project", "private_key_id": "key-1",
        "private_key": private.read_text(), "client_email": "robot@project.iam.gserviceaccount.com",
        "token_uri": f"{identity.url}/token"}))
    return path


def list_gs(identity, *flags, **env):
    return run_tool("--endpoint", identity.url, *flags, "gs://bucket/", "list", env=clean_environment(**env))


def list_s3(identity, *flags, **env):
    return run_tool("--endpoint", identity.url, *flags, "s3://bucket/", "list", env=clean_environment(**env))


def assert_no_secret(answer):
    assert not any(secret in repr(answer) for secret in SECRETS), answer


def assert_bearer(identity, answer):
    assert answer.code == "OK", answer
    assert identity.seen == [("Bearer token-1", "token-1")]


def assert_session(identity, answer):
    assert answer.code == "OK", answer
    authorization, token = identity.seen[0]
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=ASIAEXAMPLE/") and "x-amz-security-token" in authorization
    assert token == "token-1"


def test_a_service_accounts_key_signs_an_assertion(identity, key_file):
    assert_bearer(identity, list_gs(identity, GOOGLE_APPLICATION_CREDENTIALS=str(key_file)))


def test_refused_assertion_is_reported_with_the_servers_words(identity, key_file, tmp_path):
    key = json.loads(key_file.read_text())
    key["client_email"] = "somebody@else"
    key_file.write_text(json.dumps(key))
    answer = list_gs(identity, GOOGLE_APPLICATION_CREDENTIALS=str(key_file))
    assert answer.code == "DENIED" and answer.id == 1702 and "invalid_grant" in answer.text
    assert identity.seen == []
    assert_no_secret(answer)


def test_an_authorized_users_file_is_found_where_gcloud_puts_it(identity, tmp_path):
    (tmp_path / "application_default_credentials.json").write_text(json.dumps({
        "type": "authorized_user", "client_id": "id", "client_secret": "client-secret", "refresh_token": "refresh",
        "token_uri": f"{identity.url}/token"}))
    assert_bearer(identity, list_gs(identity, CLOUDSDK_CONFIG=str(tmp_path)))


def test_a_foreign_token_is_exchanged(identity, tmp_path):
    (tmp_path / "subject").write_text("subject\n")
    path = tmp_path / "federation.json"
    path.write_text(json.dumps({
        "type": "external_account", "audience": "//iam/pool/provider", "token_url": f"{identity.url}/v1/token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": {"file": f"{tmp_path}/subject"}}))
    assert_bearer(identity, list_gs(identity, GOOGLE_APPLICATION_CREDENTIALS=str(path)))


def test_the_metadata_server_is_the_last_to_be_asked(identity):
    assert_bearer(identity, list_gs(identity, GCE_METADATA_HOST=identity.host))


def test_a_token_file_is_read(identity, tmp_path):
    (tmp_path / "token").write_text("token-1\n")
    assert_bearer(identity, list_gs(identity, CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=str(tmp_path / "token")))


def test_an_anonymous_request_carries_nothing(identity):
    assert list_gs(identity, "--anonymous", GCE_METADATA_HOST=identity.host).code == "OK"
    assert list_s3(identity, "--anonymous").code == "OK"
    assert identity.seen == [(None, ""), (None, "")]


def test_keys_in_the_environment_come_with_their_session_token(identity):
    assert_session(identity, list_s3(identity, AWS_ACCESS_KEY_ID="ASIAEXAMPLE", AWS_SECRET_ACCESS_KEY="s",
                                     AWS_SESSION_TOKEN="token-1"))


def test_a_profile_gives_keys_and_region(identity, tmp_path):
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = no\naws_secret_access_key = no\n"
                                          "[p]\naws_access_key_id = ASIAEXAMPLE\naws_secret_access_key = s\n"
                                          "aws_session_token = token-1\n")
    (tmp_path / "config").write_text("[profile p]\nregion = eu-west-3\n")
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "AWS_CONFIG_FILE": str(tmp_path / "config")}
    assert_session(identity, list_s3(identity, "--profile", "p", **files))
    assert "/eu-west-3/s3/aws4_request" in identity.seen[0][0]
    answer = list_s3(identity, "--profile", "nobody", **files)
    assert answer.code == "INVALID" and answer.id == 1701 and "'nobody'" in answer.text


@pytest.mark.parametrize("way", ["role_arn = arn:aws:iam::1:role/r\nsource_profile = p", "sso_session = work",
                                 "credential_process = /bin/false"], ids=lambda way: way.split()[0])
def test_a_profile_that_goes_another_way_says_which_and_what_to_do(identity, tmp_path, way):
    """The key beside it may be of another identity."""
    key = "" if "process" in way else "aws_access_key_id = ASIAEXAMPLE\naws_secret_access_key = fetched-secret\n"
    (tmp_path / "config").write_text(f"[profile p]\n{way}\n{key}")
    answer = list_s3(identity, "--profile", "p", AWS_CONFIG_FILE=str(tmp_path / "config"))
    assert answer.code == "UNSUPPORTED" and identity.seen == [], answer
    assert way.split()[0] in repr(answer) and "export-credentials --profile p" in repr(answer)
    assert_no_secret(answer)


def test_a_web_identity_assumes_its_role(identity, tmp_path):
    (tmp_path / "token").write_text("web+identity/token=")
    env = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
           "AWS_ENDPOINT_URL_STS": identity.url + "/"}
    assert_session(identity, list_s3(identity, **env))
    (tmp_path / "token").write_text("another")
    answer = list_s3(identity, **env)
    assert answer.code == "DENIED" and "InvalidIdentityToken" in answer.text
    assert_no_secret(answer)


def test_a_container_asks_with_its_token(identity, tmp_path):
    (tmp_path / "token").write_text("container-token\n")
    assert_session(identity, list_s3(identity, AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{identity.url}/v1/credentials",
                                     AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token")))


@pytest.mark.parametrize("host", ["192.0.2.1", "169.254.170.22", "169.254.170.24", "169.254.169.254", "[fd00:ec2::24]",
                                  "[fd00:ec2::254]", "169.254.170.23.example", "[::ffff:169.254.170.23]"])
def test_a_container_is_not_asked_in_clear_text_elsewhere(identity, host):
    answer = list_s3(identity, AWS_CONTAINER_CREDENTIALS_FULL_URI=f"http://{host}/v1/credentials")
    assert answer.code == "INVALID" and answer.id == 1701


@pytest.fixture
def agents_network():
    """A network of this thread, its children and new threads, with the addresses of EKS' Pod Identity agent."""
    libc, new_network = ctypes.CDLL(None), 0x40000000
    with open("/proc/thread-self/ns/net") as before:
        assert libc.unshare(new_network) == 0
        try:
            for words in ("link set lo up", "addr add 169.254.170.23/32 dev lo", "addr add fd00:ec2::23/128 dev lo nodad"):
                subprocess.run(["ip", *words.split()], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), new_network) == 0


@pytest.mark.parametrize("host", ["169.254.170.23", "[fd00:ec2::23]"])
def test_the_pod_identity_agent_gives_credentials_and_is_refused_as_a_store(agents_network, tmp_path, host):
    agent, store = Sts(host.strip("[]"), 80), Sts()
    (tmp_path / "token").write_text("container-token")
    (tmp_path / "guard").write_text("allow 127.0.0.1\n")
    env = {"CISTERN_GUARD_FILE": str(tmp_path / "guard"), "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/v1/credentials",
           "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}
    try:
        assert_session(store, list_s3(store, **env))
        answer = run_tool("--endpoint", f"http://{host}", "s3://bucket/", "list", env=clean_environment(**env))
        assert answer.id == 1617, answer
        assert set(agent.requests) == {("GET", "/v1/credentials")}
    finally:
        agent.stop()
        store.stop()


def test_instance_metadata_is_asked_in_a_session(identity):
    assert_session(identity, list_s3(identity, AWS_EC2_METADATA_SERVICE_ENDPOINT=identity.url + "/"))
    assert identity.requests[:3] == [("PUT", "/latest/api/token"), ("GET", "/latest/meta-data/iam/security-credentials/"),
                                     ("GET", "/latest/meta-data/iam/security-credentials/node-role")]


def test_missing_credentials_are_reported_with_advice(identity):
    answer = list_s3(identity, AWS_EC2_METADATA_DISABLED="true")
    assert answer.code == "DENIED" and answer.id == 1701 and "AWS_ACCESS_KEY_ID" in answer.text


@pytest.mark.parametrize("status, document, code", [
    (500, b"", "AGAIN"), (429, b"{}", "AGAIN"), (403, b"no", "DENIED"), (200, b"", "CORRUPT"), (200, b"{", "CORRUPT"),
    (200, b"{}", "CORRUPT"), (200, b'{"access_token": 1}', "CORRUPT"), (200, b'{"access_token": ""}', "CORRUPT"),
    (200, b'{"access_token": "x", "expires_in": -1}', "CORRUPT"), (200, b'{"access_token": "x\\r\\nevil: 1"}', "CORRUPT"),
    (200, b'{"access_token": "x", "token_type": "MAC"}', "CORRUPT"), (200, b"x" * 1_000_000, "CORRUPT")])
def test_a_metadata_server_that_answers_badly_is_an_error(identity, status, document, code):
    identity.fail_with = (status, document)
    answer = list_gs(identity, GCE_METADATA_HOST=identity.host)
    assert answer.code == code and "metadata server" in answer.text, answer
    assert identity.seen == []
    answer = list_s3(identity, AWS_EC2_METADATA_SERVICE_ENDPOINT=identity.url)
    assert answer.code != "OK" and identity.seen == []


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_of_credentials_that_is_away_for_a_moment_is_asked_with_each_attempt(identity, status):
    """Google's answers so while a pod starts."""
    for uri, source in (("gs://bucket/", {"GCE_METADATA_HOST": identity.host}),
                        ("s3://bucket/", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": identity.url})):
        identity.fail_with, identity.fail_times = (status, b""), 3
        done = subprocess.run([CISTERN, "ls", uri, "--endpoint", identity.url, "--path-style", "--retries", "4"],
                              env=clean_environment(**source), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 and identity.fail_times == 0, done.stderr


def test_a_token_is_renewed_while_pages_are_still_coming(identity):
    identity.expires_in, identity.pages, identity.page_seconds = 17, 5, 0.8
    began = time.monotonic()
    assert list_gs(identity, GCE_METADATA_HOST=identity.host).code == "OK"
    assert len(identity.seen) == 5
    tokens = [token for _, token in identity.seen]
    assert tokens == sorted(tokens) and tokens[-1] != "token-1", (tokens, time.monotonic() - began)


def test_refused_token_is_requested_again_once(identity):
    identity.refuse_tokens = {"token-1"}
    assert list_gs(identity, "--retries", "3", GCE_METADATA_HOST=identity.host).code == "OK"
    assert [token for _, token in identity.seen] == ["token-1", "token-2"]
    identity.refuse_tokens = {f"token-{i}" for i in range(20)}
    answer = list_gs(identity, "--retries", "5", GCE_METADATA_HOST=identity.host)
    assert answer.code == "DENIED" and answer.id == 1401 and answer.requests == 2
