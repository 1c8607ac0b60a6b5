"""`cupyx.profiler`: times of functions, as this process sees them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from rgpu_client.cupy.cuda import Device

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Times:
    """What `benchmark` returns.

    cpu_times: seconds to issue a call. gpu_times: seconds until the node had done it; a row for the
    device.
    """

    def __init__(self, name: str, cpu_times: Any, gpu_times: Any) -> None:
        self.name = name
        self.cpu_times = cpu_times
        self.gpu_times = gpu_times

    def __repr__(self) -> str:
        cpu, gpu = self.cpu_times.mean() * 1e6, self.gpu_times.mean() * 1e6
        return f"{self.name}: CPU: {cpu:.3f} us   GPU-0: {gpu:.3f} us"


def benchmark(
    func: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = float("inf"),
    **_: Any,
) -> _Times:
    """Calls a function many times, and waits for the node after each call."""
    given, device = kwargs or {}, Device()
    for _warm in range(n_warmup):
        func(*args, **given)
    device.synchronize()
    issued, done = [], []
    begin = time.perf_counter()
    for _repeat in range(n_repeat):
        start = time.perf_counter()
        func(*args, **given)
        issued.append(time.perf_counter() - start)
        device.synchronize()
        done.append(time.perf_counter() - start)
        if time.perf_counter() - begin > max_duration:
            break
    title = name or str(getattr(func, "__name__", ""))
    return _Times(title, np.array(issued), np.array([done]))


@contextlib.contextmanager
def time_range(message: str = "", *_: Any, **__: Any) -> Iterator[None]:
    """Marks nothing: there is no profiler here."""
    yield


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Profiles nothing."""
    yield
