"""What an entry reaches, and how its functions must be emitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower.spin import spinning_branches
from rgpu_emu.ptx.errors import PtxError, unsupported
from rgpu_emu.ptx.operands import Call, Imm, Instr, Label, Reg, Variable

if TYPE_CHECKING:
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
        "nanosleep",
    ]
)
RECURSION_BYTES: Final = (
    32 << 10
)  # local window kept for functions that call themselves, directly or by pointer
MAX_LOCAL_BYTES: Final = 512 << 10
MAX_STATIC_SHARED: Final = 48 << 10


@dataclass
class Reach:
    """Everything an entry can execute.

    Attributes:
        functions: reached device functions, callers first.
        suspends: functions that contain a suspend point, directly or through a direct call.
        inline: functions that must be emitted into their callers (they suspend, or end the thread).
        meets: functions that ask which threads are together (`activemask`), directly or through a
            direct call.
        recursive: functions on a cycle of calls, and all that can be called by pointer.
        indirect: whether anything calls by pointer.
        spins: back-edges that yield, by function.
        instructions: count of all reached instructions.
        bar_only: every suspend point is `bar.sync 0`.
        shares: threads may see each other's writes while they run (atomics, fences, ordered
            accesses).
    """

    entry: Function
    functions: list[Function] = field(default_factory=list)
    suspends: set[Function] = field(default_factory=set)
    inline: set[Function] = field(default_factory=set)
    meets: set[Function] = field(default_factory=set)
    recursive: set[Function] = field(default_factory=set)
    indirect: bool = False
    spins: dict[Function, set[int]] = field(default_factory=dict)
    instructions: int = 0
    bar_only: bool = False
    shares: bool = False


def reach(program: Program, entry: Function) -> Reach:
    """Walks the calls from an entry.

    Raises:
        PtxError: 801 for recursion or calls by pointer through functions that suspend.
    """
    found = Reach(entry)
    edges: dict[Function, list[Function]] = {}
    queue = [entry]
    while queue:
        function = queue.pop()
        if function in edges:
            continue
        found.functions.append(function)
        edges[function] = _callees(program, function)
        if not found.indirect and _calls_indirectly(function):
            found.indirect = True
            queue += program.tokens
        queue += edges[function]
    for function in found.functions:
        body = function.body()
        found.instructions += sum(isinstance(i, Instr) for i in body.code)
        found.spins[function] = spinning_branches(body)
    found.recursive = {f for f in edges if f in _descendants(edges, edges[f])}
    if found.indirect:
        found.recursive |= set(program.tokens)
    suspend = {f for f in edges if _suspends(f, found.spins[f], sleeps=f not in found.recursive)}
    found.suspends = _closure(edges, suspend)
    found.inline = _closure(edges, suspend | {f for f in edges if _exits(f)}) - {entry}
    found.meets = _closure(edges, {f for f in edges if _holds(f, frozenset(("activemask",)))})
    found.bar_only = all(_bar_only(f, found.spins[f]) for f in found.functions)
    found.shares = found.indirect or any(_shares(f) for f in found.functions)
    _refuse(program, found)
    return found


def _callees(program: Program, function: Function) -> list[Function]:
    names = sorted(function.calls())
    return [f for f in (program.function(name, function.module) for name in names) if f is not None]


def _calls_indirectly(function: Function) -> bool:
    return any(
        isinstance(i, Instr)
        and i.form.row.lower == "call"
        and isinstance(i.operands[0], Call)
        and isinstance(i.operands[0].callee, Reg)
        for i in function.body().code
    )


def _suspends(function: Function, spins: set[int], *, sleeps: bool) -> bool:
    """`sleeps`: nanosleep suspends in this function."""
    return bool(spins) or _holds(function, SYNC if sleeps else SYNC - {"nanosleep"})


def _holds(function: Function, lowerings: frozenset[str]) -> bool:
    return any(isinstance(i, Instr) and i.form.row.lower in lowerings for i in function.body().code)


def _shares(function: Function) -> bool:
    return any(
        isinstance(i, Instr)
        and (
            i.form.row.lower in ("atomic", "fence", "call") or i.form.get("sem") not in ("", "weak")
        )
        for i in function.body().code
    )


def _exits(function: Function) -> bool:
    return _holds(function, frozenset(("exit_thread",)))


def _bar_only(function: Function, spins: set[int]) -> bool:
    def plain(item: Instr | Label) -> bool:
        if isinstance(item, Label) or item.form.row.lower not in SYNC:
            return True
        return item.form.row.lower == "bar_sync" and item.operands == (Imm(0, 0),)

    return not spins and all(map(plain, function.body().code))


def _closure(edges: dict[Function, list[Function]], start: set[Function]) -> set[Function]:
    """`start` and everything that calls into it."""
    found = set(start)
    before = -1
    while before != len(found):
        before = len(found)
        found |= {f for f, callees in edges.items() if any(c in found for c in callees)}
    return found


def _descendants(edges: dict[Function, list[Function]], start: list[Function]) -> set[Function]:
    seen: set[Function] = set()
    queue = list(start)
    while queue:
        function = queue.pop()
        if function not in seen:
            seen.add(function)
            queue += edges[function]
    return seen


def _refuse(program: Program, found: Reach) -> None:
    for function in found.inline & found.recursive:
        if function in program.tokens and found.indirect:
            raise unsupported(
                f"the function '{function.name}'",
                "is called by pointer and holds a barrier, warp operation, exit or spin loop",
            )
        raise unsupported(
            f"the function '{function.name}'",
            "calls itself and holds a barrier, warp operation, exit or spin loop",
        )
    # An entry's parameters lie in the launch, not with its caller: called, it would read past them.
    for function in found.functions:
        called = function is not found.entry or function in found.recursive
        if function.kind == "entry" and called:
            raise PtxError(f"the entry {function.name} is called; entries are launched")


def shared_layout(program: Program, found: Reach) -> tuple[dict[int, int], int]:
    """Offsets of the reached .shared variables (dynamic ones after the static), and the static
    bytes."""
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
