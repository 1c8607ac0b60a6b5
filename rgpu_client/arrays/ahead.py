"""How far a program's operations may be ahead of the node: in time, and in memory. Pure.

The client issues operations without waiting for answers, so it keeps two accounts of what it has
issued and the node has not said to be done. From time to time it sends a MARK, to which the node
answers when everything before is done: how long it has worked, and how much room the lease has.

- *Time.* What a template's run takes is learned from the marks. The client waits when the node has
  more than AHEAD_NS to do: a wait for the node then ends soon, and so does work that nobody needs.
  Nobody knows how long runs of a new template take, so each leaves at once with a mark of its own.
  Few of one template may be under way, about 64 of different ones, and none is followed by others
  for longer than AHEAD_NS. A program of many kinds so waits a round trip for dozens of them.
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
# So much a run of a template that is not measured counts at least, and as long as none is.
_NEW_NS: Final = AHEAD_NS // 64
_FIRST_NS: Final = AHEAD_NS // 4
# So many of them may be under way of one template when another one is sent.
_MOST_NEW: Final = 2
# So much work leaves at once, with a mark.
_HEAVY_NS: Final = AHEAD_NS // 8
_MARK_OPERATIONS: Final = 64
# A new measure counts as one part of so many.
_PARTS: Final = 4


class Template(int):
    """The number of a template on the node, with what its runs make and take.

    sizes: the bytes of each result, as far as they are memory of its own. size: their sum. ns: the
    time of a run. measured: whether the node has told it. new: how many runs were sent before.
    heavy: a run leaves at once, so that it can be measured or waited for by itself. tight: a run
    had no memory beside its results; with less room than this the client waits for the next.
    """

    sizes: tuple[int, ...] = ()
    size: int = 0
    ns: int = 0
    measured: bool = False
    new: int = 0
    heavy: bool = True
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

    sent_ns: when it was sent. runs: the templates of the runs since the mark before. new: how many
    of them were not measured. issued_ns, balance: the accounts at the mark; balance without what is
    not made yet.
    """

    request: int
    sent_ns: int
    runs: list[Template]
    new: int
    issued_ns: int
    balance: int


class Pace:
    """The account of time."""

    def __init__(self) -> None:
        self._issued_ns = self._done_ns = self._marked_ns = 0
        self._runs: list[Template] = []
        self._worked_ns = 0
        # What a run is taken for while its template is not measured.
        self._first_ns = _FIRST_NS
        # How many such runs are under way, and how many of them were sent since the last mark.
        self._new = self._new_unmarked = 0
        # A template of which too many are.
        self._crowded: Template | None = None

    def add(self, operations: Sequence[Any]) -> bool:
        """Counts operations that are sent. Returns whether a mark should follow them."""
        add, issued = self._runs.append, self._issued_ns
        for operation in operations:
            if operation[0] == _RUN:
                template = operation[1]
                add(template)
                if template.measured:
                    issued += template.ns
                else:
                    issued += self._first_ns
                    self._count_new(template)
        self._issued_ns = issued
        if self._new_unmarked or len(self._runs) >= _MARK_OPERATIONS:
            return True
        return issued - self._marked_ns >= _HEAVY_NS

    def _count_new(self, template: Template) -> None:
        template.new += 1
        self._new += 1
        self._new_unmarked += 1
        if template.new > _MOST_NEW:
            self._crowded = template

    def mark(self) -> tuple[list[Template], int, int]:
        """A mark is sent. Returns its `runs`, `new` and `issued_ns`."""
        runs, self._runs = self._runs, []
        new, self._new_unmarked = self._new_unmarked, 0
        self._marked_ns = self._issued_ns
        return runs, new, self._issued_ns

    def answered(self, mark: Mark, worked_ns: int) -> None:
        """The node has done everything up to a mark, and has worked so long in all."""
        runs = mark.runs
        self._done_ns = max(self._done_ns, mark.issued_ns)
        self._new -= mark.new
        spent, self._worked_ns = max(0, worked_ns - self._worked_ns), worked_ns
        if not runs:
            return
        # The mean of all runs gives the right sums for a program that repeats them.
        each = max(_LEAST_NS, spent // len(runs))
        if mark.new and (fresh := [one for one in runs if not one.measured]):
            # What is known does not take longer because something new came along.
            known = sum(one.ns for one in runs if one.measured)
            self._learn(fresh, max(each, (spent - known) // len(fresh)))
            return
        for template in runs:
            template.ns += (each - template.ns) // _PARTS
            template.heavy = template.ns > _HEAVY_NS or template.tight > 0

    def _learn(self, fresh: Sequence[Template], each: int) -> None:
        """The first runs of these templates, of one most often, took so long."""
        for template in fresh:
            template.new -= 1
        for template in fresh:
            if not template.measured:
                template.ns, template.measured = each, True
                template.heavy = each > _HEAVY_NS or template.tight > 0
                # Others are under way that were taken for less.
                self._issued_ns += template.new * max(0, each - self._first_ns)
        # The next new ones may be like these.
        self._first_ns = max(_NEW_NS, each)

    def behind(self, oldest: Mark, now_ns: int) -> bool:
        """True while the node has more to do than it should, or may have: nobody knows how long
        what is new takes. oldest: the mark that was sent first of those under way.
        """
        if self._issued_ns - self._done_ns > AHEAD_NS:
            return True
        if not self._new:
            return False
        if self._crowded is not None and not self._crowded.measured:
            return True
        return now_ns - oldest.sent_ns > AHEAD_NS


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
