"""What small calls cost while a large copy is under way, over emulated links, and whether several
connections carry more than one.

python -m benchmarks.bulk [--quick] [--json FILE]     (root: network namespaces and TUN devices)

A launch with a wait for its stream, and a copy of 64 bytes to the host, on one stream, while
another thread copies for some seconds on another one.  The floor is what a connection of its own
would reach: a raw ping-pong beside a raw connection that is full, since both stand in the same
queue of the link.  Then raw TCP: 1, 2 and 4 connections at once, without and with random loss, for
each kind of congestion control that this machine allows.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row, arguments, report, say
from benchmarks.net import PORT, served
from benchmarks.server import environment, links

MS, MBIT, GBIT = links.MS, links.MBIT, links.GBIT
Link, Namespace, Network, Shape = links.Link, links.Namespace, links.Network, links.Shape
# By the way that the bytes go.
KINDS = {"up": "up", "pageable_up": "up", "down": "down", "pageable_down": "down"}
# With how many of a million packets are lost, and how much is copied.
SHAPES = [
    (Shape("1 Gbit/s 0.5 ms", 0.5 * MS, GBIT), 0, 256 << 20),
    (Shape("200 Mbit/s 5 ms", 5 * MS, 200 * MBIT), 0, 64 << 20),
    (Shape("1 Gbit/s 20 ms, 0.01 % lost", 20 * MS, GBIT), 100, 256 << 20),
]
STRIPED = [
    Shape("1 Gbit/s 0.5 ms", 0.5 * MS, GBIT),
    Shape("1 Gbit/s 20 ms", 20 * MS, GBIT),
]
LOSSES = (0, 100, 1000)  # of a million packets
FAR = 2 * MS
NEAR_CONTROLS, FAR_CONTROLS = ("cubic", "reno"), ("bbr", "cubic", "reno")
# How long a raw connection is left to fill the link before it is looked at.
FILL_SECONDS = 1.0


@dataclass
class Ends:
    """Where it is measured."""

    network: Network
    client: Namespace
    server: Namespace

    def link(self, shape: Shape, loss: int) -> Link:
        made = self.network.link(self.client, self.server, shape)
        self.network.tune(self.client, self.server, made)
        made.lose(loss)
        return made

    def control(self, name: str) -> bool:
        """Raw connections use this congestion control from now on, if it may be chosen."""
        try:
            for space in (self.client, self.server):
                space.set("net.ipv4.tcp_congestion_control", name)
        except AssertionError:
            return False
        return True


class Client:
    """A session that copies when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, kind: str, count: int) -> dict[str, list[float]]:
        """What it printed: lists of seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {count}\n")
        self._process.stdin.flush()
        found: dict[str, list[float]] = json.loads(self._process.stdout.readline())
        return found


@contextlib.contextmanager
def session(space: Namespace, uri: str) -> Iterator[Client]:
    """A program with a session over one path."""
    program = Path(__file__).with_name("bulk_steps.py")
    words = space.command("nice", "-n", "-15", sys.executable, str(program))
    with subprocess.Popen(
        words, env=environment(uri), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no session over {uri}")
        yield Client(process)
        process.stdin.close()


def latencies(ends: Ends, quick: bool) -> Iterator[Row]:
    """Of small calls beside large copies."""
    # Who fills a link must not wait for the processor that emulates it.
    with served(ends.server, apart=True):
        for shape, loss, count in SHAPES:
            link = ends.link(shape, loss)
            floors = {way: _beside_raw(ends, link, way) for way in ("up", "down")}
            with session(ends.client, f"tcp:{link.b}:{PORT}") as program:
                yield from _latencies(program, shape, count // 4 if quick else count, floors)
            say(f"{shape.name}: done")


def _beside_raw(ends: Ends, link: Link, way: str) -> float:
    """Seconds of a raw round trip while another raw connection is full."""
    chosen = FAR_CONTROLS if link.shape.round_trip >= FAR else NEAR_CONTROLS
    assert any(ends.control(name) for name in chosen)
    words = ends.client.first(str(ends.network.programs / "traffic"), way, link.b)
    with ends.network.traffic(ends.server, link.b) as port:
        full = subprocess.Popen([*words, port, "3"], stdout=subprocess.PIPE, text=True, cwd="/")
        time.sleep(FILL_SECONDS)
        median = ends.network.ping(ends.client, link.b, port, 10 * MS)[1]
        assert full.poll() is None, "the raw connection ended before the round trips"
        full.communicate(timeout=60)
    return median


def _latencies(
    program: Client, shape: Shape, count: int, floors: dict[str, float]
) -> Iterator[Row]:
    idle = program.measure("idle", 0)
    for call in ("launch", "copy"):
        yield Row(f"{shape.name}: {call}, idle", "ms", statistics.median(idle[call]) * 1e3)
    for kind, way in KINDS.items():
        found, floor = program.measure(kind, count), floors[way]
        for call in ("launch", "copy"):
            name = f"{shape.name}: {call} beside {kind}"
            value = statistics.median(found[call])
            yield Row(name, "ms", value * 1e3, floor * 1e3, value / floor)
            yield Row(f"{name}, worst", "ms", max(found[call]) * 1e3)
        yield Row(f"{shape.name}: {kind}, the call itself", "ms", found["issue"][0] * 1e3)
        rate, most = count / found["seconds"][0], shape.goodput
        yield Row(f"{shape.name}: {kind}", "MB/s", rate / 1e6, most / 1e6, rate / most)


def stripes(ends: Ends, seconds: float) -> Iterator[Row]:
    """What several connections carry at once, of what the link could."""
    for shape in STRIPED:
        link = ends.link(shape, 0)
        for control in FAR_CONTROLS:
            if not ends.control(control):
                continue
            for loss in LOSSES:
                link.lose(loss)
                for number in (1, 2, 4):
                    rate = _together(ends, link, number, seconds)
                    name = f"{shape.name}, {loss / 1e4:g} % lost, {number} of {control}"
                    most = shape.goodput
                    yield Row(name, "MB/s", rate / 1e6, most / 1e6, rate / most)
            say(f"{shape.name}, {control}: done")


def _together(ends: Ends, link: Link, number: int, seconds: float) -> float:
    with ends.network.traffic(ends.server, link.b) as port:
        program = str(ends.network.programs / "traffic")
        words = ends.client.first(program, "up", link.b, port, str(seconds))
        running = [
            subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/")
            for _ in range(number)
        ]
        return sum(float(one.communicate(timeout=60)[0]) for one in running)


def main() -> None:
    asked = arguments(__doc__ or "")
    with links.Programs() as programs, Network(programs) as network:
        ends = Ends(network, network.namespace("client"), network.namespace("server"))
        rows = list(latencies(ends, asked.quick))
        rows += stripes(ends, 0.5 if asked.quick else 3.0)
    report("bulk", rows, asked.json)


if __name__ == "__main__":
    main()
