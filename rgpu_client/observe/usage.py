"""Turns the server's record into numbers to draw and to print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.v1.observe_pb2 import GetRecordResponse, UsageSeries

OTHERS = "others"


class Line(Struct, frozen=True):
    """A tenant or a lease on a device. The name is unique on the device.

    Each tuple has one value for each step; shares are fractions. present: whether there was a lease
    in the step. waiting, throttled: the mean over several leases. tenant: "" for the sum of several
    tenants. seams: "driver", "cupy", "torch", as its programs used them.
    """

    name: str
    device: int
    present: tuple[bool, ...]
    share: tuple[float, ...]
    request: tuple[float, ...]
    limit: tuple[float, ...]
    waiting: tuple[float, ...]
    throttled: tuple[float, ...]
    memory: tuple[int, ...]
    launches: int
    tenant: str = ""
    seams: tuple[str, ...] = ()

    def mean(self, values: tuple[float, ...]) -> float:
        """Returns the mean over the steps in which there was a lease."""
        there = [v for v, p in zip(values, self.present, strict=True) if p]
        return sum(there) / len(there) if there else 0.0


class Usage(Struct, frozen=True):
    """Lines over the same steps. start: seconds since 1970. step: length of a step in seconds."""

    start: float
    step: float
    steps: int
    lines: tuple[Line, ...]

    @property
    def devices(self) -> list[int]:
        return sorted({line.device for line in self.lines})

    def on(self, device: int) -> list[Line]:
        """Returns the lines of a device, sorted by name."""
        return [line for line in self.lines if line.device == device]


def usage_of(answer: GetRecordResponse) -> Usage:
    """Returns the server's record from the first step with a lease on."""
    there = [series for series in answer.series if any(series.leases)]
    began = min((_first(series) for series in there), default=0)
    lines = (_line(series, _name(series, there), began) for series in there)
    ordered = tuple(sorted(lines, key=lambda line: (line.device, line.name)))
    start = answer.start_seconds + began * answer.step_seconds
    return Usage(start, answer.step_seconds, answer.steps - began, ordered)


def fewer(lines: list[Line], most: int) -> list[Line]:
    """Returns at most `most` lines: those with the most device time, and the sum of the others."""
    if len(lines) <= most:
        return lines
    by_use = sorted(lines, key=lambda line: -sum(line.share))
    kept = {line.name for line in by_use[: most - 1]}
    rest = [line for line in lines if line.name not in kept]
    return [*(line for line in lines if line.name in kept), _sum(rest)]


def _first(series: UsageSeries) -> int:
    return next(i for i, count in enumerate(series.leases) if count)


def _name(series: UsageSeries, others: Sequence[UsageSeries]) -> str:
    """Returns the tenant's name, or a lease's tenant and key. The lease's id is added if another
    lease had the same key.
    """
    if not series.lease_id:
        return series.tenant
    whose = (series.device, series.tenant, series.key)
    same = sum((one.device, one.tenant, one.key) == whose for one in others)
    name = f"{series.tenant} / {series.key}"
    return name if same == 1 else f"{name} ({series.lease_id})"


def _line(series: UsageSeries, name: str, began: int) -> Line:
    def parts(values: object) -> tuple[float, ...]:
        return tuple(v / PPM for v in list(values)[began:])  # type: ignore[call-overload]

    def each(values: object) -> tuple[float, ...]:
        return tuple(
            part / max(count, 1)
            for part, count in zip(parts(values), series.leases[began:], strict=True)
        )

    return Line(
        name=name,
        device=series.device,
        present=tuple(count > 0 for count in series.leases[began:]),
        share=parts(series.share_ppm),
        request=parts(series.request_ppm),
        limit=parts(series.limit_ppm),
        waiting=each(series.waiting_ppm),
        throttled=each(series.throttled_ppm),
        memory=tuple(series.memory_used_bytes[began:]),
        launches=sum(series.launches[began:]),
        tenant=series.tenant,
        seams=tuple(series.seams),
    )


def _sum(lines: list[Line]) -> Line:
    def added(name: str) -> tuple[float, ...]:
        return tuple(map(sum, zip(*(getattr(line, name) for line in lines), strict=True)))

    return Line(
        name=f"{len(lines)} {OTHERS}",
        device=lines[0].device,
        present=tuple(map(any, zip(*(line.present for line in lines), strict=True))),
        share=added("share"),
        request=added("request"),
        limit=tuple(min(limit, 1.0) for limit in added("limit")),
        waiting=tuple(part / len(lines) for part in added("waiting")),
        throttled=tuple(part / len(lines) for part in added("throttled")),
        memory=tuple(int(b) for b in added("memory")),
        launches=sum(line.launches for line in lines),
    )
