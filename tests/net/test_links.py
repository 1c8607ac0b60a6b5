"""Emulated links: they have the properties that were set, and netprobe measures these."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import links, probing
from helpers.figures import OffFigure, figures
from helpers.links import GBIT, MBIT, MS, Link, Namespace, Network, Shape
from helpers.waiting import wait_until

from netprobe.prober import ProbeBudget

pytestmark = pytest.mark.alone

BUDGET = ProbeBudget()
# How often a measurement is repeated on a machine that is busy with something else, and how many of
# them, one after the other, must be right in the median: then the emulation was not disturbed.
TRIES = 15
JUDGED = 5
WAKE_SECONDS = 30e-6
PROBES = 3
SHAPES = [
    Shape("0.1 ms, 1 Gbit/s", 0.1 * MS, GBIT),
    Shape("20 ms, 1 Gbit/s", 20 * MS, GBIT),
    Shape("1 Gbit/s out of a bucket of 1 MiB", 0, GBIT, 1 << 20),
    Shape("200 Mbit/s out of a bucket of 256 KiB", 0, 200 * MBIT, 256 << 10),
]
# Between the others.
MORE_SHAPES = [
    Shape("0.5 ms, 1 Gbit/s", 0.5 * MS, GBIT),
    Shape("2 ms, 1 Gbit/s", 2 * MS, GBIT),
    Shape("1 Gbit/s out of a bucket of 128 KiB", 0, GBIT, 128 << 10),
]


@pytest.fixture(scope="module")
def port(server: Namespace) -> Iterator[str]:
    with probing.responder(server) as number:
        yield number


@pytest.fixture(
    scope="module",
    params=[*SHAPES, *(pytest.param(shape, marks=pytest.mark.full) for shape in MORE_SHAPES)],
    ids=lambda shape: shape.name,
)
def made(
    request: pytest.FixtureRequest, network: Network, client: Namespace, server: Namespace
) -> Link:
    """The emulation itself is checked before anything is compared with it."""
    shape: Shape = request.param
    link = network.link(client, server, shape)
    reasons = []
    for _ in range(TRIES):
        if not shape.burst:
            network.tune(client, server, link)
        truth = network.truth(client, server, link)
        late = abs(truth.round_trip - shape.round_trip)
        # On the shortest link the time that a process waits for a CPU is part of the path.
        right = shape.burst or late <= max(0.1 * shape.round_trip, WAKE_SECONDS)
        rates = [truth.up / shape.goodput, truth.down / shape.goodput]
        if right and all(0.9 <= rate <= 1.1 for rate in rates):
            return link
        reasons.append(f"{truth.round_trip * 1e3:.3f} ms, {rates[0]:.2f} and {rates[1]:.2f}")
    raise OffFigure(f"the link is not what was set, the machine too busy? {reasons}")


def test_a_link_is_what_netprobe_says(
    made: Link, network: Network, client: Namespace, server: Namespace, port: str
) -> None:
    shape = made.shape
    # The last ones only: what disturbs the emulation for a moment leaves them again.
    trips, spent, up, down = (deque[float](maxlen=JUDGED) for _ in range(4))
    rates = {"up": up, "down": down}
    for tries in range(1, TRIES + 1):
        with network.traffic(server, made.b) as echo:
            truth = network.ping(client, made.b, echo, shape.round_trip)[1]
            path = probing.probe(client, f"tcp:{made.b}:{port}")["paths"][0]
        spent.append(path["seconds"])
        trips.append(path["round_trip"]["median"] / truth)
        for way, found in rates.items():
            found.append(path[way]["bytes_per_second"] / shape.goodput)
        off = [abs(statistics.median(found) - 1) for found in rates.values()]
        late = 0 if shape.burst else abs(statistics.median(trips) - 1)
        if tries >= PROBES and max(off) <= 0.15 and late <= 0.1:
            break
    with figures():
        assert statistics.median(spent) <= 1.5 * max(
            BUDGET.seconds, BUDGET.round_trips * shape.round_trip
        )
        assert shape.burst or statistics.median(trips) == pytest.approx(1, abs=0.1), trips
        for way, found in rates.items():
            assert statistics.median(found) == pytest.approx(1, abs=0.15), (way, found)


def test_the_best_path_depends_on_the_workload(
    network: Network, client: Namespace, server: Namespace, port: str
) -> None:
    """A near path of little bandwidth, and a far one of much."""
    near = network.link(client, server, Shape("near", 0.2 * MS, 100 * MBIT))
    far = network.link(client, server, Shape("far", 4 * MS, GBIT))
    uris = [f"tcp:{link.b}:{port}" for link in (near, far)]
    for workload, expected in (("call", near), ("bulk", far)):
        chosen = [probing.probe(client, *uris, workload=workload)["choice"] for _ in range(3)]
        right = [choice for choice in chosen if choice["uri"] == f"tcp:{expected.b}:{port}"]
        with figures():
            assert len(right) >= 2, chosen
        assert "times as long" in right[0]["reason"], right


def test_a_link_that_is_cut_carries_nothing(
    network: Network, client: Namespace, server: Namespace
) -> None:
    link = network.link(client, server, Shape("cut", 0.5 * MS, GBIT))
    with network.traffic(server, link.b) as echo:
        network.ping(client, link.b, echo, 0.5 * MS)
        link.cut()
        probe = subprocess.Popen(
            client.command(str(network.programs / "traffic"), "ping", link.b, echo, "1"),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: link.lost() > 0)
        assert probe.poll() is None
        link.mend()
        output, _ = probe.communicate(timeout=30)
    assert probe.returncode == 0
    assert float(output.split()[0]) > 0


def test_nothing_is_left_of_a_network_whose_owner_was_killed(programs: Path) -> None:
    source = f"""
        import sys
        sys.path.insert(0, {str(links.ROOT / "tests")!r})
        from pathlib import Path
        from helpers.links import GBIT, MS, Network, Shape
        net = Network(Path({str(programs)!r}))
        a, b = net.namespace("a"), net.namespace("b")
        net.link(a, b, Shape("x", 1 * MS, GBIT))
        net.link(a, b, Shape("y", 0, GBIT, 1 << 20))
        print("ready", flush=True)
        sys.stdin.read()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
    assert len(children) == 3
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    wait_until(lambda: not [pid for pid in children if os.path.exists(f"/proc/{pid}")])
