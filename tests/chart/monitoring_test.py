# SPDX-License-Identifier: Apache-2.0
"""The alerts fire when they should, by promtool; the dashboard is one that Grafana's own model of a dashboard can read."""

import json
import re

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from chart.lib import CHART, panels, render, the
from paths import TOP
from servers.prometheus import promtool

CASES = TOP / "tests/chart/alerts.yaml"


@pytest.fixture
def rules(tmp_path):
    """The alerts of the chart, beside their cases."""
    spec = the(render({"metrics.alerts": True}), "PrometheusRule", "cistern")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "alerts.yaml").write_text(CASES.read_text())
    return spec["groups"][0]["rules"]


def test_each_alert_fires_for_its_cause_and_for_no_less(rules, tmp_path):
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    for alert in rules:
        of_it = [case for case in cases if case["alertname"] == alert["alert"]]
        assert {bool(case.get("exp_alerts")) for case in of_it} == {True, False}, f"{alert['alert']}: fires and does not fire"
    done = promtool("test", "rules", tmp_path / "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_about_a_claim_name_it_and_every_alert_has_the_labels_of_its_subject(rules):
    for alert in rules:
        named = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
        assert named and (named == {"namespace", "claim"}) == ("cistern_claim_failing" in alert["expr"]), alert["alert"]


def lost(before, after, path="dashboard"):
    """Fields of a dashboard that Grafana's model does not know: they are missing after it was read and written."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [f for key in before for f in (lost(before[key], after[key], f"{path}.{key}") if key in after else [f"{path}.{key}"])]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [f for n, pair in enumerate(zip(before, after)) for f in lost(*pair, f"{path}[{n}]")]
    return [] if before == after else [path]


def read_and_written(dashboard):
    register_default_plugins()
    return json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))


def test_grafanas_model_reads_every_field_of_the_dashboard():
    dashboard = json.loads((CHART / "files/dashboard.json").read_text())
    assert lost(dashboard, read_and_written(dashboard)) == []
    broken = json.loads(json.dumps(dashboard).replace('"legendFormat"', '"legendformat"', 1))
    assert lost(broken, read_and_written(broken)) == ["dashboard.panels[1].targets[0].legendformat"], "a wrong field passes"


def test_panels_do_not_overlap_and_have_ids_of_their_own():
    every = panels(json.loads((CHART / "files/dashboard.json").read_text()))
    assert len({p["id"] for p in every}) == len(every) > 15
    taken = [(p["gridPos"]["x"] + dx, p["gridPos"]["y"] + dy) for p in every
             for dx in range(p["gridPos"]["w"]) for dy in range(p["gridPos"]["h"])]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
