"""What an operator sees and does: metrics, and a server that is started again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, ended, patient, started, where
from helpers.ports import free_port
from helpers.waiting import wait_until

RACKS = {"gpu1": "r1", "gpu2": "r2"}


@pytest.fixture(scope="module")
def metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def pair(metrics: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("servers")
    with (
        ManagerProcess("--metrics", metrics) as manager,
        Nodes(manager, RACKS, "emulated:512MiB", *patient(folder)) as nodes,
    ):
        yield nodes


def read(metrics: str) -> dict[str, float]:
    """Returns each sample of the manager, by its name with its labels."""
    with urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    rows = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


COPIES = """
cuda.open()
address = cuda.alloc(1 << 20)
cuda.upload(address, b"-" * (1 << 20))   # it has all its connections then
print("open", flush=True)
wait_for_line()
cuda.upload(address, b"x" * (1 << 20))
print("right" if cuda.download(address, 1 << 20) == b"x" * (1 << 20) else "wrong")
"""
CARDS = '{model="rgpu emulated device",pool="public"}'


def test_metrics_follow_the_pool(pair: Nodes, metrics: str) -> None:
    before = read(metrics)
    assert before['rgpu_pool_nodes{state="connected"}'] == 2
    assert before[f"rgpu_pool_cards{CARDS}"] == 2
    with started(pair.manager.address, "-v", "--share", "25%", "--memory", "128MiB") as run:
        where(run)
        wait_until(lambda: read(metrics)[f"rgpu_pool_leases{CARDS}"] == 1)
        now = read(metrics)
        assert now[f"rgpu_pool_guaranteed_cards{CARDS}"] == 0.25
        assert now[f"rgpu_pool_leased_memory_bytes{CARDS}"] == 128 << 20
        assert now['rgpu_pool_requests{state="placed"}'] == 1
        assert now["rgpu_manager_placed_total"] == before["rgpu_manager_placed_total"] + 1
        assert ended(run)[0] == 0
    pair.idle()
    after = read(metrics)
    assert after[f"rgpu_pool_leases{CARDS}"] == 0
    assert after["rgpu_manager_ended_total"] == before["rgpu_manager_ended_total"] + 1


def test_metrics_name_no_tenant_and_no_request(pair: Nodes, metrics: str) -> None:
    with started(pair.manager.address, "-v", "--share", "5%", "--tenant", "secretive") as run:
        _, request = where(run)
        with urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        assert "secretive" not in text
        assert request not in text
        assert ended(run)[0] == 0
    pair.idle()


def test_events_tell_the_life_of_a_request_in_order(pair: Nodes) -> None:
    with started(pair.manager.address, "-v", "--share", "5%") as run:
        name, request = where(run)
        assert ended(run)[0] == 0
    pair.idle()
    mine = [e for e in pair.manager.events() if e["request_id"] == request]
    assert [event["kind"] for event in mine] == ["placed", "ended"]
    assert {event["node"] for event in mine} == {name}
    numbers = [int(event["number"]) for event in pair.manager.events()]
    assert numbers == sorted(set(numbers))


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_started_again_brings_its_leases(pair: Nodes, how: signal.Signals) -> None:
    """The program goes on meanwhile, and the manager promises its room to nobody."""
    wish = ("-v", "--share", "80%", "--local")
    with started(pair.manager.address, *wish, source=COPIES, RGPU_NODE="gpu1") as run:
        name, request = where(run)
        assert name == "gpu1"
        pair.signal(name, how)
        pair.servers[name].stop()
        pair.start(name)
        pair.manager.has("gpu1", "gpu2")
        assert pair.booked()[name] == {request}
        assert request in pair.manager.leases()
        status, lines, errors = ended(run)
        assert (status, lines) == (0, ["right"]), errors
    pair.idle()


@pytest.mark.full
def test_a_node_that_dies_for_good_leaves_the_pool(pair: Nodes) -> None:
    pair.kill("gpu2")
    wait_until(lambda: [one["name"] for one in pair.manager.pool()["nodes"]] == ["gpu1"], 60)
    kinds = [event["kind"] for event in pair.manager.events() if event["node"] == "gpu2"]
    assert kinds[-2:] == ["cut", "lost"]
    with started(pair.manager.address, "-v", "--whole") as run:
        assert where(run)[0] == "gpu1"
        assert ended(run)[0] == 0
    pair.start("gpu2")
    pair.manager.has("gpu1", "gpu2")
