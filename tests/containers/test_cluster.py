"""docker-compose.yml unchanged, under podman: the demo becomes healthy, each client gets its path
and its share, limits hold, and nothing is left afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.cluster import CLIENTS, check_table
from helpers.composed import Composed
from helpers.engine import COMPOSE_FILE, Engine

pytestmark = pytest.mark.timeout(1800)
# In this order each finds what its depends_on names, also where podman does not wait for health.
ORDER = (("gpu-a", "gpu-b"), ("proxy", "prometheus"), tuple(CLIENTS))
UNITS = {"m": 1 << 20, "g": 1 << 30}


@pytest.fixture(scope="module")
def cluster(images: Engine) -> Iterator[Composed]:
    """Everything but `report` runs and is healthy."""
    one = Composed(images, COMPOSE_FILE)
    try:
        for services in ORDER:
            one.up(*services)
        yield one
    finally:
        one.down()


def test_every_service_is_healthy(cluster: Composed) -> None:
    started = {service for services in ORDER for service in services}
    assert started == set(cluster.services) - {"report"}
    assert {name: cluster.status(name) for name in started} == dict.fromkeys(started, "healthy")


def test_a_check_of_a_node_that_does_not_answer_fails(cluster: Composed) -> None:
    """The health check passes at the node's port, and fails at a port where nothing listens."""
    words = cluster.services["gpu-a"]["healthcheck"]["test"][1:]
    assert cluster.inside("gpu-a", *words) == ""
    asked = [word.replace("7709", "7708") for word in words]
    failed = cluster.engine.podman("exec", cluster.container("gpu-a"), *asked, check=False)
    assert failed.returncode == 1


def test_memory_and_processes_are_limited(cluster: Composed) -> None:
    for services in ORDER:
        for service in services:
            body = cluster.services[service]
            limits = cluster.engine.inspect(cluster.container(service))["HostConfig"]
            wanted = int(body["mem_limit"][:-1]) * UNITS[body["mem_limit"][-1]]
            assert limits["Memory"] == wanted, service
            assert limits["PidsLimit"] == body["pids_limit"], service
    look = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null"
    assert cluster.inside("gpu-a", "sh", "-c", f"{look} || true").strip() == "512"


def test_containers_are_as_confined_as_the_file_says(cluster: Composed) -> None:
    look = "grep -E '^(CapBnd|NoNewPrivs)' /proc/1/status; id -u; touch /etc/x 2>&1 | grep -c Read-only"
    for service in ("gpu-a", "proxy", "client-lan"):
        said = cluster.inside(service, "sh", "-c", look).split()
        assert said == ["CapBnd:", "0000000000000000", "NoNewPrivs:", "1", "65532", "1"], service


def test_no_network_leads_out(cluster: Composed) -> None:
    for service in ("gpu-b", "proxy", "client-lan", "client-outside"):
        routes = cluster.inside(service, "cat", "/proc/net/route").splitlines()[1:]
        assert routes, service
        assert "00000000" not in [line.split()[1] for line in routes], service
    assert cluster.inside("client-local", "cat", "/proc/net/route").splitlines()[1:] == []


def test_each_client_gets_its_path_and_its_share(cluster: Composed) -> None:
    """The report ends the clients, so this test is the last one that needs them. Prometheus is
    paused until the report was seen to be healthy.
    """
    cluster.engine.podman("pause", cluster.container("prometheus"))
    try:
        cluster.up("report")
    finally:
        cluster.engine.podman("unpause", cluster.container("prometheus"))
    status, said = cluster.ended("report")
    assert status == "0", said
    check_table(said)
    for client in CLIENTS:
        assert cluster.ended(client)[0] == "0"


def test_nothing_is_left(cluster: Composed) -> None:
    cluster.down()
    cluster.assert_nothing_is_left()
