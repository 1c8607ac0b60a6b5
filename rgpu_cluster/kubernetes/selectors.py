"""What the CEL selectors of a claim or a DeviceClass say of a card. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.names import CARD, DRIVER, GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_cluster.kubernetes.parameters import Parameters

_ATTRIBUTES = r"""device\.attributes\[["']""" + re.escape(GROUP) + r"""["']\]"""
# What a selector may say, because the placer does not run CEL: equalities joined by &&.
_EQUALITY = re.compile(
    r"""\s*(?:device\.driver|""" + _ATTRIBUTES
    + r"""\.([a-zA-Z]+))\s*==\s*["']([^"'\\]{1,63})["']\s*"""
)  # fmt: skip
# Whether a device is a MIG slice, as the classes of deploy/kubernetes say it.
_PRESENCE = re.compile(r"""\s*(!?)\s*\(?\s*["']mig["']\s+in\s+""" + _ATTRIBUTES + r"""\s*\)?\s*""")
_SELECTABLE = ("model", "pool", "mig")


class Choice(Struct, frozen=True):
    """Which cards a claim wants; "" for any, with `mig` for whole GPUs."""

    model: str
    pool: str
    mig: str


def choice_of(
    class_name: str,
    class_spec: Mapping[str, Any],
    selectors: Sequence[Mapping[str, Any]],
    asked: Parameters,
) -> Choice:
    """Returns which cards the selectors of a DeviceClass and of a claim, and its parameters, want.

    Raises:
        RequestError: a selector says something that the placer does not know, or what they say
            contradicts each other.
    """
    found: dict[str, str] = {}
    try:
        slices = _take_all(class_spec.get("selectors") or [], found)
    except RequestError as error:
        raise RequestError(f"DeviceClass {class_name!r}: {error}") from None
    slices |= _take_all(selectors, found)
    for name in _SELECTABLE:
        said = getattr(asked, name)
        if said and found.setdefault(name, said) != said:
            raise _contradiction(name, found[name], said)
    mig = found.get("mig", "")
    if True in slices and not mig:
        raise RequestError(
            f"the cards of DeviceClass {class_name!r} are MIG slices; write which profile, as "
            "`mig: 1g.10gb`"
        )
    if mig and False in slices:
        raise RequestError(
            f"DeviceClass {class_name!r} has no MIG slices, and {mig} was asked for; name the "
            f"class rgpu-mig.{GROUP}"
        )
    return Choice(found.get("model", ""), found.get("pool", ""), mig)


def _take_all(selectors: Iterable[Mapping[str, Any]], found: dict[str, str]) -> set[bool]:
    """Adds the attributes that selectors name; returns whether they want MIG slices or none."""
    slices = set()
    for selector in selectors:
        expression = str((selector.get("cel") or {}).get("expression", ""))
        for part in expression.split("&&"):
            present = _PRESENCE.fullmatch(part)
            if present is not None:
                slices.add(not present[1])
            else:
                _take(part, found)
    return slices


def _take(part: str, found: dict[str, str]) -> None:
    """Adds what an equality says. That a device is a card of ours need not be said."""
    one = _EQUALITY.fullmatch(part)
    if one is None:
        raise _strange(part)
    name, value = one[1], one[2]
    if name in (None, "kind"):
        if value != (DRIVER if name is None else CARD):
            raise _strange(part)
    elif name not in _SELECTABLE or not value.isprintable():
        # What is not printable would be shown to others, who look at the pool.
        raise _strange(part)
    elif found.setdefault(name, value) != value:
        raise _contradiction(name, found[name], value)


def _contradiction(name: str, one: str, other: str) -> RequestError:
    return RequestError(f"both the {name} {one!r} and {other!r} are asked for; keep one of them")


def _strange(part: str) -> RequestError:
    return RequestError(
        f"the placer does not know the selector {part.strip()[:80]!r}; write "
        f'device.attributes["{GROUP}"].model == "H200" (or pool, or mig), joined by &&'
    )
