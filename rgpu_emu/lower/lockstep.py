"""Finds where programs expect the threads of a warp to go on together, without saying so.

Programs from before independent thread scheduling exchange values within a warp through shared
memory without a barrier, and their compilers still give them warps that go on together. Two things
tell such places: an access is volatile; or, in a function with warp operations, memory is read
after it was written, with no suspend point between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.flow import ENDS, targets_of
from rgpu_emu.ptx.operands import Instr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_emu.ptx.operands import Body

_WARP: Final = frozenset(("warp_sync", "shfl", "vote", "match", "activemask", "redux", "elect"))
_WRITES: Final = frozenset(("store", "copy_async", "atomic"))


def is_volatile(item: Instr) -> bool:
    """Returns True for a volatile access of shared memory. The threads meet after it."""
    return (
        item.form.row.lower in ("load", "store")
        and item.form.get("sem") == "volatile"
        and _is_shared(item)
    )


def _is_shared(item: Instr) -> bool:
    space: str = item.form.get("space")
    return space.partition("::")[0] == "shared" or item.form.row.lower == "copy_async"


def meeting_loads(body: Body, sync: frozenset[str]) -> set[int]:
    """Returns the positions in body.code of loads before which the threads of a warp meet.

    sync: the lowerings of suspend points.
    """
    code = [item for item in body.code if isinstance(item, Instr)]
    if not any(item.form.row.lower in _WARP or is_volatile(item) for item in code):
        return set()
    found: set[int] = set()
    queue = [
        position + 1
        for position, item in enumerate(body.code)
        if isinstance(item, Instr) and item.form.row.lower in _WRITES and _is_shared(item)
    ]
    seen: set[int] = set()
    while queue:
        position = queue.pop()
        if position in seen or position >= len(body.code):
            continue
        seen.add(position)
        item = body.code[position]
        if isinstance(item, Instr):
            reads = item.form.row.lower == "load" and _is_shared(item)
            if reads:
                found.add(position)
            if item.guard is None and (reads or is_volatile(item) or item.form.row.lower in sync):
                continue
        queue += _next(body, position)
    return found


def _next(body: Body, position: int) -> Iterator[int]:
    """Yields the positions that may run after this one."""
    item = body.code[position]
    if not isinstance(item, Instr):
        yield position + 1
        return
    yield from (label.position for label in targets_of(item, body))
    if item.guard is not None or item.form.row.lower not in ENDS:
        yield position + 1
