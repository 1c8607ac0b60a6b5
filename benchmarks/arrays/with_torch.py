"""PyTorch: training steps on the node beside the same steps on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.arrays.models import Training, convnet, mlp, tiny_transformer, transformer
from benchmarks.arrays.timing import in_turns, issue, once
from benchmarks.arrays.wire import counted
from benchmarks.harness import Row, above, below, cost
from rgpu_client.torch.session import session

torch: Any = import_module("torch")


def steps(rounds: int) -> Iterator[Row]:
    """Rows of training steps. Small ones have no target: they cost what their operations cost."""
    identical = 0
    for name, make, size, target in (
        ("MLP, 64 wide", mlp, 64, None),
        ("MLP, 2,048 wide", mlp, 2048, 1.08),
        ("convnet, 16 x 16", convnet, 16, None),
        ("convnet, 64 x 64", convnet, 64, 1.08),
        ("transformer, 16 long", transformer, 16, None),
        ("transformer, 128 long", transformer, 128, 1.08),
    ):
        here, there = Training(make, size, "cpu"), Training(make, size, "rgpu")
        floor, value = in_turns(rounds, here.step, there.step)
        identical += here.losses == there.losses
        if not torch.allclose(torch.tensor(here.losses), torch.tensor(there.losses), rtol=1e-3):
            raise SystemExit(f"{name}: the losses differ: {here.losses} {there.losses}")
        row = cost(f"step {name}", "ms", value * 1e3, floor * 1e3, target or 1)
        yield row if target else Row(row.name, row.unit, row.value, row.floor, row.ratio)
    yield above("models whose losses are bit-identical", "of 6", identical, 6)


def over_local(rounds: int) -> Iterator[Row]:
    """Rows of what an operation costs the client within a training step, and what it sends."""
    for name, make, size in (
        ("MLP", mlp, 64), ("convnet", convnet, 16), ("transformer", transformer, 16),
    ):  # fmt: skip
        there = Training(make, size, "rgpu")
        there.step()
        with counted(session.current()) as sent:
            there.step()
        yield Row(f"operations of a step, {name}", "count", sent.operations)
        yield Row(f"sent for an operation, {name}", "bytes", sent.each)
    here, there = (Training(tiny_transformer, 4, device) for device in ("cpu", "rgpu"))
    local, remote = [], []
    for _ in range(5 * rounds + 3):
        for times, training in ((local, here), (remote, there)):
            times.append(once(training.issue))
            training.read()
    with counted(session.current()) as sent:
        there.step()
    more = statistics.median(remote[3:]) - statistics.median(local[3:])
    name = "over local eager, an operation of a transformer's step"
    yield below(name, "us", more / sent.operations * 1e6, 25)


def issued(rounds: int) -> Iterator[Row]:
    """Rows of what single operations cost, without autograd."""
    here = torch.ones(64, 64)
    there = here.to("rgpu")
    cases = {
        "a.add(a)": lambda a: a.add(a),
        "a * 2.5": lambda a: a * 2.5,
        "a.add_(1)": lambda a: a.add_(1.0),
        "a @ a": lambda a: a @ a,
        "softmax": lambda a: torch.softmax(a, 1),
        "a.t()": lambda a: a.t(),
    }
    with torch.no_grad():
        found = issue(5 * rounds, cases, there, here, lambda: there[0, 0].item())
    for name, (value, floor) in found.items():
        yield below(f"issue torch {name}", "us", value, 10, floor)
    mean = statistics.mean(value for value, _ in found.values())
    yield Row("operations issued, torch", "1/s", 1e6 / mean)
