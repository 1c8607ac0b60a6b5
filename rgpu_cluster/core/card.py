"""Cards of a pool: what they are, and what of them is free."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field

from rgpu_common.mig import full_name
from rgpu_common.units import PPM


class CardId(NamedTuple):
    """A card: the name of its node, and its number there."""

    node: str
    ordinal: int

    def __str__(self) -> str:
        return f"{self.node}/{self.ordinal}"


class Card(Struct, frozen=True):
    """One GPU, or one MIG slice of a GPU, as its node reports it.

    memory_bytes: all of its memory.
    pool: the name under which the operator groups cards; a request may name it.
    location: the place in the node's topology, outermost part first: NUMA node, PCI host bridge,
        PCI switch, and the link group of cards that NVLink connects. Cards that share more leading
        parts are closer to each other.
    mig: the profile of a MIG slice ("1g.10gb"), "" for a whole GPU. part_ppm: what part of a GPU it
        is. A share is a share of the card: 100 % of a slice is the whole slice.
    """

    id: CardId
    model: str
    memory_bytes: int
    pool: str = ""
    location: tuple[str, ...] = ()
    mig: str = ""
    part_ppm: int = PPM

    @property
    def title(self) -> str:
        """The model, with the profile of a slice."""
        return full_name(self.model, self.mig)


class Labels(Struct, frozen=True):
    """What a request asks of its neighbours on a card (KubeShare's words).

    affinity: only on a card whose leases have the same word, or on an idle card.
    anti_affinity: on no card that has a lease with the same word.
    exclusion: all leases of a card have the same exclusion; "" counts as a word of its own.
    """

    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""


class Load(Struct, frozen=True):
    """What leases take of a card. Two cards with equal loads are equally good for any request.

    used_ppm: the guaranteed shares of the leases. Time that is lent counts as free here, because
        it is given back on demand; a share that is guaranteed never counts as free.
    used_bytes: the memory of the leases.
    leases: their number.
    affinity, anti_affinity: the words that the leases carry, sorted, each as often as it occurs.
    exclusion: the exclusion that all leases share; None without leases.
    whole: a lease has the card for itself.
    """

    used_ppm: int = 0
    used_bytes: int = 0
    leases: int = 0
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    exclusion: str | None = None
    whole: bool = False

    @property
    def idle(self) -> bool:
        """True if no lease is on the card."""
        return self.leases == 0


IDLE = Load()


class Elastic(Struct, frozen=True):
    """Between what a lease may shrink, and what it asked for."""

    least_ppm: int
    least_bytes: int
    wanted_ppm: int
    wanted_bytes: int


class Holding(Struct, frozen=True):
    """What one lease has of one card.

    attempt: which placement of the request this is, counted by the manager. elastic: None: it never
    shrinks. since: when it was granted, in seconds since 1970; 0: its daemon has not said so yet.
    order: the number of the last change of size that its daemon knows of. reserved: it ends at its
    time, and not with a program. name: what people call the lease.
    """

    lease: str
    tenant: str
    share_ppm: int
    memory_bytes: int
    labels: Labels = field(default_factory=Labels)
    whole: bool = False
    attempt: int = 0
    elastic: Elastic | None = None
    priority: int = 0
    since: int = 0
    order: int = 0
    reserved: bool = False
    name: str = ""


def gpu_ppm(card: Card, holding: Holding) -> int:
    """Returns what part of a GPU a lease has on a card."""
    share = PPM if holding.whole else holding.share_ppm
    return share * card.part_ppm // PPM


def load_of(holdings: list[Holding]) -> Load:
    """Returns the load that holdings put on a card."""
    if not holdings:
        return IDLE
    return Load(
        used_ppm=sum(h.share_ppm for h in holdings),
        used_bytes=sum(h.memory_bytes for h in holdings),
        leases=len(holdings),
        affinity=tuple(sorted(h.labels.affinity for h in holdings if h.labels.affinity)),
        anti_affinity=tuple(
            sorted(h.labels.anti_affinity for h in holdings if h.labels.anti_affinity)
        ),
        exclusion=holdings[0].labels.exclusion,
        whole=any(h.whole for h in holdings),
    )


def load_with(load: Load, more: Holding) -> Load:
    """Returns the load of a card that has one more lease."""
    words = more.labels
    return Load(
        used_ppm=load.used_ppm + more.share_ppm,
        used_bytes=load.used_bytes + more.memory_bytes,
        leases=load.leases + 1,
        affinity=_and(load.affinity, words.affinity),
        anti_affinity=_and(load.anti_affinity, words.anti_affinity),
        exclusion=words.exclusion if load.exclusion is None else load.exclusion,
        whole=load.whole or more.whole,
    )


def _and(words: tuple[str, ...], word: str) -> tuple[str, ...]:
    return tuple(sorted((*words, word))) if word else words


def size_of(holding: Holding) -> tuple[object, ...]:
    """Returns what of a lease decides how much room is beside it, or can be."""
    size = holding.lease, holding.share_ppm, holding.memory_bytes, holding.whole
    return (*size, holding.elastic, holding.attempt)


def free_ppm(load: Load) -> int:
    """Returns the share of the card that is not guaranteed to a lease."""
    return 0 if load.whole else PPM - load.used_ppm
