"""The opaque parameters of a claim or a DeviceClass: `kind: GpuRequest`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from rgpu_cluster.core.card import Labels
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Mode, Profile
from rgpu_cluster.kubernetes.names import GROUP, VERSION
from rgpu_common.errors import UnitError
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, SharePolicy, parse_policy
from rgpu_common.units import PPM, parse_memory_bytes, parse_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GpuRequest"
_MOST_TEXT = 63
_MOST_SLOWDOWN = 100_000_000
# What a program sends for each second of device time, by the words of netprobe's workloads.
PROFILES = {
    "mixed": Profile(),
    "call": Profile(calls=20_000, syncs=2_000, up_bytes=1 << 20, down_bytes=1 << 20),
    "bulk": Profile(calls=200, syncs=20, up_bytes=1 << 30, down_bytes=256 << 20),
    "training": Profile(calls=4_000, syncs=4, up_bytes=128 << 20, down_bytes=1 << 20),
    "inference": Profile(calls=6_000, syncs=200, up_bytes=32 << 20, down_bytes=8 << 20),
}


class Parameters(Struct, frozen=True):
    """What a claim asks for beside the capacities of a card. The fields are those of
    `rgpu_cluster.core.Request`.
    """

    policy: SharePolicy | None = None
    limit_ppm: int | None = None
    priority: int = 0
    weight: int = 1
    profile: Profile = field(default_factory=Profile)
    max_slowdown_ppm: int | None = None
    mode: Mode = Mode.ANY
    labels: Labels = field(default_factory=Labels)
    whole: bool = False
    model: str = ""
    pool: str = ""
    mig: str = ""
    least_ppm: int | None = None
    least_bytes: int | None = None
    max_per_node: int = 0
    max_per_rack: int = 0
    max_per_zone: int = 0
    one_node: bool = True
    bandwidth_bps: int = 0

    def limit_of(self, share_ppm: int) -> int:
        """Returns the cap on a share: without a limit and a policy it is the share."""
        if self.limit_ppm is not None:
            return self.limit_ppm
        return share_ppm if self.policy in (None, SharePolicy.FIXED) else PPM


def parameters_of(*layers: Mapping[str, Any]) -> Parameters:
    """Returns what the layers say, the last of them first: those of a claim after its class's.

    Raises:
        RequestError: a layer is not a GpuRequest, or has a field or a value that is not known.
    """
    said: dict[str, Any] = {}
    words: dict[str, str] = {}
    for layer in layers:
        _check_kind(layer)
        for name, value in layer.items():
            if name in ("apiVersion", "kind"):
                continue
            row = _FIELDS.get(name)
            if row is None:
                raise RequestError(
                    f"{KIND} has no field {name!r}; it has {', '.join(sorted(_FIELDS))}"
                )
            target, read = row
            found = _read(name, value, read)
            if target in _LABELS:
                words[target] = found
            else:
                said[target] = found
    return Parameters(**said, labels=Labels(**words))


def in_fields(sentence: str) -> str:
    """Returns a sentence for users of `rgpu run` in the words of a claim."""
    return _OPTION.sub(lambda found: _WORDS.get(found[0], found[0]), sentence)


def _check_kind(layer: Mapping[str, Any]) -> None:
    if not isinstance(layer, dict):
        raise RequestError(f"the parameters are no object: write `kind: {KIND}`")
    kind = layer.get("apiVersion"), layer.get("kind")
    if kind != (API_VERSION, KIND):
        raise RequestError(
            f"the parameters are of apiVersion {kind[0]!r} and kind {kind[1]!r}; write "
            f"`apiVersion: {API_VERSION}` and `kind: {KIND}`"
        )


def _read(name: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ArithmeticError:
        raise RequestError(f"{KIND}.{name}: {str(value)[:40]!r} is too large a number") from None
    except (UnitError, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{KIND}.{name}: {error}") from None


def _share(value: Any) -> int:
    return parse_share(_text(value))


def _slowdown(value: Any) -> int:
    """A percentage that may be above 100 %."""
    text = _text(value)
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"{text!r} is not a slowdown; write 5%") from None
    ppm = number * (10_000 if text.endswith("%") else 1_000_000)
    if not 0 <= ppm <= _MOST_SLOWDOWN:
        raise ValueError(f"{text!r} is not a slowdown; write 5%")
    return round(ppm)


def _bytes(value: Any) -> int:
    """Kubernetes has no K, and its k is 1000."""
    text = _text(value)
    return parse_memory_bytes(text.replace("k", "K") if text.endswith("k") else text)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no text; write it in quotes")
    text = str(value)
    if len(text) > _MOST_TEXT or not text.isprintable():
        raise ValueError(f"a text has at most {_MOST_TEXT} printable characters")
    return text


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false; write one of them without quotes")
    return value


def _number(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(
                f"{value!r} is no whole number of {least} to {most}; write one without quotes"
            )
        return value

    return read


def _one_of(table: Mapping[str, Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        try:
            return table[_text(value)]
        except KeyError:
            raise ValueError(f"{value!r} is none of {', '.join(table)}") from None

    return read


def _policy(value: Any) -> SharePolicy:
    return parse_policy(_text(value))


# An option of `rgpu run` -> what says the same in a claim.
_OPTION = re.compile(r"--[a-z-]+")
_WORDS = {
    "--memory": "capacity memory",
    "--share": "capacity core",
    "--cards": "count",
    "--model": "model",
    "--pool": "pool",
    "--priority": "priority",
    "--limit": "limit",
    "--min-share": "minShare",
    "--min-memory": "minMemory",
    "--mig": "mig",
    "--whole": "whole",
    "--local": "mode local",
    "--near": "mode near",
    "--affinity": "affinity",
    "--anti-affinity": "antiAffinity",
    "--exclusive-label": "exclusion",
    "--max-slowdown": "maxSlowdown",
    "--max-per-node": "maxPerNode",
    "--max-per-rack": "maxPerRack",
    "--max-per-zone": "maxPerZone",
    "--across-nodes": "oneNode: false",
}
_LABELS = frozenset(Labels.__struct_fields__)
_MODES = {mode.word: mode for mode in Mode}
# The field of a GpuRequest -> the field of Parameters or Labels, and what reads it.
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "policy": ("policy", _policy),
    "limit": ("limit_ppm", _share),
    "priority": ("priority", _number(0, MAX_PRIORITY)),
    "weight": ("weight", _number(1, MAX_WEIGHT)),
    "profile": ("profile", _one_of(PROFILES)),
    "maxSlowdown": ("max_slowdown_ppm", _slowdown),
    "mode": ("mode", _one_of(_MODES)),
    "affinity": ("affinity", _text),
    "antiAffinity": ("anti_affinity", _text),
    "exclusion": ("exclusion", _text),
    "whole": ("whole", _flag),
    "model": ("model", _text),
    "pool": ("pool", _text),
    "mig": ("mig", _text),
    "minShare": ("least_ppm", _share),
    "minMemory": ("least_bytes", _bytes),
    "maxPerNode": ("max_per_node", _number(1, 1024)),
    "maxPerRack": ("max_per_rack", _number(1, 1024)),
    "maxPerZone": ("max_per_zone", _number(1, 1024)),
    "oneNode": ("one_node", _flag),
    "bandwidth": ("bandwidth_bps", _number(0, 1 << 50)),
}
