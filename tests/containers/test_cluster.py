"""docker-compose.yml unchanged, under podman: the demo becomes healthy, each client gets its path
and its share, limits hold, and nothing is left afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from helpers.cluster import CLIENTS, check_table
from helpers.engine import COMPOSE_FILE, Engine
from helpers.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)
HEALTHY_SECONDS = 60.0
# In this order each finds what its depends_on names, also where podman does not wait for health.
ORDER = (("gpu-a", "gpu-b"), ("proxy", "prometheus"), tuple(CLIENTS))
UNITS = {"m": 1 << 20, "g": 1 << 30}


def container(service: str) -> str:
    return f"rgpu-demo_{service}_1"


@dataclass
class Cluster:
    engine: Engine
    services: dict[str, Any]

    def up(self, *services: str) -> None:
        """Starts services, and waits until their health checks pass."""
        self.engine.compose("up", "--detach", "--no-build", "--no-deps", *services)
        for service in services:
            wait_until(lambda name=service: self.healthy(name), HEALTHY_SECONDS)

    def healthy(self, service: str) -> bool:
        """Runs the health check: podman leaves that to systemd, which need not be there."""
        check = self.engine.podman("healthcheck", "run", container(service), check=False)
        return check.returncode == 0

    def status(self, service: str) -> str:
        shown = self.engine.podman("inspect", "-f", "{{.State.Health.Status}}", container(service))
        return shown.stdout.strip()

    def inside(self, service: str, *words: str) -> str:
        return self.engine.podman("exec", container(service), *words).stdout


@pytest.fixture(scope="module")
def cluster(images: Engine) -> Iterator[Cluster]:
    """Everything but `report` runs and is healthy."""
    one = Cluster(images, yaml.safe_load(COMPOSE_FILE.read_text())["services"])
    try:
        for services in ORDER:
            one.up(*services)
        yield one
    finally:
        images.compose("down", "--volumes")


def test_every_service_is_healthy(cluster: Cluster) -> None:
    started = {service for services in ORDER for service in services}
    assert started == set(cluster.services) - {"report"}
    assert {name: cluster.status(name) for name in started} == dict.fromkeys(started, "healthy")


def test_a_check_of_a_node_that_does_not_answer_fails(cluster: Cluster) -> None:
    """The health check passes at the node's port, and fails at a port where nothing listens."""
    words = cluster.services["gpu-a"]["healthcheck"]["test"][1:]
    assert cluster.inside("gpu-a", *words) == ""
    asked = [word.replace("9400", "9401") for word in words]
    failed = cluster.engine.podman("exec", container("gpu-a"), *asked, check=False)
    assert failed.returncode == 1


def test_memory_and_processes_are_limited(cluster: Cluster) -> None:
    for services in ORDER:
        for service in services:
            body = cluster.services[service]
            limits = cluster.engine.inspect(container(service))["HostConfig"]
            wanted = int(body["mem_limit"][:-1]) * UNITS[body["mem_limit"][-1]]
            assert limits["Memory"] == wanted, service
            assert limits["PidsLimit"] == body["pids_limit"], service
    look = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null"
    assert cluster.inside("gpu-a", "sh", "-c", f"{look} || true").strip() == "512"


def test_containers_are_as_confined_as_the_file_says(cluster: Cluster) -> None:
    look = "grep -E '^(CapBnd|NoNewPrivs)' /proc/1/status; id -u; touch /etc/x 2>&1 | grep -c Read-only"
    for service in ("gpu-a", "proxy", "client-lan"):
        said = cluster.inside(service, "sh", "-c", look).split()
        assert said == ["CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "65532", "1"], service


def test_no_network_leads_out(cluster: Cluster) -> None:
    for service in ("gpu-b", "proxy", "client-lan", "client-outside"):
        routes = cluster.inside(service, "cat", "/proc/net/route").splitlines()[1:]
        assert routes, service
        assert "00000000" not in [line.split()[1] for line in routes], service
    assert cluster.inside("client-local", "cat", "/proc/net/route").splitlines()[1:] == []


def test_each_client_gets_its_path_and_its_share(cluster: Cluster) -> None:
    """The report ends the clients, so this test is the last one that needs them. Prometheus is
    paused until the report was seen to be healthy.
    """
    engine = cluster.engine
    engine.podman("pause", container("prometheus"))
    try:
        cluster.up("report")
    finally:
        engine.podman("unpause", container("prometheus"))
    ended = engine.podman("wait", container("report")).stdout.strip()
    said = engine.podman("logs", container("report"))
    assert ended == "0", said.stdout + said.stderr
    check_table(said.stdout)
    for client in CLIENTS:
        assert engine.podman("wait", container(client)).stdout.strip() == "0"


def test_nothing_is_left(cluster: Cluster) -> None:
    engine = cluster.engine
    engine.compose("down", "--volumes")
    assert engine.podman("ps", "--all", "--quiet").stdout == ""
    assert engine.podman("volume", "ls", "--quiet").stdout == ""
    networks = engine.podman("network", "ls", "--format", "{{.Name}}").stdout.split()
    assert networks == ["podman"]
    assert engine.interfaces() == ["lo"]
