# SPDX-License-Identifier: Apache-2.0
"""The commands and manifests of the pages, as a reader would paste them: lint/pages.py says which are run."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time

import pytest
import yaml

from chart.lib import CHART, HELM, helm, render
from integration.lib.buckets import clean_environment
from lint.pages import blocks_of, is_for_users
from paths import BUILD, TOP
from servers import minio
from servers.fake_gcs import FakeGcs
from servers.kubernetes import BIN, Kubernetes
from servers.prometheus import promtool

HERE = TOP / "tests/integration/pages"
TRAINING = TOP / "deploy/examples/training/manifests"


PAGES = [p for p in ("README.md", *(str(q.relative_to(TOP)) for q in sorted((TOP / "docs").rglob("*.md")))) if is_for_users(p)]
BLOCKS = [block for page in PAGES for block in blocks_of(TOP, page)]


def of(*kinds):
    return [b for b in BLOCKS if b.kind in kinds]


def pages_with(kind):
    return list(dict.fromkeys(b.page for b in of(kind)))


def test_the_pages_have_commands_of_each_kind():
    assert len(of("sh")) > 5 and len(of("sh cluster")) > 25 and len(of("yaml source")) > 1


@pytest.mark.parametrize("block", of("sh cloud"), ids=lambda b: b.place)
def test_commands_for_a_cloud_parse_and_name_files_that_exist(block, tmp_path):
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    for word in shlex.split(block.text.replace("\\\n", " "), comments=True):
        path = word.removeprefix("file://").removeprefix("--file=")
        if re.match(r"(deploy|charts|docs|tests)/", path):
            assert (TOP / path).exists(), f"{block.place}: no file '{path}'"


# ---- the command line


@pytest.fixture(scope="module")
def clouds():
    """An S3 server and a GCS server with every bucket that the pages name."""
    with minio.Minio() as s3, FakeGcs() as gcs:
        for scheme, server in (("s3", s3), ("gs", gcs)):
            for bucket in sorted({m[1] for b in of("sh") for m in re.finditer(rf"{scheme}://([\w-]+)", b.text)}):
                server.make_bucket(bucket)
        env = clean_environment(PATH=f"{BUILD}/bin:{os.environ['PATH']}", AWS_ENDPOINT_URL=s3.url, AWS_ACCESS_KEY_ID=minio.ACCESS_KEY,
                                AWS_SECRET_ACCESS_KEY=minio.SECRET_KEY, AWS_REGION=minio.REGION, STORAGE_EMULATOR_HOST=gcs.url)
        yield env


def fill(env, blocks, folder):
    """An object below every prefix that a command reads, and a directory for each that it exports."""
    (folder / "seed").mkdir()
    (folder / "seed/part.bin").write_bytes(b"x" * 1000)
    for uri in sorted({m[0] for b in blocks for m in re.finditer(r"\bs3://[\w./-]+/", b.text)}):
        subprocess.run(["cistern", "export", folder / "seed", uri], env=env, check=True, capture_output=True)


@pytest.mark.parametrize("page", pages_with("sh"))
def test_commands_of_the_command_line_run(page, clouds, tmp_path_factory):
    """In a mount namespace of its own: /mnt, /run and /var/lib are directories of this test."""
    folder = tmp_path_factory.mktemp("page")
    for name in ("mnt/nvme/run-7", "run/cistern", "lib", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "mnt/nvme/run-7/weights").write_bytes(b"w" * 1000)
    blocks = [b for b in of("sh") if b.page == page]
    fill(clouds, blocks, folder)
    script = folder / "script"
    script.write_text(f"set -eu\nmount --bind {folder}/mnt /mnt\nmount --bind {folder}/run /run\n"
                      f"mount --bind {folder}/lib /var/lib\ncd {folder}/work\n" + "".join(
        f"echo '== {b.place}'\n{as_script(b.text)}" for b in blocks))
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(["unshare", "--mount", "--propagation=private", "bash", script], env=clouds, stdout=log, stderr=log,
                                 start_new_session=True)
    try:
        assert child.wait(60) == 0, (folder / "log").read_text()
    finally:
        for pid in (folder / "work").glob("*.pid"):
            end(int(pid.read_text()))


def end(pid):
    os.kill(pid, signal.SIGTERM)
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)


def as_script(text):
    """A driver is started in the background, with a free port, and ended after the page."""
    text = text.replace("--metrics 127.0.0.1:9810", "--metrics 127.0.0.1:0")
    return re.sub(r"(?m)^cisternd .*--endpoint unix://(\S+).*$",
                  r"\g<0> &\necho $! >driver.pid\nfor i in $(seq 100); do [ ! -S \1 ] || break; sleep 0.05; done", text)


# ---- the cluster


def apply_all(cluster, folder, objects):
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    cluster.apply(folder / "objects.yaml")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with Kubernetes(api_flags=["--disable-admission-plugins=ServiceAccount"]) as running:  # no controller makes accounts
        objects = [o for o in render({"namespace.create": True}) if "helm.sh/hook" not in o["metadata"].get("annotations", {})]
        first = [o for o in objects if o["kind"] in ("Namespace", "CustomResourceDefinition")]
        apply_all(running, folder, first)
        running.kubectl("wait", "--for=condition=Established", "crd", "--all")
        running.apply(HERE / "objects.yaml")  # before the policies, which let only the controller write an order
        apply_all(running, folder, [o for o in objects if o not in first])
        shutil.copy(HERE / "kubectl", folder / "kubectl")
        shutil.copy(HERE / "helm", folder / "helm")
        running.programs = folder
        yield running


def namespace_of(cluster, page):
    name = "page-" + page.removesuffix(".md").replace("/", "-").lower()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    if "kubectl apply" not in "".join(b.text for b in of("sh cluster") if b.page == page):
        cluster.kubectl("apply", "-f", TRAINING, "-n", name)
        cluster.kubectl("patch", "pvc", "dataset", "-n", name, "--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Bound"}}')
    return name


@pytest.mark.parametrize("page", pages_with("sh cluster"))
def test_commands_for_a_cluster_run(page, cluster, tmp_path):
    """In the order of the page, and in a namespace with the objects of the training example, if the page applies none."""
    name = namespace_of(cluster, page)
    script = "set -eu\n" + "".join(f"echo '== {b.place}'\n{b.text}" for b in of("sh cluster") if b.page == page)
    words = {"NODE": "node-a", "UUID": "c111a4e11797", "PV": "pv-a", "VOLUME-ID": "volume", "KEEPER": "keeper-a",
             "POD": "node-a", "CLAIM": "dataset", "NAMESPACE": name, "VOLUME": "volume-a", "POOL": "default", "NAME": "dataset"}
    script = re.sub(r"(?<![\w-])(" + "|".join(sorted(words, key=len, reverse=True)) + r")(?![\w-])", lambda m: words[m[1]], script)
    (tmp_path / "key.json").write_text("{}")
    for folder in ("deploy", "charts"):
        (tmp_path / folder).symlink_to(TOP / folder)
    env = clean_environment(PATH=f"{cluster.programs}:{os.environ['PATH']}", KUBECONFIG=cluster.kubeconfig, HOME=str(tmp_path),
                            PAGE_NAMESPACE=name, REAL_KUBECTL=str(BIN / "kubectl"), REAL_HELM=str(HELM))
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- manifests


@pytest.mark.parametrize("block", of("yaml", "yaml source", "yaml pod"), ids=lambda b: b.place)
def test_manifests_are_accepted_by_the_api_server(block, cluster, tmp_path):
    source = {"apiVersion": "cistern.io/v1alpha1", "kind": "BucketSource", "metadata": {"name": "page", "namespace": "train"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "page", "namespace": "train"}}
    if block.kind == "yaml source":
        objects = [{**source, "spec": {"uri": "s3://bucket/prefix/", **yaml.safe_load(block.text)}}]
    elif block.kind == "yaml pod":
        objects = [{**pod, "spec": {"containers": [{"name": "a", "image": "b"}], **yaml.safe_load(block.text)}}]
    else:
        objects = list(yaml.safe_load_all(block.text))
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", tmp_path / "objects.yaml")


def test_the_manifests_that_helm_prints_are_accepted_as_pasted(cluster):
    """The volume is made when a pod uses the claim: a pod is among them."""
    env = clean_environment(PATH=os.environ["PATH"], KUBECONFIG=cluster.kubeconfig)
    notes = subprocess.run([HELM, "install", "pasted", CHART, "--namespace", "cistern-system", "--dry-run=client", "--take-ownership"], env=env,
                           capture_output=True, text=True, check=True).stdout.split("\nNOTES:\n")[1]
    command = re.search(r"^kubectl apply -f - <<END\n.*?^END$", notes, re.M | re.S).group()
    done = subprocess.run(["bash", "-c", command.replace("apply", f"apply -n default --dry-run=server --validate=strict --kubeconfig {cluster.kubeconfig}", 1)],
                          env={**env, "PATH": f"{BIN}:{env['PATH']}"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split("/")[0] for line in done.stdout.splitlines()] == ["bucketsource.cistern.io", "persistentvolumeclaim", "pod"]
    printed = yaml.safe_load_all(command.partition("<<END\n")[2].removesuffix("END"))
    assert list(printed) == list(yaml.safe_load_all(readme().text)), "they fetch something that exists, as those of the README do"


def readme():
    block, = (b for b in of("yaml") if b.page == "README.md")
    return block


def test_the_manifests_of_the_readme_are_accepted_as_pasted(cluster):
    """Into the namespace default: every cluster has it."""
    block = readme()
    told = cluster.kubectl("apply", "-n", "default", "--dry-run=server", "--validate=strict", "-f", "-", stdin=block.text)
    assert [line.split("/")[0] for line in told.splitlines()] == ["bucketsource.cistern.io", "persistentvolumeclaim", "pod"]
    assert "namespace:" not in block.text


def line_of(page, start):
    line, = (line for b in of("sh cloud") if b.page == page for line in b.text.splitlines() if line.startswith(start))
    return line


def test_the_plain_manifest_is_applied_with_your_image(tmp_path):
    command = line_of("docs/bare-metal.md", "sed ")
    said = subprocess.run(["bash", "-c", command.partition(" | kubectl ")[0]], cwd=TOP, capture_output=True, text=True, check=True).stdout
    images = [c["image"] for o in yaml.safe_load_all(said) if o["kind"] in ("DaemonSet", "Deployment")
              for c in o["spec"]["template"]["spec"]["containers"]]
    assert {image.rsplit("/", 1)[0] for image in images} == {"registry.example", "registry.k8s.io/sig-storage"}
    assert "cistern-io" not in said


def test_the_plain_manifest_is_deleted_without_the_objects_of_users(cluster):
    """With the CRDs every BucketSource and CisternVolume would go, and with the namespace the claims that are being filled."""
    # Tests of mounts in this process leave the directory that it was started in.
    words = [str(TOP / word) if word.startswith("deploy/") else word
             for word in shlex.split(line_of("docs/upgrade.md", "kubectl delete -f "))[1:]]
    told = cluster.kubectl(*words, "--dry-run=server", "--ignore-not-found")
    kinds = {line.split()[0].split(".")[0] for line in told.splitlines()}
    assert {"deployment", "daemonset", "clusterrole", "csidriver", "validatingadmissionpolicy"} <= kinds, told
    assert not kinds & {"customresourcedefinition", "namespace"}, told


@pytest.mark.parametrize("block", of("yaml values"), ids=lambda b: b.place)
def test_values_are_accepted_by_the_chart(block, tmp_path):
    (tmp_path / "values.yaml").write_text(block.text)
    assert helm(tmp_path / "values.yaml", check=False).returncode == 0


@pytest.mark.parametrize("block", of("yaml prometheus"), ids=lambda b: b.place)
def test_scrape_jobs_are_accepted_by_prometheus(block, tmp_path):
    jobs = yaml.safe_load(block.text)
    for one in jobs:  # Debian's Prometheus is built without the discovery of Kubernetes
        assert one.pop("kubernetes_sd_configs", [{"role": "pod"}]) == [{"role": "pod"}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
    done = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
