# SPDX-License-Identifier: Apache-2.0
"""The table of a tenant's limits (docs/design/008-access.md) against the CRDs and the sources. Each field that a tenant, a
node or a Job may write has a row. Each row has a field, and a test that exists."""

import itertools
import re

import pytest
import yaml

from paths import TOP

from .lib import render, the

PAGE = TOP / "docs/design/008-access.md"
SECTIONS = {title.split("\n")[0]: title for title in PAGE.read_text().split("\n## ")[1:]}


def section(words):
    (found,) = [text for title, text in SECTIONS.items() if title.startswith(words)]
    return found


def rows(text):
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.split("\n") if line.startswith("| ")]
    return [cells for cells in lines if cells[0].strip() != "field"]


def fields(text, pattern=r"[\w.\[\]/-]+"):
    """The names in the first column, also those behind "spec:" and the like."""
    return [name for cells in rows(text) for name in re.findall(rf"`({pattern})`", cells[0])]


def leaves(schema, path=""):
    if "items" in schema:
        inner = schema["items"]
        yield from leaves(inner, path + "[]") if inner.get("properties") else [path]
    elif schema.get("properties"):
        for name, below in schema["properties"].items():
            yield from leaves(below, f"{path}.{name}" if path else name)
    else:
        yield path


def schema_of(kind, part):
    crd = yaml.safe_load((TOP / f"charts/cistern/templates/crds/{kind}.yaml").read_text())
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]


@pytest.mark.parametrize("title, kind, parts", [
    ("BucketSource: spec", "bucketsource", ["spec"]), ("BucketSource: status", "bucketsource", ["status"]),
    ("CisternVolume", "cisternvolume", ["spec", "status"]), ("CisternPool", "cisternpool", ["spec", "status"])])
def test_each_field_of_a_crd_has_a_row_and_each_row_a_field(title, kind, parts):
    known = {leaf for part in parts for leaf in leaves(schema_of(kind, part))}
    named = {name for name in fields(section(title)) if not name.startswith("cistern.io/")}
    assert (sorted(known - named), sorted(named - known)) == ([], [])


def test_each_parameter_of_a_class_has_a_row():
    keys = set(re.findall(r'\{"(\w+)", TYPE_[^}]*is_parameter = true', (TOP / "src/spec/keys.c").read_text()))
    assert len(keys) > 5
    named = fields(section("Claims").split("Parameters of a StorageClass")[1])
    assert (sorted(keys), len(named)) == (sorted(named), len(keys))


ROOMS = ["src/kube", "src/api", "src/populate", "src/control", "src/broker", "src/node", "cmd/cisternd"]
SOURCES = "".join(path.read_text() for room in ROOMS for path in (TOP / room).glob("*.[ch]"))
NAMES = SOURCES + (TOP / "src/util/names.h").read_text()
# Of Cistern's own Jobs, or of the volume context, which the provisioner writes.
NO_TENANTS = re.compile(r"(app|node)\.kubernetes\.io/|[\w.]+/v1$|cluster-autoscaler\.|csi\.storage\.k8s\.io/|cistern\.io/"
                        r"(claim|claim-uid|drain|job|node|order|purpose|volume|pool|release|populate-target-protection)$")


def test_each_annotation_has_a_row():
    known = {f"cistern.io/{name}" for name in re.findall(r'NAME_API_GROUP "/([a-z][\w-]+)"', NAMES)}
    known |= set(re.findall(r'"((?:[a-z0-9-]+\.)+(?:io|com)/[a-z][\w-]+)"', NAMES))
    known = {name for name in known if not NO_TENANTS.match(name)}
    assert len(known) > 17
    assert sorted(known - set(fields(PAGE.read_text()))) == []


def test_each_path_of_an_object_of_kubernetes_has_a_row():
    own = {part.rstrip("[]") for kind in ("bucketsource", "cisternvolume", "cisternpool") for top in ("spec", "status")
           for leaf in leaves(schema_of(kind, top), top) for part in itertools.accumulate(leaf.split("."), "{}.{}".format)}
    read = set(re.findall(r'(?<!#include )"\??((?:metadata|spec|status|involvedObject)(?:\.[A-Za-z0-9]+)+)"', SOURCES))
    named = {name for name in fields(section("Fields of Kubernetes")) if "/" not in name}
    assert len(named) > 60
    assert (sorted(read - own - named), sorted(named - read)) == ([], [])


def test_each_field_of_a_request_to_the_broker_has_a_row():
    (known,) = re.findall(r"str_is_any\(json_iter_key\(i\), ([^)]*)\)", (TOP / "src/broker/messages.c").read_text())
    requests = "".join(cells[0] for cells in rows(section("A Job")) if cells[0].startswith(" request"))
    assert sorted(re.findall(r'"(\w+)"', known)) == sorted(re.findall(r"`(\w+)`", requests))


def test_each_file_that_a_job_writes_has_a_row():
    formats = [cells for cells in rows((TOP / "docs/design/009-formats.md").read_text()) if "`cistern " in cells[1]]
    known = {re.sub(r"export/|-\*\.log", "", name) for cells in formats for name in re.findall(r"`([^`]+)`", cells[0])}
    assert len(known) > 6
    results = "".join(cells[0] for cells in rows(section("A Job")) if cells[0].startswith(" results"))
    assert sorted(known - set(re.findall(r"`([\w.]+)`", results))) == []


def test_each_variable_of_a_job_has_a_row():
    known = set(re.findall(r'add_env\(env, "(\w+)"', (TOP / "src/populate/job.c").read_text()))
    assert len(known) > 3
    assert sorted(known) == sorted(name for name in fields(section("A Job")) if name.startswith("CISTERN_"))


def named_tests(name):
    found = [path for path in TOP.glob("tests/**/*_test.py") if str(path).endswith(f"/{name}")]
    return [test for path in found for test in re.findall(r"^def (test_\w+)", path.read_text(), re.M)]


@pytest.mark.parametrize("row", [cells for text in SECTIONS.values() for cells in rows(text)], ids=lambda cells: cells[0].strip()[:60])
def test_each_row_names_tests_that_exist(row):
    assert len(row) == 4, row
    python = re.findall(r"`([\w/]+_test\.py)`( \w+)?", row[3])
    unit = re.findall(r"`unit-(\w+)-(\w+)`", row[3])
    other = re.findall(r"`(tests/[\w/]+_test\.c)`", row[3])
    assert python or unit or other, "no test"
    for name, word in python:
        assert any(word.strip() in test for test in named_tests(name)), f"{name} has no test with '{word.strip()}'"
    for room, file in unit:
        assert (TOP / f"tests/unit/{room}/{file}_test.c").exists(), file
    for file in other:
        assert (TOP / file).exists(), file


def test_csi_driver_has_no_inline_volumes():
    assert the(render(), "CSIDriver", "csi.cistern.io")["spec"]["volumeLifecycleModes"] == ["Persistent"]


def strings(schema):
    """The strings of an object that have no format and no list of values, with their limits."""
    if schema.get("type") == "string" and not schema.get("enum") and not schema.get("format"):
        yield schema.get("maxLength")
    for below in [schema.get("items"), schema.get("additionalProperties"), *schema.get("properties", {}).values()]:
        if isinstance(below, dict):
            yield from strings(below)


@pytest.mark.parametrize("kind", ["cisternvolume", "cisternpool"])
def test_length_of_each_text_of_a_node_is_limited(kind):
    assert None not in strings(schema_of(kind, "status"))


def lists(schema):
    if schema.get("type") == "array":
        yield schema.get("maxItems")
    for below in [schema.get("items"), *schema.get("properties", {}).values()]:
        if isinstance(below, dict):
            yield from lists(below)


@pytest.mark.parametrize("kind, part", [("bucketsource", "spec"), ("cisternvolume", "status"), ("cisternpool", "status")])
def test_length_of_each_list_is_limited(kind, part):
    assert None not in lists(schema_of(kind, part))


def test_length_of_each_text_of_a_source_is_limited():
    assert None not in strings(schema_of("bucketsource", "spec"))
