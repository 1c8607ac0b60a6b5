"""Reads the GPU words of other systems from a pod: one description for each container. Pure.

A pod is a dictionary as in YAML. Which words mean what: `legacy.vendors`, and
docs/how-to/migrating.md with examples.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Client, Mode
from rgpu_cluster.kubernetes.legacy.asked import request_of
from rgpu_cluster.kubernetes.legacy.init_containers import Use, When, pod_request
from rgpu_cluster.kubernetes.legacy.vendors import SYSTEMS, Options, Words
from rgpu_cluster.kubernetes.names import GROUP, MANAGED, PLACEMENT_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rgpu_cluster.kubernetes.legacy.asked import Asked
    from rgpu_cluster.kubernetes.legacy.vendors import System

# Annotations of ours beside old words: which cards a pod wants.
MODEL, POOL = f"{GROUP}/model", f"{GROUP}/pool"
DEFAULT_SCHEDULER = "default-scheduler"
CONTAINERS = ("initContainers", "containers")
_MOST_TEXT = 63
_MOST = 1 << 50
_WHOLE = re.compile(r"([0-9]{1,18})(?:\.0{1,9})?(k|M|G|T|Ki|Mi|Gi|Ti|e[0-9])?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**n for n, unit in enumerate("KMGT", 1)}


class Found(Struct, frozen=True):
    """What a pod asks for.

    asked: a description for each container that asks for cards.
    warnings: words that are not kept, and why, for the person who made the pod.
    """

    asked: tuple[Asked, ...] = ()
    warnings: tuple[str, ...] = ()


def read(pod: Mapping[str, Any], options: Options | None = None) -> Found:
    """Returns what the pod asks for in old words; an empty answer if it uses none.

    Raises:
        RequestError: the words contradict each other, or rgpu cannot do it; the sentence says what
            to write instead.
    """
    options = options or Options()
    uses: list[Use] = []
    warnings: list[str] = []
    systems = []
    for container, when in _runs(pod):
        system = _system_of(container, pod)
        if system is None or (system.annotation and system in systems):
            continue
        systems.append(system)
        one = system.read(_words(container, system, pod), options)
        # Words in annotations are for all containers together.
        uses.append(Use(_with_cards(one, pod), When.LAST if system.annotation else when))
    asked = pod_request(uses)
    if asked:
        warnings += _warnings(pod, systems)
        for one in asked:
            # The core's own rules for contradictions. No pool is asked.
            request_of(one, "0" * 16, "tenant", Client(), Mode.ANY)
    return Found(tuple(asked), tuple(warnings))


def uses_old_words(pod: Mapping[str, Any]) -> bool:
    """Returns whether any container asks in old words."""
    return any(_system_of(one, pod) is not None for one in containers_of(pod))


def containers_of(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the containers, those that run first before the others."""
    for kind in CONTAINERS:
        yield from _spec(pod).get(kind) or []


def _runs(pod: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], When]]:
    """Yields the containers as `containers_of`, with when each runs."""
    for one in _spec(pod).get("initContainers") or []:
        sidecar = one.get("restartPolicy") == "Always"
        yield one, When.FROM_START if sidecar else When.BEFORE
    for one in _spec(pod).get("containers") or []:
        yield one, When.LAST


def old_resources(container: Mapping[str, Any]) -> set[str]:
    """Returns the names of the old resources that a container has."""
    known = {name for system in SYSTEMS for name in system.resources}
    return known & _resources(container).keys()


def annotations_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the annotations of a pod."""
    return _metadata(pod).get("annotations") or {}


def labels_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the labels of a pod."""
    return _metadata(pod).get("labels") or {}


def _metadata(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("metadata") or {}


def _spec(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    return pod.get("spec") or {}


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    """Returns limits and requests together."""
    found = container.get("resources") or {}
    limits, requests = found.get("limits") or {}, found.get("requests") or {}
    return {**requests, **limits}


def _system_of(container: Mapping[str, Any], pod: Mapping[str, Any]) -> System | None:
    """Returns the system whose words a container uses.

    Raises:
        RequestError: it uses words of two systems.
    """
    asked = _resources(container).keys()
    managed = labels_of(pod).get(PLACEMENT_LABEL) == MANAGED
    annotated = annotations_of(pod).keys()
    found = [one for one in SYSTEMS if one.used(asked, annotated, managed)]
    if len(found) > 1:
        names = " and ".join(one.name for one in found)
        raise RequestError(
            f"container {container.get('name', '')} uses the words of {names}; keep those of one"
        )
    return found[0] if found else None


def _words(container: Mapping[str, Any], system: System, pod: Mapping[str, Any]) -> Words:
    name = "" if system.annotation else str(container.get("name", ""))
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    numbers: dict[str, int] = {}
    for one in system.resources:
        said = {_whole(one, side[one]) for side in (limits, requests) if one in side}
        if len(said) > 1:
            raise RequestError(
                f"container {name} has different requests and limits of {one}; write them alike"
            )
        if said:
            numbers[one] = said.pop()
    return Words(name, numbers, annotations_of(pod), labels_of(pod))


def _whole(name: str, value: Any) -> int:
    """Returns a count as Kubernetes writes it: 40, "40", "10k"."""
    text = str(value)
    found = None if isinstance(value, bool) else _WHOLE.fullmatch(text)
    if found is None:
        raise RequestError(f"{name} is a whole number, and not {text[:40]!r}")
    unit = found[2] or ""
    scale = 10 ** int(unit[1]) if unit.startswith("e") else _UNITS[unit]
    number = int(Decimal(found[1])) * scale
    if number > _MOST:
        raise RequestError(f"no card has so much of {name}: {text[:40]}")
    return number


def _with_cards(asked: Asked, pod: Mapping[str, Any]) -> Asked:
    """Adds which cards the pod wants."""
    annotations = annotations_of(pod)
    model, pool = (str(annotations.get(name, "")) for name in (MODEL, POOL))
    for name, text in ((MODEL, model), (POOL, pool)):
        if len(text) > _MOST_TEXT or not text.isprintable():
            raise RequestError(f"annotation {name} has at most {_MOST_TEXT} printable characters")
    return replace(asked, model=model, pool=pool)


def _warnings(pod: Mapping[str, Any], systems: list[System]) -> Iterator[str]:
    annotations = annotations_of(pod)
    for system in dict.fromkeys(systems):
        for name, why in system.dropped.items():
            if name in annotations:
                yield f"rgpu does not keep the annotation {name}: {why}"
    scheduler = _spec(pod).get("schedulerName") or DEFAULT_SCHEDULER
    if scheduler != DEFAULT_SCHEDULER:
        yield (
            f"the pod names the scheduler {scheduler}; rgpu needs {DEFAULT_SCHEDULER}, so leave "
            "spec.schedulerName out if that scheduler does not run any more"
        )
