"""Colours of the lines in a picture: a hue for each tenant, shades of it for its leases."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.observe.usage import Line

COLOURS = (
    "#3b6fb6", "#e8862e", "#3f9b57", "#cf4b4b", "#7e62b3", "#17a2a8", "#b8860b", "#8a6d5c",
)  # fmt: skip
# Of all that are drawn as one.
_OTHERS = "#9aa5b1"
# From the darkest to the lightest shade: how much black or white is in it.
_DARKEST, _LIGHTEST = -0.35, 0.5


def colours_of(lines: Sequence[Line]) -> list[str]:
    """Returns a colour for each line.  Where all are of one tenant each has a hue of its own."""
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
    """The shade of that index among `count`; one alone is the colour itself."""
    if count == 1:
        return colour
    part = _DARKEST + (_LIGHTEST - _DARKEST) * index / (count - 1)
    target = 255 if part > 0 else 0
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (target - c) * abs(part)):02x}" for c in channels)
