"""What a cluster's manager has noted about a lease that it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBERS = (
    "attempt", "wanted_ppm", "wanted_bytes", "least_ppm", "least_bytes", "since", "number",
    "cards",
)  # fmt: skip


class Booked(Struct, frozen=True):
    """A lease that a cluster's manager asked for. It is for one run, and ends with it; or it is a
    reservation, and ends at its time; or it is kept, and ends when nobody keeps it alive.

    request: names the run's request in the whole cluster. attempt: which placement of the request
    this is. whole: the card is for this lease alone. affinity, anti_affinity, exclusion: words that
    only the manager understands. wanted_ppm, wanted_bytes: what was asked for; least_ppm,
    least_bytes: how far it may shrink, -1: it keeps that size; unused: it may shrink to the memory
    that is used. since: when it was granted, in seconds since 1970. number: the last order that
    changed its size. reserved: programs run in it one after another until its time is over. cards:
    how many cards the request has on all nodes; 0: nobody said. kept: programs come and go in it.
    """

    request: str
    attempt: int = 1
    whole: bool = False
    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""
    wanted_ppm: int = 0
    wanted_bytes: int = 0
    least_ppm: int = -1
    least_bytes: int = -1
    unused: bool = False
    since: int = 0
    number: int = 0
    reserved: bool = False
    cards: int = 0
    kept: bool = False

    def record(self) -> dict[str, Any]:
        """Returns the fields, for `booked_of`."""
        return asdict(self)


def booked_of(record: object) -> Booked | None:
    """Returns what `Booked.record` has written; None for anything else."""
    if not isinstance(record, dict):
        return None
    known = {name: record[name] for name in Booked.__struct_fields__ if _fits(name, record)}
    return Booked(**known) if known.get("request") else None


def _fits(name: str, record: Mapping[str, Any]) -> bool:
    kinds: dict[str, type] = dict.fromkeys(_NUMBERS, int)
    kind = {**kinds, "whole": bool, "unused": bool, "reserved": bool, "kept": bool}.get(name, str)
    return type(record.get(name)) is kind
