"""Runs cases in a session, and says what must not happen."""

from __future__ import annotations

import collections
import time
from typing import TYPE_CHECKING, Any

from rgpu_common.arrays.seams import Seam
from rgpu_common.wire.frame import Kind
from seam.tenant import MEMORY_BYTES, EndedError, SilentError, Tenant

if TYPE_CHECKING:
    from seam.draw import Draw
    from seam.node import Node

# What a worker may hold besides its lease's memory, and what libraries hold before.
_OVERHEAD_BYTES = 5 << 30
# More than the server's own bound for an operation while a neighbour waits, and for a source.
_ANSWER_SECONDS = 150
_DAMAGED = 0.02
_LOOKED_AT = 200


class FindError(Exception):
    """Something that must not happen. The text says how it came to it."""


class Fuzzer:
    """Draws cases for one library until the time is over. Each session is used while it lives."""

    def __init__(self, node: Node, seam: Seam, seed: int) -> None:
        self._node, self._seam, self._seed = node, seam, seed
        self._seen: collections.Counter[str] = collections.Counter()
        self._draw = _draw(seam, seed)
        self._tenant: Tenant | None = None
        self._last: list[Any] = []

    def run(self, seconds: float, count: int = 0) -> None:
        """Runs `count` cases, or cases for a time. Raises FindError."""
        end, number = time.monotonic() + seconds, 0
        try:
            while number < count if count else time.monotonic() < end:
                self._one()
                number += 1
                if number % _LOOKED_AT == 0:
                    self._look()
        except (SilentError, AssertionError) as error:
            raise FindError(self._story(f"{type(error).__name__}: {error}")) from None
        finally:
            self._cut()
        self._look()

    def told(self) -> str:
        """Returns how many cases there were."""
        return f"{sum(self._seen.values())} cases: {dict(self._seen)}"

    def _one(self) -> None:
        tenant = self._tenant or self._open()
        damaged = self._draw.random.random() < _DAMAGED
        request = self._draw.new()
        try:
            if damaged:
                self._last = [*self._last[-8:], self._draw.damaged()]
                tenant.send_head(*self._last[-1])
            else:
                self._last = [*self._last[-8:], self._draw.case()]
                tenant.send(*self._last[-1])
            answer = tenant.asked(request, _ANSWER_SECONDS)
            self._seen["failed" if answer[1] else "executed"] += 1
        except EndedError as ended:
            self._ended(ended.sentence)

    def _ended(self, sentence: str) -> None:
        """A session may end, with a sentence."""
        last = self._last[-1]
        if not sentence and isinstance(last, tuple) and last[2] is not Kind.COMMAND:
            # A frame that is none of this direction's breaks the line itself.
            sentence = "the worker received such a frame"
        if not sentence:
            raise FindError(self._story("the session ended without a sentence"))
        known = (
            "the worker received",
            "took longer",
            "ran for",
            "max_kernel_seconds",
            "no memory left",
        )
        if not any(one in sentence for one in known):
            raise FindError(self._story(f"the session ended: {sentence}"))
        self._seen[f"ended: {sentence[:60]}"] += 1
        self._cut()

    def _open(self) -> Tenant:
        tenant = Tenant(self._node.address, self._seam, f"fuzz-{self._seam.word}")
        operations, body = self._draw.begin()
        tenant.send(*operations, body=body)
        tenant.asked(1, _ANSWER_SECONDS)
        self._tenant, self._last = tenant, []
        return tenant

    def _cut(self) -> None:
        tenant, self._tenant = self._tenant, None
        if tenant is not None:
            tenant.cut()

    def _look(self) -> None:
        """Raises FindError if the neighbour, the server or a bound has suffered."""
        try:
            self._node.check()
        except AssertionError as error:
            raise FindError(self._story(str(error))) from None
        largest = self._node.largest_bytes()
        if largest > MEMORY_BYTES + _OVERHEAD_BYTES:
            raise FindError(self._story(f"a worker has {largest:,} bytes"))

    def _story(self, what: str) -> str:
        messages = "\n".join(map(repr, self._last))
        return f"{what}\nseed {self._seed}, the last messages:\n{messages}\n{self._node.said()}"


def _draw(seam: Seam, seed: int) -> Draw:
    if seam is Seam.TORCH:
        from seam.torch_draw import TorchDraw

        return TorchDraw(seed)
    from seam.cupy_draw import CupyDraw

    return CupyDraw(seed)
