"""CuPy's interface: what an operation costs to issue, and programs beside NumPy."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

import rgpu_client.cupy as cp
from benchmarks.arrays.timing import in_turns, issue
from benchmarks.arrays.wire import counted
from benchmarks.harness import Row, below, cost
from rgpu_client.cupy._session import session


def kmeans(xp: Any, points: Any, centers: Any, steps: int) -> Any:
    """Lloyd's algorithm, with one-hot assignments."""
    for _ in range(steps):
        distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
        chosen = distances.argmin(axis=1)
        hot = (chosen[:, None] == xp.arange(len(centers))[None, :]).astype(points.dtype)
        centers = (hot.T @ points) / xp.maximum(hot.sum(axis=0), 1)[:, None]
    return centers


def conjugate_gradient(xp: Any, matrix: Any, right: Any, steps: int) -> Any:
    """Solves matrix x = right; tests for convergence every ten steps."""
    x = xp.zeros_like(right)
    residual = right - matrix @ x
    direction = residual.copy()
    square = residual @ residual
    for step in range(steps):
        product = matrix @ direction
        alpha = square / (direction @ product)
        x = x + alpha * direction
        residual = residual - alpha * product
        if step % 10 == 9 and float(xp.sqrt(residual @ residual)) < 1e-8:
            break
        new = residual @ residual
        direction = residual + (new / square) * direction
        square = new
    return x


def issued(rounds: int) -> Iterator[Row]:
    """Rows of what single operations cost."""
    here = np.ones((64, 64), np.float32)
    there = cp.asarray(here)
    cases = {
        "a + a": lambda a: a + a,
        "a * 2.5": lambda a: a * 2.5,
        "exp(a)": lambda a: (cp if a is there else np).exp(a),
        "a.sum(axis=0)": lambda a: a.sum(axis=0),
        "a[1:]": lambda a: a[1:],
        "a @ a": lambda a: a @ a,
    }
    found = issue(5 * rounds, cases, there, here, lambda: there[0, 0].get())
    for name, (value, floor) in found.items():
        yield below(f"issue cupy {name}", "us", value, 5, floor)
    mean = statistics.mean(value for value, _ in found.values())
    yield Row("operations issued, cupy", "1/s", 1e6 / mean)


def programs(rounds: int) -> Iterator[Row]:
    """Rows of whole programs, beside NumPy on this machine."""
    random = np.random.default_rng(1)
    points = random.random((100_000, 4))
    centers = points[:8].copy()
    half = random.random((2000, 2000))
    matrix = half @ half.T + 2000 * np.eye(2000)
    right = random.random(2000)
    for name, run, given, steps in (
        ("k-means, 100,000 points", kmeans, (points, centers), 10),
        ("conjugate gradient, n = 2,000", conjugate_gradient, (matrix, right), 40),
    ):
        there = tuple(cp.asarray(one) for one in given)

        def local(run: Any = run, given: Any = given, steps: int = steps) -> Any:
            return run(np, *given, steps)

        def remote(run: Any = run, there: Any = there, steps: int = steps) -> Any:
            return run(cp, *there, steps).get()

        if not np.array_equal(local(), remote()):
            raise SystemExit(f"{name}: the results differ")
        with counted(session().issuer) as sent:
            remote()
        yield Row(f"sent for an operation, {name}", "bytes", sent.each)
        floor, value = in_turns(rounds, local, remote)
        yield cost(name, "ms", value * 1e3, floor * 1e3, 1.2)
