"""The colours of a picture's lines: each tenant has a hue, and its leases have shades of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.observe.usage import Line

COLOURS = (
    "#3b6fb6", "#e8862e", "#3f9b57", "#cf4b4b", "#7e62b3", "#17a2a8", "#b8860b", "#8a6d5c",
)  # fmt: skip
# The colour of the line that is the sum of several tenants.
_OTHERS = "#9aa5b1"
# The part of black (below 0) or white (above 0) in the darkest and in the lightest shade.
_DARKEST, _LIGHTEST = -0.35, 0.5


def colours_of(lines: Sequence[Line]) -> list[str]:
    """Returns a colour for each line. If all lines have the same tenant, each has its own hue."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, line in enumerate(lines):
        places[line.tenant].append(place)
    others = places.pop("", [])
    alone = len(places) == 1
    colours = dict.fromkeys(others, _OTHERS)
    for hue, mine in enumerate(places.values()):
        for i, place in enumerate(mine):
            base = COLOURS[(i if alone else hue) % len(COLOURS)]
            colours[place] = base if alone else _shade(base, i, len(mine))
    return [colours[place] for place in range(len(lines))]


def _shade(colour: str, index: int, count: int) -> str:
    """Returns shade number `index` of `count`. A single shade is the colour itself."""
    if count == 1:
        return colour
    part = _DARKEST + (_LIGHTEST - _DARKEST) * index / (count - 1)
    target = 255 if part > 0 else 0
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (target - c) * abs(part)):02x}" for c in channels)
