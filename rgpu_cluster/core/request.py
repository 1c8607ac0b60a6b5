"""A request for GPUs, and the checks that need no pool."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct, field

from rgpu_cluster.core.card import Elastic, Holding, Labels
from rgpu_cluster.core.errors import RequestError
from rgpu_common.clusters import MAX_REQUEST_CARDS
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM, format_bytes, format_share

MAX_LABEL = 63


class Mode(IntEnum):
    """How far a card is from the program. A smaller number is closer.

    PASSTHROUGH: the whole card, on the program's own node. LOCAL: a part of a card of the program's
    own node. NEAR: a card of another node in the same rack. ANY: a card of any node.
    """

    PASSTHROUGH = 0
    LOCAL = 1
    NEAR = 2
    ANY = 3

    @property
    def word(self) -> str:
        """Returns the name that users write."""
        return self.name.lower()


class Profile(Struct, frozen=True):
    """What a program sends for each second of device time that it uses.

    calls: commands posted without waiting. syncs: waits for an answer.
    """

    calls: int = 1000
    syncs: int = 8
    up_bytes: int = 8 << 20
    down_bytes: int = 2 << 20


class Client(Struct, frozen=True):
    """Where the program runs. node: "" if it is not on a node of the pool."""

    node: str = ""
    rack: str = ""
    nic: str = ""


class Request(Struct, frozen=True):
    """What one run asks for.

    id: names the request for ever; the same id is the same request.
    cards: the number of cards; each gets share_ppm and the memory.
    memory_bytes, memory_ppm: the memory, in bytes or in ppm of the card's; bytes count first.
    share_ppm: the guaranteed share of a card, 0 for best effort. limit_ppm: its cap; None: the
        policy decides, else the server's default.
    whole: each card for this request alone.
    model, pool, mig: only such cards; "" accepts any card (mig "": no MIG slice).
    farthest: the farthest mode that is allowed.
    max_slowdown_ppm: a remote card is refused if the network is predicted to make the program
        slower than this part of its device time.
    bandwidth_bps: the network bandwidth to reserve at the card's node, if the card is remote.
    max_per_node, max_per_rack, max_per_zone: the most cards of this request, or of its gang, in one
        node, rack or zone; 0: no limit. one_node: all cards are on one node.
    priority, weight: for the daemon, and the line; as `rgpu run` has them.
    barred: nodes whose daemons do not allow it.
    reserve_seconds: more than 0: a reservation, for so long.
    least_ppm, least_bytes: how far its leases may shrink while others need the room; None: it keeps
        that size.
    kept: its leases do not end with a program; they are kept alive by others.
    come_seconds: how long its leases wait for a program; 0: as long as usual.
    name: what people call it. It decides nothing.
    """

    id: str
    tenant: str
    share_ppm: int = PPM
    memory_bytes: int = 0
    memory_ppm: int = 0
    cards: int = 1
    limit_ppm: int | None = None
    policy: SharePolicy = SharePolicy.NONE
    whole: bool = False
    model: str = ""
    pool: str = ""
    mig: str = ""
    client: Client = field(default_factory=Client)
    farthest: Mode = Mode.ANY
    max_slowdown_ppm: int | None = None
    profile: Profile = field(default_factory=Profile)
    bandwidth_bps: int = 0
    labels: Labels = field(default_factory=Labels)
    max_per_node: int = 0
    max_per_rack: int = 0
    max_per_zone: int = 0
    one_node: bool = False
    priority: int = 0
    weight: int = 1
    barred: frozenset[str] = frozenset()
    least_ppm: int | None = None
    least_bytes: int | None = None
    reserve_seconds: int = 0
    kept: bool = False
    name: str = ""
    come_seconds: int = 0

    def __post_init__(self) -> None:
        for wrong, sentence in _contradictions(self):
            if wrong:
                raise RequestError(sentence)

    @property
    def reserved(self) -> bool:
        """True if it is a reservation, and no run."""
        return self.reserve_seconds > 0

    @property
    def most_ppm(self) -> int:
        """The most time of a card that it may have, with what others leave idle."""
        if self.whole or self.policy is SharePolicy.BURST:
            return PPM
        if self.policy is SharePolicy.FIXED:
            return self.share_ppm
        return PPM if self.limit_ppm is None else self.limit_ppm

    def memory_on(self, card_bytes: int) -> int:
        """Returns the memory that is asked for of a card with so many bytes."""
        return self.memory_bytes or self.memory_ppm * card_bytes // PPM


def _contradictions(r: Request) -> list[tuple[bool, str]]:
    """Returns each rule: whether the request breaks it, and the sentence that says so."""
    return [
        (not r.id, "a request needs an id"),
        (not r.tenant, f"request {r.id} names no tenant"),
        (
            not 1 <= r.cards <= MAX_REQUEST_CARDS,
            f"{r.cards} cards were asked for; ask for 1 to {MAX_REQUEST_CARDS}",
        ),
        *_sizes(r),
        *_bounds(r),
        *_neighbours(r),
        *_reach(r),
        *_leasts(r),
        (r.bandwidth_bps < 0, "a bandwidth is 0 or more bits a second"),
        (r.reserve_seconds < 0, "a reservation lasts 1 second or more"),
    ]


def _sizes(r: Request) -> list[tuple[bool, str]]:
    limit = PPM if r.limit_ppm is None else r.limit_ppm
    return [
        (
            not 0 <= r.share_ppm <= PPM,
            f"a share of {format_share(r.share_ppm)} was asked for, and a card has 100%; "
            "ask for more cards with --cards",
        ),
        (
            not r.share_ppm <= limit <= PPM or limit == 0,
            f"the share {format_share(r.share_ppm)} is above its limit "
            f"{format_share(limit)}; raise the limit, to at most 100%",
        ),
        (r.memory_bytes < 0, f"memory of {r.memory_bytes} bytes was asked for; ask for 0 or more"),
        (not 0 <= r.memory_ppm <= PPM, "a part of a card's memory is 0% to 100%"),
        (
            r.whole and r.share_ppm != PPM,
            f"a whole card was asked for with a share of {format_share(r.share_ppm)}; "
            "leave the share out",
        ),
    ]


def _neighbours(r: Request) -> list[tuple[bool, str]]:
    labels = (r.labels.affinity, r.labels.anti_affinity, r.labels.exclusion)
    return [
        (
            r.whole and bool(r.labels.affinity),
            f"a whole card was asked for that shares with {r.labels.affinity!r}; "
            "leave --affinity or the whole card out",
        ),
        (
            bool(r.labels.affinity) and r.labels.affinity == r.labels.anti_affinity,
            f"affinity and anti-affinity both name {r.labels.affinity!r}; leave one of them out",
        ),
        (
            any(len(label) > MAX_LABEL for label in labels),
            f"a label has at most {MAX_LABEL} characters",
        ),
    ]


def _reach(r: Request) -> list[tuple[bool, str]]:
    return [
        (
            r.farthest is Mode.PASSTHROUGH and not r.whole,
            "passthrough gives the whole card; ask for a whole card, or for --local",
        ),
        (
            r.farthest <= Mode.LOCAL and not r.client.node,
            "a local card was asked for, and the program is on no node of the pool; name the node "
            "with RGPU_NODE (`rgpu pool` lists the nodes), or leave --local out",
        ),
        (
            r.max_slowdown_ppm is not None and r.max_slowdown_ppm < 0,
            "a slowdown is 0% or more",
        ),
    ]


def _bounds(r: Request) -> list[tuple[bool, str]]:
    bounds = (("node", r.max_per_node), ("rack", r.max_per_rack), ("zone", r.max_per_zone))
    return [
        rule
        for place, most in bounds
        for rule in (
            (most < 0, f"the cards in one {place} are limited to 1 or more; 0: no limit"),
            (
                r.one_node and 0 < most < r.cards,
                f"{r.cards} cards were asked for on one node, and at most {most} in each {place}; "
                "leave one of the two out",
            ),
        )
    ]


def _leasts(r: Request) -> list[tuple[bool, str]]:
    said = r.least_ppm is not None or r.least_bytes is not None
    return [
        (
            r.whole and said,
            "a whole card does not shrink; leave --min-share and --min-memory out, or --whole",
        ),
        (
            r.least_ppm is not None and not 0 <= r.least_ppm <= r.share_ppm,
            f"the least share {format_share(max(r.least_ppm or 0, 0))} is above the share "
            f"{format_share(r.share_ppm)}; lower --min-share",
        ),
        (
            r.least_bytes is not None and not 0 <= r.least_bytes <= (r.memory_bytes or 1 << 62),
            f"the least memory {format_bytes(max(r.least_bytes or 0, 0))} is above the memory "
            f"{format_bytes(r.memory_bytes)}; lower --min-memory",
        ),
    ]


def describe(r: Request) -> str:
    """Returns what was asked for, in words: "30% of a card and 8GiB"."""
    card = f"MIG slice {r.mig}" if r.mig else "card"
    part = format_share(r.share_ppm) if r.share_ppm else "what is idle"
    share = f"a whole {card}" if r.whole else f"{part} of a {card}"
    memory = f" and {format_bytes(r.memory_bytes)}" if r.memory_bytes else ""
    if not memory and 0 < r.memory_ppm < PPM:
        memory = f" and {format_share(r.memory_ppm)} of its memory"
    model = f" {r.model}" if r.model else ""
    count = "" if r.cards == 1 else f"{r.cards} times "
    return f"{count}{share}{memory}{model and ' of model'}{model}{_limits(r)}"


def _limits(r: Request) -> str:
    bounds = (("node", r.max_per_node), ("rack", r.max_per_rack), ("zone", r.max_per_zone))
    said = [f"at most {most} in each {place}" for place, most in bounds if most]
    if r.one_node and r.cards > 1:
        said.insert(0, "on one node")
    return "".join(f", {one}" for one in said)


def holding_of(r: Request, card_bytes: int, attempt: int = 0) -> Holding:
    """Returns what a request takes of a card with so many bytes."""
    memory = r.memory_on(card_bytes)
    share = PPM if r.whole else r.share_ppm
    elastic = None
    if r.least_ppm is not None or r.least_bytes is not None:
        least = share if r.least_ppm is None else r.least_ppm
        fewest = memory if r.least_bytes is None else min(r.least_bytes, memory)
        elastic = Elastic(least, fewest, share, memory)
    return Holding(
        lease=r.id,
        tenant=r.tenant,
        share_ppm=share,
        memory_bytes=memory,
        labels=r.labels,
        whole=r.whole,
        attempt=attempt,
        elastic=elastic,
        priority=r.priority,
        reserved=r.reserved,
        name=r.name,
    )
