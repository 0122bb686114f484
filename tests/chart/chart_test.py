# SPDX-License-Identifier: Apache-2.0
"""The rendered chart is valid for the API server and grants least privilege. A misspelled value is refused."""

import concurrent.futures
import filecmp
import json
import os
import pathlib
import re
import subprocess
import sys
from fnmatch import fnmatchcase

import pytest
import yaml

from chart.lib import CHART, NAMESPACE, expressions, helm, kubeconform, of_kind, panels, render, the, write_schemas
from paths import TOP

VALUES = sorted((pathlib.Path(__file__).parent / "values").glob("*.yaml"))
OF_OTHERS = ("CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule", "VolumePopulator")
NAMES = [v.stem for v in VALUES]


@pytest.fixture(scope="module")
def rendered():
    return {v.stem: render(v) for v in VALUES}


@pytest.mark.parametrize("values", VALUES, ids=NAMES)
def test_rendered_manifests_are_valid_without_unknown_fields(values, tmp_path):
    objects = render(values)
    write_schemas(tmp_path, {o["kind"] for o in objects})
    done = kubeconform(tmp_path, helm(values).stdout, OF_OTHERS)
    assert done.returncode == 0, done.stdout
    broken = helm(values).stdout.replace("readOnlyRootFilesystem", "readonlyRootFilesystem", 1)
    assert kubeconform(tmp_path, broken, OF_OTHERS).returncode == 1, "a field of a wrong name passes"


@pytest.mark.parametrize("values, said", [
    ({"colour": "red"}, "colour"),
    ({"node": {"hostNetwork": True}}, "hostNetwork"),
    ({"keeper": {"resources": {"limits": {"memory": "1Gi"}}}}, "limits"),
    ({"metrics": {"port": 80}}, "minimum"),
    ({"pools": []}, "minItems"),
    ({"pools": [{"name": "a", "type": "dir", "path": "mnt", "reservePercent": 5}]}, "pattern"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a,b", "reservePercent": 5}]}, "pattern"),
    ({"pools": [{"name": "A", "type": "dir", "path": "/mnt", "reservePercent": 5}]}, "pattern"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt", "reservePercent": 5, "size": 1}]}, "size"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5}, {"name": "a", "type": "dir", "path": "/mnt/b", "reservePercent": 5}]},
     "two of the name 'a'"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5}, {"name": "b", "type": "dir", "path": "/mnt/b", "reservePercent": 6}]},
     "another reservePercent"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5},
                {"name": "b", "type": "dir", "path": "/mnt/b", "reservePercent": 5, "nodeSelector": {"disk": "b"}}]},
     "every node of pool 'b' is one of pool 'a' too"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5, "nodeSelector": {"disk": "a", "gpu": "x"}},
                {"name": "b", "type": "dir", "path": "/mnt/b", "reservePercent": 5, "nodeSelector": {"disk": "a"}}]},
     "every node of pool 'a' is one of pool 'b' too"),
    ({"pools": [{"name": "a", "type": "nvme-raid0", "path": "/mnt/a", "reservePercent": 5}]}, "give devices.models"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5, "wipe": ["S1"]}]}, "is of type dir: devices"),
    ({"pools": [{"name": "a", "type": "disk", "path": "/mnt/a", "reservePercent": 5}]}, "'a' is one disk: give device"),
    ({"pools": [{"name": "a", "type": "disk", "path": "/mnt/a", "reservePercent": 5, "device": "sdb"}]}, "pattern"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5, "device": "/dev/sdb"}]}, "device is of the type disk"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5, "requireMount": False, "ephemeral": True}]}, "needs requireMount"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5, "requireMount": "no"}]}, "boolean"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/a", "reservePercent": 5, "requireMount": False}]}, "at the top of the node"),
    ({"pools": [{"name": "a", "type": "dir", "path": "/mnt/a", "reservePercent": 5}, {"name": "b", "type": "dir", "path": "/mnt/a", "reservePercent": 5}]},
     "'a' and 'b' have the same nodes and the same path"),
    ({"storageClasses": [{"name": "c", "parameters": {"pool": "nvme"}}]}, "'c' has volumes in pool 'nvme', and pools has default"),
    ({"identity.gke": {"project": "acme"}}, "set project and identityProvider, or none of them"),
    ({"identity.gke": {"project": "acme", "identityProvider": "main"}}, "'main' is not https://container.googleapis.com/v1/projects"),
    ({"endpoints": {"allowAddresses": ["10.0.0.5/99"]}}, "/endpoints/allowAddresses/0"),
    ({"endpoints": {"denyAddresses": ["fd00::/129"]}}, "/endpoints/denyAddresses/0"),
    ({"endpoints": {"trusted": ["minio:9000"]}}, "/endpoints/trusted/0"),
    ({"identity": {"namespaces": "train"}}, "got string, want array"),
    ({"cleanup": {"nodeGoneGrace": "ten"}}, "/cleanup/nodeGoneGrace"),
    ({"storageClasses": [{"name": "c", "parameters": {"hydratoin": "eager"}}]}, "hydratoin"),
    ({"storageClasses": [{"name": "c", "parameters": {"hydration": "eagerly"}}]}, "hydration"),
    ({"sidecars": {"attacher": {}}}, "attacher"),
    ({"controller": {"replicaCount": 0}}, "minimum"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
])
def test_values_that_are_wrong_are_refused_and_named(values, said):
    done = helm(values, check=False)
    assert done.returncode != 0
    assert said.lower() in done.stderr.lower(), done.stderr


def test_every_default_is_in_the_schema_and_every_object_of_it_is_closed():
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = []

    def walk(node, path):
        if node.get("type") == "object" and node.get("additionalProperties") is not False and \
                not isinstance(node.get("additionalProperties"), dict):
            free.append(path)
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        if isinstance(node.get("items"), dict):
            walk(node["items"], f"{path}[]")

    walk(schema, "")
    # Kubernetes checks these itself; `.global` belongs to helm.
    assert free == [".global", ".node.tolerations[]", ".node.affinity", ".controller.tolerations[]"]
    assert set(yaml.safe_load((CHART / "values.yaml").read_text())) == set(schema["properties"]) - {"global"}


def fields_without_description(schema, path):
    """Paths of a schema's fields that have none, below `path`."""
    for name, field in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata") and not field.get("description"):
            yield f"{path}.{name}"
        yield from fields_without_description(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from fields_without_description(schema["items"], path + "[]")


def test_fields_without_description_are_found():
    schema = {"properties": {"good": {"description": "A field."}, "bad": {"type": "string"},
                             "list": {"description": "A list.", "items": {"properties": {"bad": {"type": "string"}}}}}}
    assert list(fields_without_description(schema, "")) == [".bad", ".list[].bad"]


@pytest.mark.parametrize("name", ["bucketsources", "cisternpools", "cisternvolumes"])
def test_every_field_of_a_crd_has_a_description(rendered, name):
    crd = the(rendered["defaults"], "CustomResourceDefinition", f"{name}.cistern.io")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"] and not list(fields_without_description(schema, ""))


def test_every_pattern_of_a_bucket_names_the_schemes_of_all_stores():
    stores = re.findall(r'^STORE\(\w+, "(\w+)"(.*)\)$', (TOP / "src/util/stores.def").read_text(), re.M)
    buckets = {scheme for scheme, rest in stores if "is_path" not in rest}
    files = [CHART / "values.schema.json", *sorted((CHART / "templates/crds").glob("*.yaml"))]
    patterns = [(f.name, named) for f in files for named in re.findall(r"\^\(([a-z0-9|]+)\)://", f.read_text())]
    assert len(patterns) >= 4 and {name for name, _ in patterns} >= {"values.schema.json", "bucketsource.yaml"}
    for name, named in patterns:
        assert set(named.split("|")) == buckets, name


def test_every_value_of_the_chart_has_a_description():
    assert not list(fields_without_description(json.loads((CHART / "values.schema.json").read_text()), ""))


def rules(objects, kind, name):
    found = set()
    for rule in the(objects, kind, name)["rules"]:
        names = tuple(rule.get("resourceNames", ()))
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    found.add((group, resource, verb, names))
    return found


def test_a_node_may_read_orders_and_report_and_nothing_else(rendered):
    assert rules(rendered["everything"], "ClusterRole", "cistern-node") == {
        *(("cistern.io", "cisternvolumes", verb, ()) for verb in ("get", "list", "watch")),
        *(("cistern.io", "cisternpools", verb, ()) for verb in ("get", "list", "watch", "create")),
        ("cistern.io", "cisternvolumes/status", "patch", ()), ("cistern.io", "cisternpools/status", "patch", ()),
        ("", "events", "create", ()), ("", "events", "patch", ())}


def test_keeper_and_jobs_are_bound_to_no_role_and_get_no_token(rendered):
    objects = rendered["everything"]
    bound = {s["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for b in of_kind(objects, kind) for s in b["subjects"]}
    assert bound == {"cistern-controller", "cistern-node"}
    for name in ("cistern-keeper", "cistern-job"):
        assert the(objects, "ServiceAccount", name)["automountServiceAccountToken"] is False
    for keeper in [d for d in of_kind(objects, "DaemonSet") if "keeper" in d["metadata"]["name"]]:
        assert keeper["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_controller_reads_secrets_and_mints_tokens_only_where_a_namespace_says_so(rendered):
    objects = rendered["everything"]
    everywhere = rules(objects, "ClusterRole", "cistern-controller")
    assert not [r for r in everywhere if r[1] in ("secrets", "serviceaccounts/token", "jobs", "configmaps")]
    assert [r[2] for r in everywhere if r[1] == "pods"] == ["list"]  # for events on the pods of a claim
    assert ("", "serviceaccounts", "get", ()) in everywhere and ("", "serviceaccounts", "list", ()) not in everywhere
    at_home = rules(objects, "Role", "cistern-controller") if len(of_kind(objects, "Role", "cistern-controller")) == 1 else \
        set().union(*(rules([o], "Role", "cistern-controller") for o in of_kind(objects, "Role", "cistern-controller")
                      if o["metadata"]["namespace"] == NAMESPACE))
    assert {r for r in at_home if r[1] == "secrets"} == {
        ("", "secrets", "create", ()), *(("", "secrets", verb, ("cistern-broker-tls",)) for verb in ("get", "update", "patch"))}
    bindings = [b for b in of_kind(objects, "RoleBinding") if b["roleRef"]["name"] == "cistern-credentials"]
    assert {b["metadata"]["namespace"] for b in bindings} == {"train", "serve"}
    assert not [b for b in of_kind(objects, "ClusterRoleBinding") if b["roleRef"]["name"] == "cistern-credentials"]


def test_a_hook_frees_claims_before_the_release_is_deleted(rendered):
    objects = rendered["defaults"]
    job = the(objects, "Job", "cistern-uninstall")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] + container["args"] == ["cisternd", "--role=uninstall", f"--namespace={NAMESPACE}"]
    assert rules(objects, "Role", "cistern-uninstall") == {
        ("apps", "deployments/scale", "patch", ("cistern-controller",)), ("", "secrets", "delete", ("cistern-broker-tls",)),
        ("", "configmaps", "delete", ("cistern-broker-ca",))}
    for kind in ("Role", "RoleBinding"):  # for the time of the hook alone
        assert the(objects, kind, "cistern-uninstall")["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"


@pytest.mark.parametrize("name", NAMES)
def test_roles_have_no_wildcard_impersonate_or_escalate(rendered, name):
    for kind in ("Role", "ClusterRole"):
        for role in of_kind(rendered[name], kind):
            for rule in role["rules"]:
                words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
                assert not words & {"*", "impersonate", "escalate", "bind", "roles", "rolebindings", "nodes/proxy",
                                    "pods/exec", "deletecollection"} or role["metadata"]["name"] == "cistern-editor", rule


def pods(objects):
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] in ("Deployment", "DaemonSet")}


@pytest.mark.parametrize("name", NAMES)
def test_no_pod_is_in_the_hosts_network_or_takes_a_port_of_it(rendered, name):
    for pod in pods(rendered[name]).values():
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in pod["containers"]:
            assert not [p for p in container.get("ports", []) if "hostPort" in p]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_values_of_jobs_and_identities_become_flags_of_the_controller(rendered):
    def arguments(name):
        return set(pods(rendered[name])["cistern-controller"]["containers"][0]["args"])

    assert arguments("everything") - arguments("defaults") == {
        "--image=registry.example/cistern:v9", "--image-pull-policy=Always", "--image-pull-secret=pull", "--job-cpu=2",
        "--job-memory=1Gi", "--job-memory-limit=2Gi", "--job-ttl-seconds=60", "--job-backoff-limit=2",
        "--hydrate-max-concurrent-per-node=6", "--export-max-concurrent=7", "--export-max-concurrent-per-node=2", "--drain-hold-failing=48h", "--drain-hold-volumes=5",
        "--node-gone-grace=1h", "--tombstone-age=24h", "--sweep-interval=5m", "--cross-namespace", "--allow-driver-identity", "--no-require-opt-in",
        "--token-audience=//iam.googleapis.com/projects/1", "--export-secret=last=s3://results/",
        "--export-secret=last=https://minio.example:9000=s3://more/", "--trusted-endpoint=https://minio.example:9000",
        "--allow-address=10.1.2.3/32", "--deny-address=10.0.0.0/8", "--gke-project=acme",
        "--gke-identity-provider=https://container.googleapis.com/v1/x"}
    granted = [r for r in rules(rendered["everything"], "ClusterRole", "cistern-controller") if r[1] == "referencegrants"]
    assert {r[2] for r in granted} == {"list", "watch"}
    assert not [r for r in rules(rendered["defaults"], "ClusterRole", "cistern-controller") if r[1] == "referencegrants"]


def test_only_the_nodes_own_pods_are_root(rendered):
    for name, pod in pods(rendered["defaults"]).items():
        privileged = [c["securityContext"].get("privileged", False) for c in pod["containers"]]
        if name == "cistern-controller":
            assert pod["securityContext"]["runAsNonRoot"] is True and not any(privileged)
            assert all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} for c in pod["containers"])
        else:
            assert privileged == [True]


def test_the_driver_overlaps_in_a_roll_and_the_keeper_waits_to_be_deleted(rendered):
    objects = rendered["defaults"]
    assert the(objects, "DaemonSet", "cistern-node")["spec"]["updateStrategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    keeper = the(objects, "DaemonSet", "cistern-keeper")
    assert keeper["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "limits" not in keeper["spec"]["template"]["spec"]["containers"][0]["resources"]


def test_every_container_that_stays_has_a_liveness_probe(rendered):
    probes = {container["name"]: container.get("livenessProbe") for o in rendered["everything"] if o["kind"] in ("DaemonSet", "Deployment")
              for container in o["spec"]["template"]["spec"]["containers"]}
    assert {"cisternd", "keeper", "csi-provisioner", "csi-resizer"} <= set(probes) and all(probes.values()), probes
    keeper = probes["keeper"]
    assert keeper["exec"]["command"] == ["cistern-keeper", "--probe", "--socket=/run/cistern/keeper.sock"]
    assert keeper["timeoutSeconds"] > 10, "a probe of the keeper waits 10 s"
    assert keeper["periodSeconds"] * keeper["failureThreshold"] >= 180, "a driver that restarts needs the time to connect"


def test_probe_of_a_sidecar_asks_its_own_port(rendered):
    containers = pods(rendered["defaults"])["cistern-controller"]["containers"]
    asked = {c["name"]: c["livenessProbe"]["httpGet"] for c in containers if c["name"] != "cisternd"}
    assert len({get["port"] for get in asked.values()}) == 2
    for c in containers:
        if c["name"] in asked:
            assert asked[c["name"]]["path"] == "/healthz/leader-election"
            assert f"--http-endpoint=:{asked[c['name']]['port']}" in c["args"]


@pytest.mark.parametrize("arg", ["--metrics-address=:8080", "--http-endpoint=:8080"])
def test_sidecar_that_listens_where_an_administrator_says_has_no_second_address(arg):
    sidecars = {name: {"additionalArgs": [arg]} for name in ("provisioner", "resizer")}
    for c in pods(render({"sidecars": sidecars}))["cistern-controller"]["containers"]:
        if c["name"] != "cisternd":
            assert "livenessProbe" not in c and "--http-endpoint=:98" not in str(c["args"]) and arg in c["args"]


def test_pools_of_the_same_nodes_share_a_daemonset_and_others_have_their_own(rendered):
    objects = rendered["everything"]
    names = {o["metadata"]["name"] for o in of_kind(objects, "DaemonSet")}
    assert names == {f"cistern-{part}{group}" for part in ("node", "keeper") for group in ("", "-nvme", "-one", "-edge")}
    first = pods(objects)["cistern-node"]
    assert [a for a in first["containers"][0]["args"] if a.startswith("--pool=")] == [
        "--pool=fast=/mnt/fast,require-mount", "--pool=slow=/mnt/slow"]
    assert first["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "gpu", "disk": "fast"}
    assert pods(objects)["cistern-node-edge"]["nodeSelector"]["disk"] == "edge"
    assert [a for a in pods(objects)["cistern-node-one"]["containers"][0]["args"] if a.startswith(("--pool", "--disks"))] == [
        "--pool=one=/mnt/one,require-mount", "--disks=one=device:/dev/disk/by-partlabel/cistern"]


def pool_of(pod, name):
    """Its hostPath, and how mounts of the host reach the container."""
    mounts = {m["name"]: m for m in pod["containers"][0]["volumeMounts"]}
    volumes = {v["name"]: v for v in pod["volumes"]}
    return volumes[f"pool-{name}"]["hostPath"], mounts[f"pool-{name}"].get("mountPropagation")


def test_a_pool_requires_a_disk_of_its_own_unless_a_plain_directory_is_meant_which_must_exist(rendered):
    assert "--pool=default=/mnt/disks/cistern,require-mount" in pods(rendered["defaults"])["cistern-node"]["containers"][0]["args"]
    for name, propagation in (("cistern-node", "Bidirectional"), ("cistern-keeper", "HostToContainer")):
        path, reaches = pool_of(pods(rendered["defaults"])[name], "default")
        assert path == {"path": "/mnt/disks/cistern", "type": "DirectoryOrCreate"}, "the pod serves before the disk is mounted"
        assert reaches == propagation, "and sees one that is mounted late"
        path, _ = pool_of(pods(rendered["everything"])[name], "slow")
        assert path == {"path": "/mnt", "type": "DirectoryOrCreate"}, "a directory that is missing does not stop the pod"


def test_only_chosen_nodes_are_touched_by_default_and_with_any_taint(rendered):
    for name, component in pods(rendered["defaults"]).items():
        if name in ("cistern-node", "cistern-keeper"):
            assert component["nodeSelector"] == {"kubernetes.io/os": "linux", "cistern.io/pool": "default"}
            assert component["tolerations"] == [{"operator": "Exists"}]
    assert pods(rendered["everything"])["cistern-node"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_the_record_of_pools_survives_a_reboot(rendered):
    pod = pods(rendered["defaults"])["cistern-node"]
    assert {"name": "memory", "mountPath": "/var/lib/cistern"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "memory", "hostPath": {"path": "/var/lib/cistern", "type": "DirectoryOrCreate"}} in pod["volumes"]


def test_an_ephemeral_pool_says_so_to_the_node(rendered):
    args = pods(rendered["everything"])["cistern-node-nvme"]["containers"][0]["args"]
    assert "--pool=nvme=/mnt/nvme,require-mount,ephemeral" in args


def test_a_pool_of_disks_passes_them_to_the_node_and_its_directory_is_created(rendered):
    pod = pods(rendered["everything"])["cistern-node-nvme"]
    assert [a for a in pod["containers"][0]["args"] if a.startswith("--disks")] == [
        "--disks=nvme=model:nvme_card*", "--disks=nvme=path:/dev/nvme1n1", "--disks=nvme=wipe:S 1"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    assert volumes["pool-nvme"]["hostPath"] == {"path": "/mnt/nvme", "type": "DirectoryOrCreate"}


def test_the_driver_is_what_the_documents_say(rendered):
    spec = the(rendered["defaults"], "CSIDriver", "csi.cistern.io")["spec"]
    assert spec == {"attachRequired": False, "podInfoOnMount": True, "storageCapacity": True, "fsGroupPolicy": "None",
                    "seLinuxMount": True, "requiresRepublish": False, "volumeLifecycleModes": ["Persistent"]}


def test_disabled_parts_are_not_rendered(rendered):
    kinds = {o["kind"] for o in rendered["least"]}
    assert not kinds & {"CustomResourceDefinition", "PodDisruptionBudget", "NetworkPolicy", "StorageClass", "ServiceMonitor",
                        "VolumePopulator", "Namespace", "Pod", "PersistentVolumeClaim"}


def test_the_namespace_admits_privileged_pods(rendered):
    labels = the(rendered["everything"], "Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_crds_are_kept_when_the_chart_goes_unless_asked_otherwise(rendered):
    crds = of_kind(rendered["defaults"], "CustomResourceDefinition")
    assert len(crds) == 3
    for crd in crds:
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    for crd in of_kind(render({"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] != "keep"


def test_dashboard_and_alerts_ask_only_for_metrics_that_the_documents_have(rendered):
    objects = rendered["everything"]
    rule = the(objects, "PrometheusRule", "cistern")
    alerts = rule["spec"]["groups"][0]["rules"]
    runbooks = re.findall(r"^## (Cistern\w+)$", (TOP / "docs/alerts.md").read_text(), re.M)
    assert sorted(runbooks) == sorted(a["alert"] for a in alerts)
    for alert in alerts:
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["runbook_url"] == f"docs/alerts.md#{alert['alert'].lower()}"
        if "cistern_claim_failing" in alert["expr"]:
            assert "by (namespace, claim)" in alert["expr"]
    dashboard = json.loads(the(objects, "ConfigMap", "cistern-dashboard")["data"]["cistern.json"])
    asked = " ".join(a["expr"] for a in alerts) + " ".join(expressions(dashboard))
    assert not [p["title"] for p in panels(dashboard) if p["type"] != "row" and not p.get("description")]
    found = set(re.findall(r"\b(?:cistern|csi_plugin)_[a-z_]+", asked))
    known = documented_metrics()
    histograms = {name + suffix for name in known for suffix in ("_bucket", "_sum", "_count")}
    assert found and found <= known | histograms, found - known - histograms


def documented_metrics():
    return set(re.findall(r"^\| `([a-z_]+)` \|", (TOP / "docs/reference/metrics.md").read_text(), re.M))


def test_the_docs_list_every_metric_and_no_other():
    """A string in the sources that has a metric's prefix is a metric."""
    sources = [p.read_text() for top in ("src", "cmd") for p in (TOP / top).rglob("*.c")]
    named = {name for text in sources for name in re.findall(r'"((?:cistern|csi_plugin|volume_populator)_[a-z_]+)"', text)}
    assert named == documented_metrics()


# Words of Kubernetes in the same sources.
OF_KUBERNETES = {"BucketSource", "CisternPool", "CisternVolume", "ContainerCreating", "DaemonSet", "DisruptionTarget",
                 "FallbackToLogsOnError", "HostToContainer", "PersistentVolume", "PersistentVolumeClaim", "PodInitializing", "RuntimeDefault", "WaitForFirstConsumer"}
# Codes of gRPC in messages of the provisioner.
OF_GRPC = {"ResourceExhausted", "DeadlineExceeded", "NotFound"}


def test_the_docs_list_every_event_and_reason_and_no_other():
    words = r"([A-Z][a-z]+(?:[A-Z][a-z]+)+)"
    sources = [p.read_text() for room in ("api", "control", "node", "populate") for p in (TOP / "src" / room).glob("*.[ch]")]
    page = set(re.findall(f"`{words}`", (TOP / "docs/reference/events.md").read_text()))
    assert {word for text in sources for word in re.findall(f'"{words}"', text)} - OF_KUBERNETES - OF_GRPC == page
    quoted = {reason for p in (TOP / "docs").glob("*.md") for reason in re.findall(r"(?m)^\s*(?:Normal|Warning) +(\w+)", p.read_text())}
    assert quoted - page <= {"FailedScheduling", "FailedMount"} and len(quoted) > 5


def test_deploy_kubernetes_is_what_the_chart_renders(tmp_path):
    subprocess.run([TOP / "deploy/kubernetes/generate", tmp_path / "made.yaml"], check=True)
    assert filecmp.cmp(tmp_path / "made.yaml", TOP / "deploy/kubernetes/cistern.yaml", shallow=False), \
        "run deploy/kubernetes/generate"
    assert "helm.sh/hook" not in (tmp_path / "made.yaml").read_text()


@pytest.mark.parametrize("name", ["resources", "values", "storageclass", "metrics", "errors"])
def test_a_reference_page_is_what_its_source_says(tmp_path, name):
    subprocess.run([sys.executable, TOP / "docs/reference/generate", tmp_path], check=True)
    assert (tmp_path / f"{name}.md").read_text() == (TOP / f"docs/reference/{name}.md").read_text(), "run docs/reference/generate"


SAMPLES = {"pullPolicy": "Always", "imagePullSecrets": [{"name": "x"}], "pools": [{"name": "x", "type": "dir", "path": "/x", "reservePercent": 5, "nodeSelector": {}}],
           "storageClasses": [], "logLevel": "warn", "volumePopulator": "always", "type": "OnDelete", "tolerations": [{"key": "x", "operator": "Exists"}],
           "nodeGoneGrace": "3h", "tombstoneAge": "3h", "sweepInterval": "3h", "failingFor": "3h", "cpu": "3", "memory": "3Gi",
           "exportSecrets": [{"name": "x", "prefixes": ["s3://x/"]}], "trusted": ["https://x"], "allowAddresses": ["10.0.0.1"],
           "denyAddresses": ["10.0.0.0/8"], "kubeletPath": "/x", "additionalArgs": ["--x"], "nodeSelector": {"x": "y"}, "affinity": {"nodeAffinity": {}}, "customLabels": {"x": "y"}}


def leaves(values, path=()):
    """Each value that can be set by itself, and another that it may have."""
    for key, value in values.items():
        if key in SAMPLES:
            yield (*path, key), SAMPLES[key]
        elif isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else \
                ["x"] if isinstance(value, list) else "x"


def test_every_value_of_the_chart_changes_something(rendered):
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    provider = "https://container.googleapis.com/v1/projects/acme/locations/x/clusters/"
    asked = {".".join(path): other for path, other in leaves(values)} | {"identity.gke.identityProvider": f"{provider}b"}
    alerts, gke = {"metrics.alerts": True}, {"identity.gke.project": "acme", "identity.gke.identityProvider": f"{provider}a"}
    needs = {"metrics.enabled": alerts, "metrics.runbookURL": alerts, "pools": {"storageClasses": []},
             "identity.gke.project": gke, "identity.gke.identityProvider": gke}

    without = helm({}).stdout

    def acts(key):
        base = needs.get(key, {})
        done = helm({**base, key: asked[key]}, check=False)
        return done.stdout != (helm(base).stdout if base else without), done.stderr

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = dict(zip(asked, pool.map(acts, asked)))
    assert {key: said for key, (acted, said) in done.items() if not acted or said} == {}


def test_the_gke_example_selects_local_ssds_and_no_persistent_disk():
    """Google's names: the boot disk of an A3 machine is an NVMe disk, too."""
    pool, = yaml.safe_load((TOP / "deploy/examples/gke-a3/values.yaml").read_text())["pools"]
    names = ["nvme_card", "nvme_card0", "nvme_card15", "nvme_card-pd"]
    assert [n for n in names if any(fnmatchcase(n, model) for model in pool["devices"]["models"])] == names[:3]
