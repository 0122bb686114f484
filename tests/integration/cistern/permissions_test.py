# SPDX-License-Identifier: Apache-2.0
"""The rights in deploy/permissions suffice for a source and for an export, and the message of a missing one names it.
MinIO enforces the S3 policies. No server here enforces roles of Google Cloud: they are compared with the permissions
that messages name."""
import json
import os
import re
import signal
import subprocess
import time

import hcl2
import pytest
import yaml

from integration.lib.buckets import clean_environment
from paths import CISTERN, TOP
from servers import minio

FOLDER = TOP / "deploy/permissions"
BUCKET = minio.EXAMPLE_BUCKET
LARGE = 20 << 20


def environment(server, key=minio.ACCESS_KEY, secret=minio.SECRET_KEY, **more):
    return clean_environment(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_REGION=minio.REGION,
                             AWS_ENDPOINT_URL=server.url, **more)


def sts(server, policy):
    """An environment that may do no more than the policy."""
    key, secret, token = server.session(policy)
    return environment(server, key, secret, AWS_SESSION_TOKEN=token)


def policy(name, prefix, missing=None):
    text = (FOLDER / name).read_text().replace("BUCKET", BUCKET).replace("PREFIX", prefix)
    found = json.loads(text)
    for statement in found["Statement"]:
        statement["Action"] = [a for a in statement["Action"] if a != missing]
    found["Statement"] = [s for s in found["Statement"] if s["Action"]]
    return found


def actions(name):
    return {a for s in json.loads((FOLDER / name).read_text())["Statement"] for a in s["Action"]}


def cistern(env, *words):
    return subprocess.run([CISTERN, *map(str, words)], env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def run(tmp_path):
    """A training run with one checkpoint."""
    folder = tmp_path / "run"
    (folder / "step-1").mkdir(parents=True)
    (folder / "step-1/weights").write_bytes(os.urandom(LARGE))
    (folder / "step-1/state").write_bytes(b"first")
    (folder / "step-1/_SUCCESS").write_bytes(b"")
    return folder


def export(env, run, prefix, *flags):
    return cistern(env, "export", run, f"s3://{BUCKET}/{prefix}/", "--marker", "_SUCCESS", *flags)


def unfinished_uploads(server, prefix):
    said = subprocess.run(["curl", "-sS", "--aws-sigv4", f"aws:amz:{minio.REGION}:s3", "--user",
                           f"{minio.ACCESS_KEY}:{minio.SECRET_KEY}", f"{server.url}/{BUCKET}/?prefix={prefix}%2Fstep-1%2Fweights&uploads="],
                          capture_output=True, text=True, check=True).stdout
    assert "ListMultipartUploadsResult" in said, said
    return said.count("<UploadId>")


def killed_within_its_large_file(server, env, run, prefix):
    going = subprocess.Popen([CISTERN, "export", run, f"s3://{BUCKET}/{prefix}/", "--bandwidth", "4Mi"], env=env)
    deadline = time.monotonic() + 30
    while not unfinished_uploads(server, prefix):
        assert time.monotonic() < deadline, "no upload began"
    going.send_signal(signal.SIGKILL)
    going.wait()


def test_the_policies_suffice_and_do_not_reach_beyond_their_prefix(minio_server, run, tmp_path):
    may_export = sts(minio_server, policy("s3-export.json", "whole"))
    killed_within_its_large_file(minio_server, may_export, run, "whole")
    (run / "step-1/weights").write_bytes(os.urandom(LARGE))
    assert export(may_export, run, "whole").returncode == 0
    (run / "step-1/state").write_bytes(b"second")
    assert export(may_export, run, "whole").returncode == 0
    assert unfinished_uploads(minio_server, "whole") == 0
    assert export(may_export, run, "whole-not").returncode == 4

    may_read = sts(minio_server, policy("s3-source.json", "whole"))
    done = cistern(may_read, "hydrate", f"s3://{BUCKET}/whole/", tmp_path / "copy")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy/step-1/state").read_bytes() == b"second"
    assert cistern(may_read, "ls", f"s3://{BUCKET}/").returncode == 4
    (run / "step-1/state").write_bytes(b"third")
    assert export(may_read, run, "whole", "--conflict", "overwrite").returncode != 0


@pytest.mark.parametrize("missing", sorted(actions("s3-source.json")))
def test_a_source_needs_each_right(minio_server, run, tmp_path, missing):
    assert export(environment(minio_server), run, missing.replace(":", "-")).returncode == 0
    done = cistern(sts(minio_server, policy("s3-source.json", missing.replace(":", "-"), missing)), "hydrate", f"s3://{BUCKET}/{missing.replace(chr(58), chr(45))}/", tmp_path / "copy")
    assert done.returncode == 4
    assert f"{missing} denied" in done.stderr


@pytest.mark.parametrize("missing, marker", [("s3:PutObject", []), ("s3:GetObject", []),
                                             ("s3:DeleteObject", ["--marker", "_SUCCESS"])])
def test_an_export_names_the_right_that_it_lacks(minio_server, run, missing, marker):
    to = f"s3://{BUCKET}/{missing.split(':')[1]}/"
    env = sts(minio_server, policy("s3-export.json", missing.split(":")[1], missing))
    cistern(env, "export", run, to, *marker)
    (run / "step-1/state").write_bytes(b"second")
    done = cistern(env, "export", run, to, *marker)
    assert done.returncode != 0
    assert re.search(rf"403( AccessDenied)?: {missing} ", done.stderr), done.stderr


def doctor(env, uri, *flags):
    """{check: (result, message)} of the checks of the URI."""
    done = cistern(env, "doctor", uri, "--json", *flags)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (10 if lines[-1]["fail"] else 0), done.stderr
    return {line["check"]: (line["result"], line["message"]) for line in lines[:-1] if uri.split("://")[0] in line["message"]}


# The check that fails, and the one that cannot be tried.
CHECKS = {"s3:ListBucket": ("list", None), "s3:GetObject": ("read", None), "s3:PutObject": ("write", "abort"),
          "s3:DeleteObject": ("delete", None), "s3:AbortMultipartUpload": ("abort", None),
          "s3:ListBucketMultipartUploads": ("uploads", None)}


@pytest.mark.parametrize("missing", [None, *sorted(actions("s3-export.json"))])
def test_doctor_names_the_right_that_an_export_lacks(minio_server, missing):
    prefix = f"doctor-{missing or 'all'}".replace(":", "-")
    said = doctor(sts(minio_server, policy("s3-export.json", prefix, missing)), f"s3://{BUCKET}/{prefix}/", "--as-export")
    failed, not_tried = CHECKS.get(missing, (None, None))
    assert set(said) == {check for check, _ in CHECKS.values()}
    for check, (result, message) in said.items():
        assert result == ("fail" if check == failed else "warn" if check == not_tried else "pass"), said
    assert not failed or re.search(rf"403( AccessDenied)?: {missing} denied", said[failed][1]), said
    assert cistern(environment(minio_server), "ls", f"s3://{BUCKET}/{prefix}/").returncode == 9, "doctor left an object behind"


def ask_bucket(server, query, *words):
    return subprocess.run(["curl", "-sS", "--fail-with-body", "--aws-sigv4", f"aws:amz:{minio.REGION}:s3", "--user",
                           f"{minio.ACCESS_KEY}:{minio.SECRET_KEY}", f"{server.url}/versioned/?{query}", *words],
                          capture_output=True, text=True, check=True).stdout


def test_doctor_removes_the_versions_that_it_made_or_says_that_they_stay(minio_server):
    minio_server.make_bucket("versioned")
    ask_bucket(minio_server, "versioning=", "-X", "PUT", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-d",
               "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    versions = lambda: len(re.findall("<VersionId>", ask_bucket(minio_server, "versions=")))  # noqa: E731
    said = doctor(environment(minio_server), "s3://versioned/run/", "--as-export")
    assert "versions" not in said and versions() == 0, said
    may_export = json.loads(json.dumps(policy("s3-export.json", "run")).replace(BUCKET, "versioned"))
    said = doctor(sts(minio_server, may_export), "s3://versioned/run/", "--as-export")
    assert versions() >= 2 and said["versions"][0] == "warn", said
    assert f"{versions()} versions" in said["versions"][1] and "lifecycle" in said["versions"][1], said


@pytest.mark.parametrize("missing", [None, *sorted(actions("s3-source.json"))])
def test_doctor_names_the_right_that_a_source_lacks(minio_server, run, missing):
    prefix = f"doctor-source-{missing or 'all'}".replace(":", "-")
    uri = f"s3://{BUCKET}/{prefix}/"
    assert export(environment(minio_server), run, prefix).returncode == 0
    env = sts(minio_server, policy("s3-source.json", prefix, missing))
    said = {check: result for check, (result, _) in doctor(env, uri, "--as-source").items()}
    assert said == {None: {"list": "pass", "read": "pass"}, "s3:ListBucket": {"list": "fail", "read": "warn"},
                    "s3:GetObject": {"list": "pass", "read": "fail"}}[missing]
    assert not missing or any(f"{missing} denied" in message for _, message in doctor(env, uri).values())
    said = doctor(env, f"{uri}step-1/state")
    assert [said["read"][0]] == ["fail" if missing == "s3:GetObject" else "pass"], said


def test_without_the_right_to_abort_a_killed_export_leaves_its_upload_behind(minio_server, run):
    env = sts(minio_server, policy("s3-export.json", "abort", "s3:AbortMultipartUpload"))
    killed_within_its_large_file(minio_server, env, run, "abort")
    (run / "step-1/weights").write_bytes(os.urandom(LARGE))
    assert export(env, run, "abort").returncode == 0
    assert unfinished_uploads(minio_server, "abort") == 1


def named_in_messages(backend, pattern):
    """{operation: the permissions that its message names}"""
    text = (TOP / f"src/store/{backend}/backend.c").read_text()
    return {op: set(re.findall(pattern, words)) for op, words in re.findall(r"\[STORE_OP_(\w+)\] = \"([^\"]*)\"", text)}


def test_the_rights_are_those_that_messages_name():
    s3 = named_in_messages("s3", r"s3:\w+")
    assert actions("s3-source.json") == s3["GET"] | s3["LIST"]
    assert actions("s3-export.json") == set().union(*s3.values())
    gcs = named_in_messages("gcs", r"storage\.objects\.\w+")
    role = {kind: set(yaml.safe_load((FOLDER / f"gcs-{kind}.yaml").read_text())["includedPermissions"])
            for kind in ("source", "export")}
    assert role["source"] == gcs["GET"] | gcs["LIST"]
    assert role["export"] == set().union(*gcs.values())


@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_terraform_reads_the_same_files(cloud):
    folder = FOLDER / f"terraform-{cloud}"
    with open(folder / "main.tf") as text:
        module = hcl2.load(text)
    declared = {name.strip('"') for v in module["variable"] for name in v}
    reserved = {"source", "version", "providers", "count", "for_each", "lifecycle", "depends_on", "locals"}
    assert declared and not declared & reserved
    text = (folder / "main.tf").read_text()
    assert set(re.findall(r"\bvar\.(\w+)", text)) == declared
    files = re.findall(r'file\("\$\{path\.module\}/([^"]+)"\)', text)
    assert len(files) == 2 and all((folder / f).is_file() for f in files)


def test_the_eks_example_names_one_account_and_its_role_everywhere():
    example = TOP / "deploy/examples/eks-instance-store"
    account, source = yaml.safe_load_all((example / "manifests/source.yaml").read_text())
    role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    subject = f"system:serviceaccount:default:{account['metadata']['name']}"

    def statement(name):
        [one] = json.loads((example / f"iam/{name}.json").read_text())["Statement"]
        return one

    assert source["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert yaml.safe_load((example / "values.yaml").read_text())["identity"]["namespaces"] == ["default"]
    assert [v for k, v in statement("irsa-trust")["Condition"]["StringEquals"].items() if k.endswith(":sub")] == [subject]
    assert statement("pod-identity-trust")["Condition"] == {"StringEquals": {"sts:ExternalId": subject}}
    assert statement("controller-policy")["Resource"] == role
    assert statement("pod-identity-trust")["Principal"]["AWS"] in (TOP / "docs/eks.md").read_text()
    assert statement("controller-trust")["Principal"]["Service"] == "pods.eks.amazonaws.com"
