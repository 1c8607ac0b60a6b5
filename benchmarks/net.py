"""What netprobe finds on emulated links, and whether the path that it chooses is the fastest.

python -m benchmarks.net [--quick] [--json FILE] [--parts links program choice] [--only TEXT]
    [--trials N]                                     (root: network namespaces and TUN devices)

First each link is measured by raw TCP and by netprobe, one after the other.  Then a numba program
of 1,000 launches and a synchronisation runs over a link and on the server's own machine, step by
step in turn: what it costs more is counted in round trips of the link.  At last a server is reached
over two links at once; netprobe chooses one for each of three workloads, the workload runs over
both, and the choice is right if no other path was clearly faster.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Row, above, arguments, below, report, say
from benchmarks.server import environment, links, probing, rgpu_command, serving
from netprobe.prober import ProbeBudget

MS, MBIT, GBIT = links.MS, links.MBIT, links.GBIT
Link, Namespace, Network, Shape = links.Link, links.Namespace, links.Network, links.Shape

PORT = "7700"
# Two paths whose steps differ by less are as good as each other (netprobe.choice.CLOSE).
CLOSE = 1.10
SHAPES = [
    Shape("0.1 ms 1 Gbit/s", 0.1 * MS, GBIT),
    Shape("0.5 ms 1 Gbit/s", 0.5 * MS, GBIT),
    Shape("2 ms 1 Gbit/s", 2 * MS, GBIT),
    Shape("20 ms 1 Gbit/s", 20 * MS, GBIT),
    Shape("0.1 ms 10 Gbit/s", 0.1 * MS, 10 * GBIT),
    Shape("0.5 ms 10 Gbit/s", 0.5 * MS, 10 * GBIT),
    Shape("2 ms 10 Gbit/s", 2 * MS, 10 * GBIT),
    Shape("20 ms 10 Gbit/s", 20 * MS, 10 * GBIT),
    Shape("bucket 1 MiB 1 Gbit/s", 0, GBIT, 1 << 20),
    Shape("bucket 256 KiB 200 Mbit/s", 0, 200 * MBIT, 256 << 10),
]
PAIRS = [
    (Shape("near", 0.2 * MS, 200 * MBIT), Shape("far", 5 * MS, 2 * GBIT)),
    (Shape("slow", 0.5 * MS, 200 * MBIT), Shape("fast", 0.5 * MS, GBIT)),
    (Shape("long", 10 * MS, GBIT), Shape("short", 1 * MS, GBIT)),
]
WORKLOADS = ("call", "bulk", "mixed")
PARTS = ("links", "program", "choice")
BUDGET = ProbeBudget()
# ROUNDS: steps of a trial over each path. MOST: the choice is wrong if another path is clearly
# faster in a larger part of them.
ROUNDS = {"call": 9, "bulk": 2, "mixed": 5}
MOST = 0.75


def errors(
    network: Network, client: Namespace, server: Namespace, rounds: int, only: str
) -> Iterator[Row]:
    """How far netprobe is from the truth, on each link."""
    with probing.responder(server) as port:
        for shape in (shape for shape in SHAPES if only in shape.name):
            link = network.link(client, server, shape)
            if not shape.burst:
                network.tune(client, server, link)
            yield from _errors(network, client, server, link, port, rounds)
            say(f"{shape.name}: done")


def _errors(
    network: Network, client: Namespace, server: Namespace, link: Link, port: str, rounds: int
) -> Iterator[Row]:
    trips: list[float] = []
    rates: list[float] = []
    reached: list[float] = []
    spent: list[float] = []
    for _ in range(rounds):
        truth = network.truth(client, server, link)
        path = probing.probe(client, f"tcp:{link.b}:{port}")["paths"][0]
        allowed = max(BUDGET.seconds, BUDGET.round_trips * truth.round_trip)
        spent.append(path["seconds"] / allowed)
        trips.append(abs(path["round_trip"]["median"] / truth.round_trip - 1))
        # A link that two CPUs cannot emulate at its rate is compared with what raw TCP got.
        for way, raw in (("up", truth.up), ("down", truth.down)):
            true = link.shape.goodput if raw > 0.85 * link.shape.goodput else raw
            reached.append(raw / link.shape.goodput)
            rates.append(abs(path[way]["bytes_per_second"] / true - 1))
    name = link.shape.name
    yield Row(f"{name}: raw TCP of the set rate", "ratio", statistics.median(reached))
    if not link.shape.burst:
        yield below(f"{name}: round trip off by", "ratio", statistics.median(trips), 0.10)
    yield below(f"{name}: bandwidth off by", "ratio", statistics.median(rates), 0.15)
    # The last train is planned with what the one before it got.
    yield below(f"{name}: used of its time", "ratio", statistics.median(spent), 1.25)


@dataclass
class Way:
    """One way to the server, with a session over it."""

    uri: str
    program: subprocess.Popen[str]

    def step(self, workload: str) -> float:
        """Seconds of one step."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(workload + "\n")
        self.program.stdin.flush()
        return float(self.program.stdout.readline())


def served(space: Namespace, apart: bool = False) -> contextlib.AbstractContextManager[None]:
    """`rgpu serve` on every address of a namespace.  apart: not on the client's processor, as on
    another machine.
    """
    words = [rgpu_command(), "serve", "--device", "emulated:2GiB", "--insecure", "--no-socket"]
    place = space.first_there if apart else space.first
    return serving(place(*words, "--listen", f"0.0.0.0:{PORT}"))


@contextlib.contextmanager
def stepping(space: Namespace, uri: str, anywhere: bool = False) -> Iterator[Way]:
    """A session over one path, which waits for orders.  anywhere: not on the link's processor."""
    program = Path(__file__).with_name("net_steps.py")
    words = (sys.executable, str(program))
    process = subprocess.Popen(
        space.command("nice", "-n", "-15", *words) if anywhere else space.first(*words),
        env=environment(uri, NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0", PYTHONWARNINGS="ignore"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no session over {uri}")
        yield Way(uri, process)
        assert process.stdin is not None
        process.stdin.close()


def storm(network: Network, client: Namespace, server: Namespace, steps: int) -> Iterator[Row]:
    """How many round trips more a step of launches costs over a link than over a local path."""
    shape = Shape("2 ms 1 Gbit/s", 2 * MS, GBIT)
    link = _made(network, client, server, shape)
    truth = network.truth(client, server, link)
    with (
        served(server),
        # numba's own work beside that of the emulator would be counted as the link's.
        stepping(client, f"tcp:{link.b}:{PORT}", anywhere=True) as far,
        stepping(server, f"tcp:127.0.0.1:{PORT}", anywhere=True) as near,
    ):
        took = [(far.step("call"), near.step("call")) for _ in range(steps)]
    more = statistics.median(there - here for there, here in took) / truth.round_trip
    name = f"{shape.name}: numba, 1,000 launches, over local by"
    yield below(name, "round trips", more, 1.5)
    say("launches over a link: done")


def choices(
    network: Network, client: Namespace, server: Namespace, trials: int, only: str
) -> Iterator[Row]:
    """How often the chosen path was the fastest, for each workload."""
    right: dict[str, list[bool]] = {workload: [] for workload in WORKLOADS}
    with served(server, apart=True):
        for shapes in PAIRS:
            name = " or ".join(shape.name for shape in shapes)
            if only not in name:
                continue
            made = [_made(network, client, server, shape, apart=True) for shape in shapes]
            uris = [f"tcp:{link.b}:{PORT}" for link in made]
            with contextlib.ExitStack() as stack:
                ways = [stack.enter_context(stepping(client, uri)) for uri in uris]
                for workload in WORKLOADS:
                    results = [_trial(client, ways, workload, n) for n in range(trials)]
                    right[workload] += results
                    yield Row(f"{name}, {workload}: right", f"of {trials}", sum(results))
            say(f"{name}: done")
    for workload, results in right.items():
        if results:
            many = f"{workload}: the fastest of {len(results)} times was chosen"
            yield above(many, "ratio", statistics.mean(results), 0.95)


def _made(
    network: Network, client: Namespace, server: Namespace, shape: Shape, apart: bool = False
) -> Link:
    link = network.link(client, server, shape, apart)
    network.tune(client, server, link)
    return link


def _trial(client: Namespace, ways: Sequence[Way], workload: str, number: int) -> bool:
    """Whether netprobe's choice was the fastest, or as good as that: it is not if in most rounds
    another way was clearly faster.
    """
    chosen = probing.probe(client, *(way.uri for way in ways), workload=workload)["choice"]["uri"]
    seconds: dict[str, list[float]] = {way.uri: [] for way in ways}
    for _ in range(ROUNDS[workload]):
        # Each goes first as often as the others.
        for way in (*ways[number % len(ways) :], *ways[: number % len(ways)]):
            seconds[way.uri].append(way.step(workload))
        number += 1
    slower = {
        uri: statistics.mean(a > CLOSE * b for a, b in zip(seconds[chosen], took, strict=True))
        for uri, took in seconds.items()
    }
    good = max(slower.values()) <= MOST
    if not good:
        say(f"{workload}: {chosen} was chosen, but {seconds}")
    return good


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="only links, and pairs of them, with this in their name")  # fmt: skip
    parser.add_argument("--trials", type=int, metavar="N", help="of each workload and pair")


def main() -> None:
    asked = arguments(__doc__ or "", more=_more)
    rows: list[Row] = []
    with links.Programs() as programs, Network(programs) as network:
        client, server = network.namespace("client"), network.namespace("server")
        if "links" in asked.parts:
            rows += errors(network, client, server, 1 if asked.quick else 7, asked.only)
        if "program" in asked.parts:
            # A step is noisier than a round trip is long.
            rows += storm(network, client, server, 40 if asked.quick else 200)
        if "choice" in asked.parts:
            trials = asked.trials or (1 if asked.quick else 8)
            rows += choices(network, client, server, trials, asked.only)
    report("net", rows, asked.json)


if __name__ == "__main__":
    main()
