# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a node, and evaluates each expression of the chart's dashboard and alerts."""

import json

import pytest

from chart.lib import CHART, expressions, render, the
from integration.csi.driver import wait_for
from servers.prometheus import Prometheus

from .agent import Node, bucket, job
from .events_test import claimed

# Metrics of the controller, which this test does not run, and of a call that fails.
OF_OTHERS = ("cistern_claim_failing", "cistern_token_exchanges_total", 'grpc_status_code!="OK"')


@pytest.fixture
def scraped(folder, cluster):
    n = Node(folder, kubeconfig=cluster.kubeconfig, flags=("--metrics=127.0.0.1:0", "--metrics-interval=200ms", "--metrics-per-volume"))
    yield n.start()
    n.end()


def filled_in(expression, claim):
    """As Grafana asks for every node and namespace, and in the row of one claim."""
    return expression.replace('claim="$claim"', f'claim="{claim}"').replace("$node", ".*").replace("$namespace", ".*").replace("$claim", ".*")


def test_prometheus_has_an_answer_for_every_panel_and_no_complaint_about_an_alert(scraped, folder, orders):
    rules = the(render({"metrics.alerts": True}), "PrometheusRule", "cistern")["spec"]
    port = next(line.split("port=")[1].split()[0] for line in scraped.log_text().splitlines() if "metrics are served" in line)
    with Prometheus([f"127.0.0.1:{port}"], rules) as prometheus:
        wait_for(lambda: prometheus.query("cistern_pool_healthy == 1"))
        volume_id = orders.make("pvc-1", source={"uri": bucket(folder)})
        claimed(orders, "pvc-1")
        assert job("hydrate", scraped.folder_of(volume_id)).wait(30) == 0
        wait_for(lambda: prometheus.query("increase(cistern_hydration_seconds_count[5m]) >= 0"))
        asked = [filled_in(e, "pvc-1-claim") for e in expressions(json.loads((CHART / "files/dashboard.json").read_text()))]
        wait_for(lambda: prometheus.query('cistern_volume_hydrated_ratio{claim="pvc-1-claim"} == 1'))
        silent = [e for e in asked if not prometheus.query(e)]
        assert len(asked) > 15 and silent == [e for e in asked if any(metric in e for metric in OF_OTHERS)]
        loaded = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
        assert {r["name"]: r["health"] for r in loaded} == {r["alert"]: "ok" for r in rules["groups"][0]["rules"]}
