"""The files in `deploy/`, with a real Prometheus that scrapes a server with two busy tenants."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.ends import stopped
from helpers.figures import figures
from helpers.needs import fixture_needs, needs, program
from helpers.ports import free_port
from helpers.server import Server
from helpers.waiting import wait_until

from observe import page
from observe.load import Load

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "rgpu.json"
SHARES = {"alice": 0.7, "bob": 0.3}


def expressions() -> list[str]:
    """Of the dashboard, as Grafana would ask for them with every tenant and device chosen."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [
        expression.replace("$__rate_interval", "5s")
        .replace("$tenant", ".*")
        .replace("$device", ".*")
        for expression in asked
    ]


class Prometheus:
    """A process with its data below a folder, which scrapes one target each second."""

    def __init__(self, folder: Path, target: str) -> None:
        config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        assert config.count('"127.0.0.1:7709"') == 1
        config = config.replace('"127.0.0.1:7709"', f'"{target}"').replace(": 5s", ": 1s")
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(DEPLOY / "prometheus" / "rgpu.rules.yml", folder)
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=folder,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query; [] also while the process starts."""
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/query?{words}", timeout=30) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except (urllib.error.URLError, ConnectionError):
            assert self._process.poll() is None, Path(self._log.name).read_text()
            return []
        return [row for row in result if row["value"][1] != "NaN"]

    def stop(self) -> None:
        stopped(self._process, seconds=60)
        self._log.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--metrics", "127.0.0.1:0") as running:
        loads = [
            Load(running.tcp, RGPU_TENANT=tenant, RGPU_LEASE="job", RGPU_SHARE=str(share))
            for tenant, share in SHARES.items()
        ]
        try:
            for load in loads:
                load.go()
            yield running
        finally:
            for load in loads:
                load.close()


@pytest.fixture(scope="module")
@fixture_needs("prometheus")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), page.address(server))
    try:
        wait_until(lambda: bool(running.query('up{job="rgpu"} == 1')), 60)
        yield running
    finally:
        running.stop()


@needs("prometheus")
def test_the_metrics_keep_prometheus_rules(server: Server) -> None:
    text = page.text(server)
    done = subprocess.run(
        [program("prometheus", "promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_alerts_name_jobs_that_every_configuration_has() -> None:
    rules = (DEPLOY / "prometheus" / "rgpu.rules.yml").read_text()
    asked = set(re.findall(r'job="([^"]+)"', rules))
    assert asked == {"rgpu", "rgpu-manager"}
    scraped = yaml.safe_load((DEPLOY / "kubernetes" / "autoscaling" / "scrape.yaml").read_text())
    assert {one["job_name"] for one in scraped} == asked


@needs("prometheus")
@pytest.mark.parametrize(
    ("what", "name"), [("config", "prometheus.yml"), ("rules", "rgpu.rules.yml")]
)
def test_the_examples_are_good_configuration(what: str, name: str) -> None:
    done = subprocess.run(
        [program("prometheus", "promtool"), "check", what, str(DEPLOY / "prometheus" / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_expression_of_the_dashboard_gives_data(prometheus: Prometheus) -> None:
    asked = expressions()
    assert len(asked) > 20
    empty = list(asked)

    def all_have_data() -> bool:
        empty[:] = [expression for expression in empty if not prometheus.query(expression)]
        return not empty

    try:
        wait_until(all_have_data, 60)
    except AssertionError:
        pytest.fail(f"no data: {empty}")


@pytest.mark.measures
def test_prometheus_sees_who_got_what(prometheus: Prometheus) -> None:
    """By the counters and by the gauges, which come from the page and from the token loop."""

    def near(expression: str) -> bool:
        got = {
            row["metric"]["tenant"]: float(row["value"][1]) for row in prometheus.query(expression)
        }
        return set(got) == set(SHARES) and all(
            abs(got[tenant] - share) < 0.1 for tenant, share in SHARES.items()
        )

    rates = "sum by (tenant) (rate(rgpu_tenant_device_seconds_total[10s]))"
    with figures():
        wait_until(lambda: near(rates), 60)
        wait_until(lambda: near("sum by (tenant) (rgpu_share_achieved_10s_ratio)"), 60)


def test_no_alert_fires_when_all_is_well(prometheus: Prometheus) -> None:
    rules = (DEPLOY / "prometheus" / "rgpu.rules.yml").read_text()
    assert rules.count("- alert:") == 7
    assert prometheus.query('ALERTS{alertstate="firing"}') == []


# Two replicas of a manager, of which one leads. After 5 minutes a node goes and a request comes that
# waits; after 50 minutes the manager that leads goes as well.
MANAGER = """
rule_files: [rgpu.rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'up{job="rgpu-manager",instance="a"}', values: '1x50 0x100'}
  - {series: 'up{job="rgpu-manager",instance="b"}', values: '0x150'}
  - {series: 'rgpu_pool_nodes{state="connected"}', values: '3x5 2x145'}
  - {series: 'rgpu_pool_queued_cards{model="",pool=""}', values: '0x5 0.5x145'}
  alert_rule_test:
  - {alertname: RgpuManagerDown, eval_time: 50m}
  - alertname: RgpuManagerDown
    eval_time: 53m
    exp_alerts: [{exp_labels: {severity: critical}, exp_annotations: {summary: "No rgpu manager answers: what runs goes on, and new requests wait."}}]
  - {alertname: RgpuNodeLost, eval_time: 5m}
  - alertname: RgpuNodeLost
    eval_time: 8m
    exp_alerts: [{exp_labels: {severity: warning}, exp_annotations: {summary: "2 GPU nodes are connected to the manager, and in the last hour there were more."}}]
  - {alertname: RgpuNodeLost, eval_time: 80m}
  - {alertname: RgpuRequestsWait, eval_time: 30m}
  - alertname: RgpuRequestsWait
    eval_time: 40m
    exp_alerts: [{exp_labels: {severity: info}, exp_annotations: {summary: "Requests for 0.5 cards have waited for half an hour."}}]
"""


@needs("prometheus")
def test_alerts_of_a_manager_fire_when_it_says_so(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus" / "rgpu.rules.yml", tmp_path)
    (tmp_path / "test.yml").write_text(MANAGER)
    done = subprocess.run(
        [program("prometheus", "promtool"), "test", "rules", "test.yml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
