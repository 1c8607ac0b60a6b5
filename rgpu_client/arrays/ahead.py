"""How far a program's operations may be ahead of the node: in time, and in memory. Pure.

The client issues operations without waiting for answers, so it keeps two accounts of what it has
issued and the node has not said to be done. From time to time it sends a MARK, to which the node
answers when everything before is done: how long it has worked, and how much room the lease has.

- *Time.* What a template's run takes is learned from the marks. The client waits when the node has
  more than AHEAD_NS to do: a wait for the node then ends soon, and so does work that nobody needs.
- *Memory.* The room that the node told, less what was allocated since, plus what was freed since.
  The client knows these sizes. Where the room may be too small it asks the node, and the
  allocation raises the library's own exception, as it would without rgpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rgpu_common.arrays.messages import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN: Final = Op.RUN.value
# So much work may be under way. It hides round trips that are shorter.
AHEAD_NS: Final = 250_000_000
# So many operations may be under way, however quick they are.
_LEAST_NS: Final = AHEAD_NS // 4096
# So much a template counts until it is measured, but for its first run.
_NEW_NS: Final = AHEAD_NS // 16
# So much work leaves at once, with a mark.
_HEAVY_NS: Final = AHEAD_NS // 8
_MARK_OPERATIONS: Final = 64
# A new measure counts as one part of so many.
_PARTS: Final = 4


class Template(int):
    """The number of a template on the node, with what its runs make and take.

    sizes: the bytes of each result, as far as they are memory of its own. size: their sum. ns: the
    time of a run; 0 before the first one. measured: whether the node has told it. heavy: a run
    leaves at once, so that it can be waited for by itself. tight: a run had no memory beside its
    results; with less room than this the client waits for the next.
    """

    sizes: tuple[int, ...] = ()
    size: int = 0
    ns: int = 0
    measured: bool = False
    heavy: bool = False
    tight: int = 0

    def sized(self, sizes: Sequence[int]) -> Template:
        """Returns the same template for runs whose results have so many bytes."""
        made = Template(self)
        made.sizes, made.size = tuple(sizes), sum(sizes)
        return made

    def ran_out(self, room: int) -> None:
        """A run got no memory. About `room` bytes were there beside its results."""
        self.tight = max(2 * self.tight, room + self.size + 1)
        self.heavy = True


class Mark(NamedTuple):
    """A mark whose answer is under way.

    runs: the templates of the runs since the mark before. issued_ns, balance: the accounts at the
    mark; balance without what is not made yet.
    """

    request: int
    runs: list[Template]
    issued_ns: int
    balance: int


class Pace:
    """The account of time."""

    def __init__(self) -> None:
        self._issued_ns = self._done_ns = self._marked_ns = 0
        self._runs: list[Template] = []
        self._worked_ns = 0
        # What the first run of a template is taken for.
        self._first_ns = _NEW_NS

    def add(self, operations: Sequence[Any]) -> bool:
        """Counts operations that are sent. Returns whether a mark should follow them."""
        add, issued = self._runs.append, self._issued_ns
        for operation in operations:
            if operation[0] == _RUN:
                template = operation[1]
                add(template)
                if template.ns:
                    issued += template.ns
                else:
                    # Nobody knows how many of them follow.
                    issued += self._first_ns
                    template.ns = _NEW_NS
        self._issued_ns = issued
        return len(self._runs) >= _MARK_OPERATIONS or issued - self._marked_ns >= _HEAVY_NS

    def mark(self) -> tuple[list[Template], int]:
        """A mark is sent. Returns its `runs` and `issued_ns`."""
        runs, self._runs = self._runs, []
        self._marked_ns = self._issued_ns
        return runs, self._issued_ns

    def answered(self, runs: Sequence[Template], issued_ns: int, worked_ns: int) -> None:
        """The node has done everything up to a mark, and has worked so long in all."""
        self._done_ns = max(self._done_ns, issued_ns)
        spent, self._worked_ns = max(0, worked_ns - self._worked_ns), worked_ns
        if not runs:
            return
        # The mean of all runs gives the right sums for a program that repeats them.
        each = max(_LEAST_NS, spent // len(runs))
        fresh = False
        for template in runs:
            if template.measured:
                template.ns += (each - template.ns) // _PARTS
            else:
                template.ns, template.measured, fresh = each, True, True
            template.heavy = template.ns > _HEAVY_NS or template.tight > 0
        if fresh:
            self._first_ns = min(_NEW_NS, _PARTS * each)

    @property
    def behind(self) -> bool:
        """True while the node has more to do than it should."""
        return self._issued_ns - self._done_ns > AHEAD_NS


class Room:
    """The account of memory, in bytes.

    balance: what was freed, less what was allocated. It may sink to `least` without asking the
    node. held: what the objects on the node have, by id. Both stand open to the issuer, because
    each operation changes them.
    """

    def __init__(self, *, known: bool = True) -> None:
        """known: the node tells its room; else there is no bound."""
        self.balance = 0
        self.least = 0 if known else -(1 << 63)
        self.held: dict[int, int] = {}
        # Objects that the program has, and the node will get when they are used first.
        self._unmade: dict[int, int] = {}
        self.unmade_bytes = 0

    @property
    def left(self) -> int:
        """How many bytes may be allocated without asking the node."""
        return self.balance - self.least

    @property
    def made_balance(self) -> int:
        """The balance without objects that the node has not got yet."""
        return self.balance + self.unmade_bytes

    def told(self, balance: int, room: int) -> None:
        """The node had so much room when the balance, of what it had got, was this."""
        self.least = balance - room

    def claimed(self, made: int, size: int) -> None:
        """An object is allocated, and made on the node later."""
        self._unmade[made] = size
        self.unmade_bytes += size

    def made(self, made: int) -> bool:
        """An object that may have been claimed is made on the node. Returns False if it was not."""
        size = self._unmade.pop(made, None)
        if size is None:
            return False
        self.unmade_bytes -= size
        self.held[made] = size
        return True

    def freed(self, one: int) -> bool:
        """An object is freed; a negative number is one that was only claimed. Returns whether the
        node has it.
        """
        if one > 0:
            self.balance += self.held.pop(one, 0)
            return True
        size = self._unmade.pop(-one, 0)
        self.unmade_bytes -= size
        self.balance += size
        return False
