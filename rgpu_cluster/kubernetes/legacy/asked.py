"""What one container asks for, whatever words its pod used. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from msgspec import Struct, field

from rgpu_cluster.core.card import Labels
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Client, Mode, Request
from rgpu_cluster.kubernetes.names import CORE, DRIVER, GROUP, MEMORY, VERSION
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM, format_bytes

# The name of the one request in each of our claims.
REQUEST = "gpu"
_MIB = 1 << 20
# How long a lease without a claim waits for a program of its pod: images are pulled meanwhile.
START_SECONDS = 600


class Asked(Struct, frozen=True):
    """One description of a container's cards.

    container: its name; "": all containers of the pod share the cards.
    words: the system whose words they were.
    cards: how many; each has the core and the memory below.
    core: the guaranteed percent of a card's time, 1 to 100. limit: the most, in percent; None:
        no more than `core`.
    memory_bytes, memory_percent: of each card; both 0: all of it.
    whole: the cards for this container alone; then core and memory say nothing.
    priority: which lease gets idle time first.
    model, pool: only such cards; "": any.
    before: init containers that use the same cards before `container` starts.
    """

    container: str
    words: str
    cards: int = 1
    core: int = 100
    limit: int | None = None
    memory_bytes: int = 0
    memory_percent: int = 0
    whole: bool = False
    labels: Labels = field(default_factory=Labels)
    priority: int = 0
    model: str = ""
    pool: str = ""
    before: tuple[str, ...] = ()

    def serves(self, container: str) -> bool:
        """Returns whether a container uses these cards."""
        return self.container in ("", container) or container in self.before


def claim_spec(asked: Asked) -> dict[str, Any]:
    """Returns the spec of the ResourceClaim.

    Raises:
        RequestError: a claim cannot say it; the sentence says what to write instead.
    """
    if asked.memory_percent:
        raise RequestError(
            f"{user_of(asked.container)} asks for {asked.memory_percent}% of a card's memory, and "
            "a claim counts bytes because its card is not chosen yet; write the memory in MiB "
            "(nvidia.com/gpumem)"
        )
    exactly: dict[str, Any] = {"deviceClassName": DRIVER}
    if asked.cards > 1:
        exactly["count"] = asked.cards
    if not asked.whole:
        sizes = {CORE: str(asked.core)}
        if asked.memory_bytes:
            sizes[MEMORY] = quantity_of(asked.memory_bytes)
        exactly["capacity"] = {"requests": sizes}
    spec: dict[str, Any] = {"requests": [{"name": REQUEST, "exactly": exactly}]}
    parameters = _parameters(asked)
    if parameters:
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuRequest"}
        opaque = {"driver": DRIVER, "parameters": {**kind, **parameters}}
        spec["config"] = [{"requests": [REQUEST], "opaque": opaque}]
    return {"devices": spec}


def _parameters(asked: Asked) -> dict[str, Any]:
    """Returns the fields of a GpuRequest that are not at their defaults."""
    if asked.whole:
        said: dict[str, Any] = {"whole": True}
    elif asked.limit is None or asked.limit == asked.core:
        said = {}
    elif asked.limit == 100:
        said = {"policy": SharePolicy.BURST.word}
    else:
        said = {"limit": f"{asked.limit}%"}
    named = {
        "affinity": asked.labels.affinity,
        "antiAffinity": asked.labels.anti_affinity,
        "exclusion": asked.labels.exclusion,
        "priority": asked.priority,
        "model": asked.model,
        "pool": asked.pool,
    }
    return said | {name: value for name, value in named.items() if value}


def user_of(container: str) -> str:
    """Returns who asks, for sentences."""
    return f"container {container}" if container else "the pod"


def quantity_of(size: int) -> str:
    """Returns a size as Kubernetes writes it: 8Gi, 300Mi, 1000."""
    if size == 0:
        return "0"
    for unit, factor in (("Gi", 1 << 30), ("Mi", _MIB), ("Ki", 1 << 10)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def template_name(spec: dict[str, Any]) -> str:
    """Returns the name of the template for a claim. Equal claims have one template."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"rgpu-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def request_of(asked: Asked, ident: str, tenant: str, client: Client, farthest: Mode) -> Request:
    """Returns the request of the core, for clusters without claims.

    ident: its id. client: where the pod runs or may run. farthest: how far the cards may be.
    """
    share = PPM if asked.whole else asked.core * PPM // 100
    limit = share if asked.limit is None or asked.whole else asked.limit * PPM // 100
    return Request(
        id=ident,
        tenant=tenant,
        share_ppm=share,
        memory_bytes=0 if asked.whole else asked.memory_bytes,
        memory_ppm=_memory_ppm(asked),
        cards=asked.cards,
        limit_ppm=limit,
        whole=asked.whole,
        model=asked.model,
        pool=asked.pool,
        client=client,
        farthest=farthest,
        labels=asked.labels,
        priority=asked.priority,
        one_node=asked.cards > 1,
        kept=True,
        come_seconds=START_SECONDS,
    )


def _memory_ppm(asked: Asked) -> int:
    if asked.memory_bytes and not asked.whole:
        return 0
    percent = 100 if asked.whole or not asked.memory_percent else asked.memory_percent
    return percent * PPM // 100


def describe(asked: Asked) -> str:
    """Returns what is asked for, in words: "2 cards", "40% of a card and 8 GiB"."""
    if asked.whole:
        return "a whole card" if asked.cards == 1 else f"{asked.cards} whole cards"
    memory = f"{asked.memory_percent}% of its memory" if asked.memory_percent else "all its memory"
    if asked.memory_bytes:
        memory = format_bytes(asked.memory_bytes)
    count = "" if asked.cards == 1 else f"{asked.cards} times "
    return f"{count}{asked.core}% of a card and {memory}"
