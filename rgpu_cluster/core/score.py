"""What a placement costs, in one unit: ppm of a card that is lost. Lower is better.

    network x slowdown + fragmentation x gradient + packing x free time left
    + spreading x time in use + headroom x bandwidth in use + crowding x leases + mode x rank
    + distance x distance between the cards of one request + borrowing x idle time not found

Each weight is in ppm, so a weight of PPM counts a term as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import astuple

from rgpu_cluster.core.classes import HEADROOM_STEPS
from rgpu_cluster.core.fragmentation import USUAL, Free, Mix, gradient
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_cluster.core.classes import Kind, State
    from rgpu_cluster.core.request import Mode, Request

# A lease more on a card costs as much as a hundredth of a card, at the usual weight.
LEASE_PPM = 10_000
# A mode farther away costs as much as a hundredth of a card.
RANK_PPM = 10_000
# Fragments count a quarter for a request that looks for idle time: so much that it is never put
# beside others for their sake while a card is idle and half of the card could be gained.
_BORROWER_FRAGMENTS = 4


class Weights(Struct, frozen=True):
    """How much each term counts, in ppm of itself."""

    network: int = PPM
    fragmentation: int = 0
    packing: int = 0
    spreading: int = 0
    headroom: int = PPM // 20
    crowding: int = PPM // 20
    mode: int = PPM
    distance: int = PPM
    borrowing: int = 0


PRESETS = {
    "fgd": Weights(fragmentation=PPM, packing=PPM // 100, borrowing=PPM),
    "binpack": Weights(packing=PPM),
    "spread": Weights(spreading=PPM, borrowing=PPM),
    "latency": Weights(
        network=10 * PPM, mode=10 * PPM, fragmentation=PPM // 10, borrowing=PPM // 10
    ),
}
"""The named weights. `fgd` is the default."""


class Score(Struct, frozen=True):
    """The terms of one candidate, each already weighted."""

    network: int
    fragmentation: int
    packing: int
    spreading: int
    headroom: int
    crowding: int
    mode: int
    distance: int = 0
    borrowing: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(
            *(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)),
        )

    @property
    def total(self) -> int:
        """Returns the sum, by which candidates are ordered."""
        return (
            self.network
            + self.fragmentation
            + self.packing
            + self.spreading
            + self.headroom
            + self.crowding
            + self.mode
            + self.distance
            + self.borrowing
        )


def free_of(kind: Kind, used_ppm: int, used_bytes: int) -> Free:
    """Returns what is free of a card, in ppm of its time and memory. Never less than nothing,
    whatever a node says that its leases have.
    """
    time_ppm, memory_ppm = PPM - used_ppm, PPM - used_bytes * PPM // kind.memory_bytes
    return Free(max(time_ppm, 0), max(memory_ppm, 0))


class Scorer:
    """Scores classes of cards for one request."""

    def __init__(self, request: Request, weights: Weights, mix: Mix = USUAL) -> None:
        self._request = request
        self.weights = weights
        self._mix = mix
        # A whole card is used whole, whatever share of it the program needs.
        self._share = PPM if request.whole else request.share_ppm
        self._most = request.most_ppm
        # Who names company has chosen what to share a card with.
        company = request.labels.affinity or request.labels.exclusion
        self._borrows = bool(weights.borrowing) and self._most > self._share and not company
        self._fragmentation = weights.fragmentation // (_BORROWER_FRAGMENTS if self._borrows else 1)

    def far(self, mode: Mode, slowdown_ppm: int) -> int:
        """Returns the terms that depend on the distance alone: network and mode."""
        return self.network(slowdown_ppm) + self.rank(mode)

    def network(self, slowdown_ppm: int) -> int:
        """Returns the network's term: the share that the program holds while it waits. A program
        that borrows is worth as much as it may have.
        """
        held = max(self._most if self._borrows else self._share, PPM // 100)
        return self.weights.network * (slowdown_ppm * held // PPM) // PPM

    def rank(self, mode: Mode) -> int:
        """Returns the mode's term."""
        return self.weights.mode * (mode * RANK_PPM) // PPM

    def near(self, kind: Kind, state: State) -> int:
        """Returns the sum of the terms that depend on the card's state."""
        w, load, share = self.weights, state.load, self._share
        total = w.crowding * load.leases * LEASE_PPM // PPM
        if w.packing:
            total += w.packing * (PPM - load.used_ppm - share) // PPM
        if w.spreading:
            total += w.spreading * load.used_ppm // PPM
        if w.headroom and state.bandwidth_bps:
            total += w.headroom * (HEADROOM_STEPS - state.headroom) // HEADROOM_STEPS
        if self._fragmentation:
            total += self._fragmentation * self._gradient(kind, state) // PPM
        if self._borrows:
            total += self._missed(state)
        return total

    def terms(self, kind: Kind, state: State, mode: Mode, slowdown_ppm: int) -> Score:
        """Returns the terms of one candidate, for the explanation. Their sum is far + near."""
        w, load = self.weights, state.load
        used = HEADROOM_STEPS - state.headroom
        return Score(
            network=self.network(slowdown_ppm),
            fragmentation=self._fragmentation * self._gradient(kind, state) // PPM,
            packing=w.packing * (PPM - load.used_ppm - self._share) // PPM,
            spreading=w.spreading * load.used_ppm // PPM,
            headroom=w.headroom * used // HEADROOM_STEPS if state.bandwidth_bps else 0,
            crowding=w.crowding * load.leases * LEASE_PPM // PPM,
            mode=self.rank(mode),
            borrowing=self._missed(state) if self._borrows else 0,
        )

    def _missed(self, state: State) -> int:
        """Returns the borrowing term: how much less than its limit the program has on the card when
        all leases there use their shares and divide the rest.
        """
        load = state.load
        rest = max(PPM - load.used_ppm - self._share, 0)
        found = self._share + rest // (load.leases + 1)
        return self.weights.borrowing * max(self._most - found, 0) // PPM

    def _gradient(self, kind: Kind, state: State) -> int:
        load = state.load
        request = self._request
        memory = kind.memory_bytes if request.whole else request.memory_on(kind.memory_bytes)
        before = free_of(kind, load.used_ppm, load.used_bytes)
        after = free_of(
            kind, load.used_ppm + self._share, min(load.used_bytes + memory, kind.memory_bytes)
        )
        return gradient(before, after, state.idle_cards, load.leases == 0, self._mix)
