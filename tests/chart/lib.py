# SPDX-License-Identifier: Apache-2.0
"""The chart, rendered; and Kubernetes' own definitions as the schemas that kubeconform reads."""

import json
import os
import pathlib
import subprocess

import yaml

from paths import TOP

CHART = TOP / "charts/cistern"
KUBERNETES = pathlib.Path(os.environ.get("CISTERN_CACHE", "/var/cache/cistern")) / "kubernetes"
HELM = KUBERNETES / "bin/helm"
NAMESPACE = "cistern-system"


def helm(*values, check=True):
    """helm template with values files (paths) or values (dicts, as JSON on the command line)."""
    arguments = [HELM, "template", "cistern", CHART, "--namespace", NAMESPACE, "--kube-version", "1.34.4"]
    for one in values:
        if isinstance(one, pathlib.Path):
            arguments += ["--values", one]
        else:
            for key, value in one.items():
                arguments += ["--set-json", f"{key}={json.dumps(value)}"]
    return subprocess.run(arguments, capture_output=True, text=True, check=check)


def render(*values):
    return [o for o in yaml.safe_load_all(helm(*values).stdout) if o]


def of_kind(objects, kind, name=None):
    return [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]


def the(objects, kind, name):
    found = of_kind(objects, kind, name)
    assert len(found) == 1, f"{kind} {name}: {len(found)} of them"
    return found[0]


def panels(dashboard):
    """Every panel; those of a collapsed row are inside it."""
    return [one for panel in dashboard["panels"] for one in (panel, *panel.get("panels", []))]


def expressions(dashboard):
    return [target["expr"] for panel in panels(dashboard) for target in panel.get("targets", [])]


def strict(schema, definitions, above=()):
    """With every $ref put in place and unknown fields refused, as the API server does with strict validation."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return {} if name in above else strict(definitions[name], definitions, (*above, name))
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    made = {k: v for k, v in schema.items() if not k.startswith("x-") and k not in ("description", "default", "format")}
    if "properties" in made:
        made["properties"] = {k: strict(v, definitions, above) for k, v in made["properties"].items()}
        made.setdefault("additionalProperties", False)
    for word in ("items", "additionalProperties"):
        if isinstance(made.get(word), dict):
            made[word] = strict(made[word], definitions, above)
    return made


def write_schemas(folder, kinds):
    definitions = json.loads(next(KUBERNETES.glob("openapi-*.json")).read_text())["definitions"]
    for definition in definitions.values():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            if gvk["kind"] in kinds:
                group = gvk["group"].split(".")[0]
                name = "-".join(filter(None, [gvk["kind"].lower(), group, gvk["version"]]))
                (folder / f"{name}.json").write_text(json.dumps(strict(definition, definitions)))


def kubeconform(folder, text, skip=()):
    location = str(folder) + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"
    return subprocess.run([KUBERNETES / "bin/kubeconform", "-strict", "-schema-location", location, "-skip", ",".join(skip),
                           "-summary"], input=text, capture_output=True, text=True)
