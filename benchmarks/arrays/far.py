"""Training steps over an emulated round trip of 2 ms, beside the same steps over none."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arrays import places
from benchmarks.harness import Row, below
from benchmarks.server import links, rgpu_command, serving

# Servers of one machine share the folder of their state by port, so it is no usual one.
_PORT = "7791"
_SHAPE = links.Shape("2 ms", 2 * links.MS, links.GBIT)
_VALUES = (1, 4)
# Half a round trip more is the noise of a machine that does everything itself.
_NOISE = 0.5


@dataclass
class _Steps:
    """A program that trains where it is told to."""

    program: subprocess.Popen[str]

    def step(self, values: int) -> tuple[float, int]:
        """Returns the seconds and the waits of a step that reads some values."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(f"{values}\n")
        self.program.stdin.flush()
        seconds, waits = self.program.stdout.readline().split()
        return float(seconds), int(waits)


def _served(space: links.Namespace, node: str) -> contextlib.AbstractContextManager[None]:
    words = [
        rgpu_command(), "serve", "--device", "emulated:2GiB", "--insecure", "--no-socket",
        "--listen", f"0.0.0.0:{_PORT}",
    ]  # fmt: skip
    return serving(space.command("taskset", "-c", node, *words))


@contextlib.contextmanager
def _stepping(space: links.Namespace, address: str) -> Iterator[_Steps]:
    program = Path(__file__).with_name("far_steps.py")
    words = space.command("taskset", "-c", places.here(), sys.executable, str(program))
    variables = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    variables.update(RGPU_SERVER=f"tcp:{address}:{_PORT}", RGPU_MEMORY="512MiB")
    with subprocess.Popen(
        words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"no session at {address}")
        yield _Steps(process)
        assert process.stdin is not None
        process.stdin.close()


def far(rounds: int, node: str) -> Iterator[Row]:
    """Rows of how many round trips a step costs more over a link than over a local path."""
    with links.Programs() as programs, links.Network(programs) as network:
        client, server = network.namespace("client"), network.namespace("server")
        link = network.link(client, server, _SHAPE)
        network.tune(client, server, link)
        truth = network.truth(client, server, link)
        with (
            _served(server, node),
            _stepping(client, link.b) as there,
            _stepping(server, "127.0.0.1") as near,
        ):
            for values in _VALUES:
                took = [(there.step(values), near.step(values)) for _ in range(2 * rounds)]
                more = [slow - quick for (slow, _), (quick, _) in took]
                waits = statistics.median(count for (_, count), _ in took)
                step = f"MLP over 2 ms, {values} read"
                seconds = statistics.median(slow for (slow, _), _ in took)
                floor = statistics.median(quick for _, (quick, _) in took)
                yield Row(step, "ms", seconds * 1e3, floor * 1e3, seconds / floor)
                yield below(f"{step}: waits", "count", waits, values)
                trips = statistics.median(more) / truth.round_trip
                yield below(f"{step}: over none by", "trips", trips, values + _NOISE)
