"""Finds the functions that an entry reaches, and how each must be emitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from rgpu_emu.lower.callgraph import reaching, recursive
from rgpu_emu.lower.lockstep import is_volatile, meeting_loads
from rgpu_emu.lower.spin import spinning_branches
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.operands import Imm, Instr, Variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_emu.ptx.link import Program
    from rgpu_emu.ptx.module import Function

SYNC: Final = frozenset(
    [
        "warp_sync",
        "bar_sync",
        "bar_arrive",
        "bar_red",
        "shfl",
        "vote",
        "match",
        "activemask",
        "redux",
        "elect",
        "matrix_mma",
        "matrix_load",
        "matrix_store",
        "matrix_rows",
        "matrix_transpose",
        "nanosleep",
    ]
)
STACK: Final = frozenset(("stack_alloc", "stack_save", "stack_restore"))
RECURSION_BYTES: Final = (
    32 << 10
)  # part of the local window for functions that call themselves, directly or by pointer
MAX_LOCAL_BYTES: Final = 512 << 10
MAX_STATIC_SHARED: Final = 48 << 10


@dataclass
class Reach:
    """All code that an entry can execute.

    Attributes:
        functions: reached device functions, callers first.
        suspends: functions that contain a suspend point, directly or through a direct call.
        inline: functions that must be emitted into their callers: they suspend, or end the thread.
        meets: functions that ask which threads are together (`activemask`), directly or through a
            direct call.
        recursive: functions on a cycle of calls, and functions that are called by pointer, except
            those in `switched`.
        switched: functions in `inline` that can be called by pointer, by ordinal. A call by pointer
            compares with them, because they must be emitted there.
        indirect: True if a function calls by pointer.
        spins: back-edges that yield, by function.
        meetings: loads before which the threads of a warp meet, by function.
        instructions: count of all reached instructions.
        bar_only: every suspend point is `bar.sync 0`.
        shares: threads may see each other's writes while they run (atomics, fences, ordered
            accesses).
        stacks: a function allocates memory on the stack.
    """

    entry: Function
    functions: list[Function] = field(default_factory=list)
    suspends: set[Function] = field(default_factory=set)
    inline: set[Function] = field(default_factory=set)
    meets: set[Function] = field(default_factory=set)
    recursive: set[Function] = field(default_factory=set)
    switched: dict[int, Function] = field(default_factory=dict)
    indirect: bool = False
    spins: dict[Function, set[int]] = field(default_factory=dict)
    meetings: dict[Function, set[int]] = field(default_factory=dict)
    instructions: int = 0
    bar_only: bool = False
    shares: bool = False
    stacks: bool = False


@dataclass(frozen=True)
class Facts:
    """The facts of one body, which are the same for every entry that reaches it.

    Attributes:
        lowerings: names of the lowerings of its instructions.
        meetings: loads before which the threads of a warp meet.
        lockstep: it has such loads, or volatile accesses of shared memory.
        shares: it has atomics, fences, calls or ordered accesses.
        bar_only: every suspend point is `bar.sync 0`.
    """

    instructions: int
    lowerings: frozenset[str]
    spins: set[int]
    meetings: set[int]
    lockstep: bool
    shares: bool
    indirect: bool
    bar_only: bool

    def holds(self, lowerings: frozenset[str]) -> bool:
        return not lowerings.isdisjoint(self.lowerings)

    def suspends(self, *, optional: bool) -> bool:
        """Returns True if the function suspends.

        optional: nanosleep and meetings of a warp count too. A function that cannot suspend runs
            right without them.
        """
        if bool(self.spins) or self.holds(SYNC - {"nanosleep"}):
            return True
        return optional and (self.lockstep or self.holds(SYNC))


# Many entries of a module may reach one function, so its facts are cached.
_known: WeakKeyDictionary[Function, Facts] = WeakKeyDictionary()


def facts_of(function: Function) -> Facts:
    """Returns the facts of a function's body."""
    found = _known.get(function)
    if found is None:
        found = _known[function] = _look(function)
    return found


def _look(function: Function) -> Facts:
    body = function.body()
    code = [item for item in body.code if isinstance(item, Instr)]
    spins = spinning_branches(body)
    meetings = meeting_loads(body, SYNC)
    lockstep = bool(meetings) or any(map(is_volatile, code))
    return Facts(
        instructions=len(code),
        lowerings=frozenset(i.form.row.lower for i in code),
        spins=spins,
        meetings=meetings,
        lockstep=lockstep,
        shares=any(map(_shares, code)),
        indirect=function.indirect(),
        bar_only=not spins and not lockstep and all(map(_plain, code)),
    )


def _shares(item: Instr) -> bool:
    shared = item.form.row.lower in ("atomic", "fence", "call") or item.form.row.op == "mbarrier"
    return shared or item.form.get("sem") not in ("", "weak")


def _plain(item: Instr) -> bool:
    if item.form.row.lower not in SYNC:
        return True
    return item.form.row.lower == "bar_sync" and item.operands == (Imm(0, 0),)


def reach(program: Program, entry: Function) -> Reach:
    """Returns all that an entry reaches by calls.

    Raises:
        PtxError: 801 for recursion or calls by pointer through functions that suspend.
    """
    found = Reach(entry)
    edges = _walk(program, found)
    facts = {function: facts_of(function) for function in found.functions}
    found.instructions = sum(f.instructions for f in facts.values())
    found.spins = {function: f.spins for function, f in facts.items()}
    found.meetings = {function: f.meetings for function, f in facts.items()}
    ends = {f for f in facts if facts[f].holds(frozenset(("exit_thread",)))}
    if found.indirect:
        stops = ends | {f for f in facts if facts[f].suspends(optional=False)}
        found.switched = _switch(program, facts, edges, stops)
    found.recursive = recursive(edges)
    if found.indirect:
        found.recursive |= set(program.tokens) - set(found.switched.values())
    suspend = {f for f in facts if facts[f].suspends(optional=f not in found.recursive)}
    found.suspends = reaching(edges, suspend)
    found.inline = reaching(edges, suspend | ends) - {entry}
    asks = frozenset(("activemask",))
    found.meets = reaching(edges, (f for f in facts if facts[f].holds(asks)))
    found.bar_only = all(f.bar_only for f in facts.values())
    found.shares = found.indirect or any(f.shares for f in facts.values())
    found.stacks = any(f.holds(STACK) for f in facts.values())
    _refuse(program, found)
    return found


def _switch(
    program: Program,
    facts: Mapping[Function, Facts],
    edges: dict[Function, list[Function]],
    stops: set[Function],
) -> dict[int, Function]:
    """Returns the functions that can be called by pointer and reach one of `stops`, by ordinal, and
    adds to `edges` that all calls by pointer call them.
    """
    switched: dict[int, Function] = {}
    callers = [function for function in facts if facts[function].indirect]
    while True:
        reach_stops = reaching(edges, stops)
        more = {
            ordinal: function
            for ordinal, function in enumerate(program.tokens)
            if function in reach_stops and ordinal not in switched
        }
        if not more:
            return dict(sorted(switched.items()))
        switched |= more
        for caller in callers:
            edges[caller] = [*edges[caller], *more.values()]


def _walk(program: Program, found: Reach) -> dict[Function, list[Function]]:
    """Fills `functions` and `indirect`, and returns function -> the functions that it calls by
    name.
    """
    edges: dict[Function, list[Function]] = {}
    queue = [found.entry]
    while queue:
        function = queue.pop()
        if function in edges:
            continue
        found.functions.append(function)
        edges[function] = callees(program, function)
        if not found.indirect and function.indirect():
            found.indirect = True
            queue += program.tokens
        queue += edges[function]
    return edges


def callees(program: Program, function: Function) -> list[Function]:
    """Returns the functions that a function calls by name."""
    names = sorted(function.calls())
    return [f for f in (program.function(name, function.module) for name in names) if f is not None]


def _refuse(program: Program, found: Reach) -> None:
    tokens = set(program.tokens) if found.indirect else set()
    for function in found.inline & found.recursive:
        if function in tokens:
            raise unsupported(
                f"the function '{function.name}'",
                "is called by pointer and holds a barrier, warp operation, exit or spin loop",
            )
        raise unsupported(
            f"the function '{function.name}'",
            "calls itself and holds a barrier, warp operation, exit or spin loop",
        )
    # The parameters of an entry lie in the launch, not with a caller. A called entry would read
    # past them.
    for function in found.functions:
        called = function is not found.entry or function in found.recursive
        if function.kind == "entry" and called:
            raise PtxError(f"the entry {function.name} is called; entries are launched")


def shared_layout(program: Program, found: Reach) -> tuple[dict[int, int], int]:
    """Returns the offsets of the reached .shared variables (dynamic ones after the static ones),
    and the size of the static ones.
    """
    static: dict[int, Variable] = {}
    dynamic: dict[int, Variable] = {}
    for function in found.functions:
        for variable in function.body().shared:
            static[id(variable)] = variable
        for name in sorted(function.symbols()):
            named = program.variable(name, function.module)
            if named is not None and named.space == "shared":
                (dynamic if named.extern and not named.bytes else static)[id(named)] = named
    offsets: dict[int, int] = {}
    at = 0
    for variable in sorted(static.values(), key=lambda v: -v.align):
        at = (at + variable.align - 1) // variable.align * variable.align
        offsets[id(variable)] = at
        at += variable.bytes
    if at > MAX_STATIC_SHARED:
        raise PtxError(
            f"the entry {found.entry.name} uses {at} bytes of static shared memory, "
            f"more than {MAX_STATIC_SHARED}"
        )
    align = max((v.align for v in dynamic.values()), default=1)
    start = (at + align - 1) // align * align
    offsets.update((key, start) for key in dynamic)
    return offsets, at if not dynamic else start
