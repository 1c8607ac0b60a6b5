"""The answer to a request: where it is placed, or why it is not; and how that was decided."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.core.filters import Reason
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.core.card import CardId
    from rgpu_cluster.core.request import Mode, Request
    from rgpu_cluster.core.score import Score


class Candidate(Struct, frozen=True):
    """A place that was possible.

    cards: the cards that would be taken. equal: how many more cards were as good.
    """

    cards: tuple[CardId, ...]
    mode: Mode
    slowdown_ppm: int
    transport: str
    measured: bool
    score: Score
    equal: int = 0


_OF_ONE_MACHINE = ("", "shm", "unix")
# Of the nodes with a reason so many are named.
MOST_NODES = 4


class Rejected(NamedTuple):
    """Why the cards of one class could not take a request, and how many they are. nodes: some of
    their nodes, if the reason is one of `OF_NODE`.
    """

    reason: Reason
    cards: int
    nodes: tuple[str, ...] = ()


class Excluded(Struct, frozen=True):
    """All cards that could not take a request for one reason. nodes: as `Rejected` has them."""

    reason: Reason
    cards: int
    classes: int
    nodes: tuple[str, ...] = ()

    @property
    def because(self) -> str:
        """Returns the reason, with the names of nodes."""
        return f"{self.reason.value} ({', '.join(self.nodes)})" if self.nodes else self.reason.value


def excluded(rejected: Iterable[Rejected]) -> tuple[Excluded, ...]:
    """Returns the reasons with their cards, those with the most cards first."""
    cards: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for reason, count, names in rejected:
        cards[reason.name] += count
        classes[reason.name] += bool(count)
        nodes.setdefault(reason.name, set()).update(names)
    ordered = sorted(cards.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Excluded(Reason[name], count, classes[name], _some(nodes[name]))
        for name, count in ordered
        if count
    )


def _some(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the first names; "..." stands for the others."""
    found = sorted(names)
    return (*found[:MOST_NODES], *(["..."] if len(found) > MOST_NODES else []))


class Decision(Struct, frozen=True):
    """A place for the request, the best alternatives, and what was excluded.

    generation: that of the pool for which the decision holds.
    """

    request: Request
    chosen: Candidate
    generation: int
    others: tuple[Candidate, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class Refusal(Struct, frozen=True):
    """No place for the request now. possible: an empty pool could take it, so waiting may help.
    each: of several alternatives, why there is no place for each, in their order.
    """

    request: Request
    generation: int
    rejected: tuple[Rejected, ...]
    possible: bool
    remedy: str
    each: tuple[Refusal, ...] = ()


def combined(refusals: Sequence[Refusal]) -> Refusal:
    """Returns why there is no place for any alternative. It is that of the first for which waiting
    may help.
    """
    if len(refusals) == 1:
        return refusals[0]
    first = next((one for one in refusals if one.possible), refusals[0])
    return replace(first, each=tuple(refusals))


def why(chosen: Candidate) -> str:
    """Returns the reason for a choice in one sentence."""
    cards = ", ".join(str(card) for card in chosen.cards)
    far = {
        "passthrough": "whole, on the program's own node",
        "local": "on the program's own node",
        "near": "in the program's rack",
        "any": "on another node",
    }[chosen.mode.word]
    if chosen.slowdown_ppm:
        # What was measured between two nodes of one machine says nothing of where this card is.
        over = "" if chosen.transport in _OF_ONE_MACHINE else f" over {chosen.transport}"
        known = "measured" if chosen.measured else "estimated, no trusted measurement of this path"
        far += f"; {chosen.slowdown_ppm * 100 / PPM:.1f} % slower{over} ({known})"
    return f"{cards}: {far}"
