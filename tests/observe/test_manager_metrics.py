"""A real Prometheus reads of a manager what its tenants have, borrow and wait for, and the pool."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.request import urlopen

import pytest
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess, free_port
from helpers.needs import fixture_needs, needs, program
from helpers.nodes import Nodes, start, started
from helpers.waiting import wait_until

from observe.test_prometheus import Prometheus

MIB = 1 << 20
CARDS = '{model="rgpu emulated device",pool="public"}'
QUOTAS = """
[tenants.ann]
share = 0.5
memory = "256MiB"
borrow = true
[tenants.bob]
share = 1.0
[tenants."*"]
share = 2
"""
# Keeps the device busy until its line ends.
BUSY = r"""
from helpers.add_one import PTX
import select, sys
cuda.open()
add_one = cuda.function(cuda.load(PTX), "add_one")
address = cuda.alloc(16 << 20)
print("open", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(50):
        cuda.launch(add_one, 64, 256, address)
    cuda.synchronize()
"""


@pytest.fixture(scope="module")
def metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def cluster(metrics: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    config = tmp_path_factory.mktemp("manager") / "rgpu.toml"
    config.write_text(QUOTAS)
    with (
        ManagerProcess("--config", str(config), "--metrics", metrics) as manager,
        Nodes(manager, {"gpu1": "r1"}, "emulated:512MiB", "--device", "emulated:512MiB") as nodes,
    ):
        yield nodes


@pytest.fixture(scope="module")
@fixture_needs("prometheus")
def prometheus(
    cluster: Nodes, metrics: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path_factory.mktemp("prometheus"), metrics)
    try:
        wait_until(lambda: bool(running.query('up{job="rgpu"} == 1')), 60)
        yield running
    finally:
        running.stop()


def reads(prometheus: Prometheus, expression: str, value: float) -> None:
    """Waits until Prometheus has this value."""
    seen: list[float] = []

    def right() -> bool:
        seen[:] = [float(row["value"][1]) for row in prometheus.query(expression)]
        return len(seen) == 1 and abs(seen[0] - value) < 1e-6

    try:
        wait_until(right)
    except AssertionError:
        pytest.fail(f"{expression} is {seen}, not {value}")


def test_prometheus_sees_what_tenants_may_have_have_borrow_and_wait_for(
    cluster: Nodes, prometheus: Prometheus
) -> None:
    manager = cluster.manager.address
    reads(prometheus, 'rgpu_tenant_quota_cards{tenant="ann"}', 0.5)
    reads(prometheus, 'rgpu_tenant_quota_memory_bytes{tenant="ann"}', 256 * MIB)
    reads(prometheus, f"rgpu_pool_free_cards{CARDS}", 2.0)
    with ExitStack() as stack:
        done = run_rgpu_plain(
            "reserve", "--manager", manager, "--for", "1h", "--share", "40%", "--memory", "64MiB",
            "--tenant", "ann",
        )  # fmt: skip
        reservation = done.stdout.strip()
        stack.callback(
            run_rgpu_plain, "release", reservation, "--manager", manager, "--tenant", "ann"
        )
        ann = ("--share", "30%", "--memory", "64MiB", "--tenant", "ann", "--policy", "fixed")
        run = stack.enter_context(started(manager, *ann))
        assert run.stdout is not None
        assert run.stdout.readline()
        reads(prometheus, 'rgpu_tenant_cards{tenant="ann"}', 0.7)
        reads(prometheus, 'rgpu_tenant_memory_bytes{tenant="ann"}', 128 * MIB)
        reads(prometheus, 'rgpu_tenant_reserved_cards{tenant="ann"}', 0.4)
        reads(prometheus, 'rgpu_tenant_reserved_memory_bytes{tenant="ann"}', 64 * MIB)
        reads(prometheus, 'rgpu_tenant_borrowed_cards{tenant="ann"}', 0.2)
        reads(prometheus, 'rgpu_tenant_borrowed_memory_bytes{tenant="ann"}', 0)
        reads(prometheus, f"rgpu_pool_reserved_cards{CARDS}", 0.4)
        reads(prometheus, f"rgpu_pool_free_cards{CARDS}", 1.3)
        reads(prometheus, f"rgpu_pool_free_memory_bytes{CARDS}", (1024 - 128) * MIB)
        # What borrows nothing is packed, so the other card stays idle.
        stranger = ("--share", "5%", "--memory", "8MiB", "--tenant", "carl", "--policy", "fixed")
        other = stack.enter_context(started(manager, *stranger))
        assert other.stdout is not None
        assert other.stdout.readline()
        bob = ("--share", "90%", "--memory", "400MiB", "--wait", "--tenant", "bob")
        for _ in range(2):  # the second is beyond the quota, and waits
            stack.callback(_end, start(manager, *bob))
        reads(prometheus, 'rgpu_tenant_queued_cards{tenant="bob"}', 0.9)
        reads(prometheus, 'rgpu_tenant_queued_memory_bytes{tenant="bob"}', 400 * MIB)
        reads(prometheus, "sum(rgpu_pool_queued_cards)", 0.9)
        assert prometheus.query('rgpu_tenant_quota_memory_bytes{tenant="bob"}') == []
        assert prometheus.query('{tenant="carl"}') == []
        assert prometheus.query('{tenant="*"}') == []
    cluster.idle()


def test_prometheus_sees_what_is_used_and_what_of_it_is_lent(
    cluster: Nodes, prometheus: Prometheus
) -> None:
    """A program without a guaranteed share uses lent time alone."""
    manager = cluster.manager.address
    wish = ("--policy", "best-effort", "--memory", "64MiB")
    with started(manager, *wish, source=BUSY) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "open\n"
        wait_until(lambda: bool(prometheus.query(f"rgpu_pool_used_cards{CARDS} > 0.05")), 60)
        lent = f"rgpu_pool_lent_cards{CARDS} == rgpu_pool_used_cards{CARDS} > 0"
        wait_until(lambda: bool(prometheus.query(lent)), 60)
        held = f"rgpu_pool_used_memory_bytes{CARDS} >= {16 * MIB}"
        wait_until(lambda: bool(prometheus.query(held)), 60)
        _end(run)
    wait_until(lambda: bool(prometheus.query(f"rgpu_pool_used_cards{CARDS} == 0")), 60)
    cluster.idle()


@needs("prometheus")
def test_the_metrics_keep_prometheus_rules(cluster: Nodes, metrics: str) -> None:
    with urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    done = subprocess.run(
        [program("prometheus", "promtool"), "check", "metrics"],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _end(run: subprocess.Popen[str]) -> None:
    run.kill()
    run.communicate()
