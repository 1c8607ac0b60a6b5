"""What others call shares of a card, and what their units mean. Pure."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubernetes.legacy.vendors import (
    GIB,
    GPU_MEM,
    GPU_PERCENT,
    QCORE,
    QMEM,
    VCORE,
    VMEM,
)
from rgpu_common.units import PPM, VMEM_BYTES

# Parts of a card's time are offered in hundredths.
HUNDREDTHS = 100
_PPM_EACH = PPM // HUNDREDTHS
# The kubelet's messages have at most 4 MiB, and a node has up to 128 cards.
_MOST_IDS = 4096


class Kind(Enum):
    """What a unit is a part of."""

    CORE = "core"
    MEMORY = "memory"


class Resource(Struct, frozen=True):
    """One resource of a vocabulary.

    unit_bytes: the memory of a unit; 0: a unit is a hundredth of a card's time.
    leads: each container that uses the vocabulary names this resource.
    """

    name: str
    unit_bytes: int = 0
    leads: bool = False

    @property
    def kind(self) -> Kind:
        return Kind.MEMORY if self.unit_bytes else Kind.CORE

    def count(self, memory_bytes: int) -> int:
        """Returns how many units a card of this size has."""
        return min(memory_bytes // self.unit_bytes, _MOST_IDS) if self.unit_bytes else HUNDREDTHS


class Vocabulary(Struct, frozen=True):
    """The resources of one project. The first leads. burst: a container may use idle time beyond
    its share.
    """

    name: str
    resources: tuple[Resource, ...]
    burst: bool = False

    @property
    def leading(self) -> Resource:
        return self.resources[0]


class Asked(Struct, frozen=True):
    """What a container asks of cards. whole: all of each of `cards` cards. limit_ppm: how much time
    it may use; that is idle time beyond its share.
    """

    cards: int = 1
    whole: bool = False
    share_ppm: int = 0
    limit_ppm: int = PPM
    memory_bytes: int = 0


VOCABULARIES = {
    one.name: one
    for one in (
        Vocabulary("gpumanager", (
            Resource(VCORE, leads=True),
            Resource(VMEM, VMEM_BYTES),
        )),
        Vocabulary("gpushare", (
            Resource(GPU_MEM, GIB, leads=True),
            Resource(GPU_PERCENT),
        )),
        Vocabulary("qgpu", (
            Resource(QCORE, leads=True),
            Resource(QMEM, GIB),
        ), burst=True),
    )
}  # fmt: skip


def asked(vocabulary: Vocabulary, units: dict[str, int]) -> Asked:
    """Returns what a container asks for. units: how many of each resource it has.

    Raises:
        PrepareError: no lease can be so.
    """
    core = sum(units.get(one.name, 0) for one in vocabulary.resources if one.kind is Kind.CORE)
    memory = sum(units.get(one.name, 0) * one.unit_bytes for one in vocabulary.resources)
    check_core(core)
    if core >= HUNDREDTHS:
        return Asked(cards=core // HUNDREDTHS, whole=True)
    if core and not memory and vocabulary.leading.kind is Kind.CORE:
        (name,) = (one.name for one in vocabulary.resources if one.kind is Kind.MEMORY)
        raise PrepareError(
            f"the container asks for a part of a card's time and for none of its memory: name "
            f"{name} too"
        )
    share = core * _PPM_EACH
    limit = PPM if vocabulary.burst or not share else share
    return Asked(share_ppm=share, limit_ppm=limit, memory_bytes=memory)


def check_core(core: int) -> None:
    """Raises PrepareError for more than one card that is not a number of whole cards."""
    if core > HUNDREDTHS and core % HUNDREDTHS:
        raise PrepareError(
            f"{core} hundredths are neither a part of one card nor whole cards: ask for less than "
            f"{HUNDREDTHS}, or for a multiple of {HUNDREDTHS}"
        )
