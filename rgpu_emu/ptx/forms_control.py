"""Rows for control flow, synchronisation, atomics, warp operations and the rest. Data only."""

from __future__ import annotations

from typing import Final

from rgpu_emu.ptx.table import Row

B_: Final = "control-flow-instructions-"
S_: Final = "parallel-synchronization-and-communication-instructions-"
M_: Final = "miscellaneous-instructions-"
K_: Final = "stack-manipulation-instructions-"
D_: Final = "data-movement-and-conversion-instructions-"

CONTROL: Final[tuple[Row, ...]] = (
    Row("bra", "?uni", "l", "branch", B_ + "bra"),
    Row("brx", "idx ?uni", "s l", "branch_indexed", B_ + "brx-idx"),
    Row("call", "?uni", "c", "call", B_ + "call"),
    Row("ret", "?uni", "", "ret", B_ + "ret"),
    Row("exit", "", "", "exit_thread", B_ + "exit"),
    Row("trap", "", "", "trap", M_ + "trap"),
    Row("brkpt", "", "", "trap", M_ + "brkpt"),
    Row("pmevent", "?mask", "s", "nothing", M_ + "pmevent"),
    Row("nanosleep", "t=u32", "s", "nanosleep", M_ + "nanosleep"),
    Row("alloca", "t=u32|u64", "d s s?", "stack_alloc", K_ + "alloca"),
    Row("stacksave", "t=u32|u64", "d", "stack_save", K_ + "stacksave"),
    Row("stackrestore", "t=u32|u64", "s", "stack_restore", K_ + "stackrestore"),
    Row("griddepcontrol", "action=launch_dependents|wait", "", "nothing", S_ + "griddepcontrol"),
)

_ATOM: Final = (
    "sem?=relaxed|acquire|release|acq_rel scope?=cta|cluster|gpu|sys "
    "space?=global|shared|shared::cta"
)
_RMW: Final = (
    "op=and|or|xor|exch hint?=L2::cache_hint t=b32|b64",
    "op=add hint?=L2::cache_hint t=u32|s32|u64|s64|f32|f64",
    "op=min|max hint?=L2::cache_hint t=u32|s32|u64|s64",
    "op=inc|dec hint?=L2::cache_hint t=u32",
    "op=add ?noftz hint?=L2::cache_hint t=f16|f16x2|bf16|bf16x2",
)

ATOMIC: Final[tuple[Row, ...]] = (
    Row("atom", f"{_ATOM} {_RMW[0]}", "D m S s?", "atomic", S_ + "atom"),
    Row("atom", f"{_ATOM} {_RMW[1]}", "D m S s?", "atomic", S_ + "atom"),
    Row("atom", f"{_ATOM} {_RMW[2]}", "D m S s?", "atomic", S_ + "atom"),
    Row("atom", f"{_ATOM} {_RMW[3]}", "D m S s?", "atomic", S_ + "atom"),
    Row("atom", f"{_ATOM} {_RMW[4]}", "D m S s?", "atomic", S_ + "atom"),
    Row(
        "atom",
        f"{_ATOM} op=cas hint?=L2::cache_hint t=b16|b32|b64",
        "D m S S s?",
        "atomic",
        S_ + "atom",
    ),
    Row(
        "red",
        f"{_ATOM} op=and|or|xor hint?=L2::cache_hint t=b32|b64",
        "m S s?",
        "atomic",
        S_ + "red",
    ),
    Row("red", f"{_ATOM} {_RMW[1]}", "m S s?", "atomic", S_ + "red"),
    Row("red", f"{_ATOM} {_RMW[2]}", "m S s?", "atomic", S_ + "red"),
    Row("red", f"{_ATOM} {_RMW[3]}", "m S s?", "atomic", S_ + "red"),
    Row("red", f"{_ATOM} {_RMW[4]}", "m S s?", "atomic", S_ + "red"),
    Row("membar", "level=cta|gl|sys", "", "fence", S_ + "membar-fence"),
    Row(
        "fence",
        "sem?=sc|acq_rel|acquire|release scope=cta|cluster|gpu|sys",
        "",
        "fence",
        S_ + "membar-fence",
    ),
    Row(
        "fence",
        "proxy kind=alias|async space?=global|shared::cta|shared::cluster",
        "",
        "fence",
        S_ + "membar-fence",
    ),
    Row(
        "membar",
        "proxy kind=alias|async space?=global|shared::cta|shared::cluster",
        "",
        "fence",
        S_ + "membar-fence",
    ),
    Row("fence", "mbarrier_init sem=release scope=cluster", "", "fence", S_ + "membar-fence"),
)

_REDUX: Final = "redux-sync"

SYNC: Final[tuple[Row, ...]] = (
    Row("bar", "warp sync", "s", "warp_sync", S_ + "bar-warp-sync"),
    Row("bar", "?cta sync", "s s?", "bar_sync", S_ + "bar"),
    Row("bar", "?cta arrive", "s s", "bar_arrive", S_ + "bar"),
    Row("bar", "?cta red op=popc t=u32", "d s q q?", "bar_red", S_ + "bar"),
    Row("bar", "?cta red op=and|or t=pred", "d s q q?", "bar_red", S_ + "bar"),
    Row("barrier", "?cta sync ?aligned", "s s?", "bar_sync", S_ + "bar"),
    Row("barrier", "?cta arrive ?aligned", "s s", "bar_arrive", S_ + "bar"),
    Row("barrier", "?cta red op=popc ?aligned t=u32", "d s q q?", "bar_red", S_ + "bar"),
    Row("barrier", "?cta red op=and|or ?aligned t=pred", "d s q q?", "bar_red", S_ + "bar"),
    Row("shfl", "sync mode=up|down|bfly|idx t=b32", "P s s s s", "shfl", D_ + "shfl-sync"),
    Row("vote", "sync mode=all|any|uni t=pred", "d p s", "vote", S_ + "vote-sync"),
    Row("vote", "sync mode=ballot t=b32", "d p s", "vote", S_ + "vote-sync"),
    Row("vote", "mode=all|any|uni sync t=pred", "d p s", "vote", S_ + "vote-sync"),
    Row("vote", "mode=ballot sync t=b32", "d p s", "vote", S_ + "vote-sync"),
    Row("match", "mode=any sync t=b32|b64", "d s s", "match", S_ + "match-sync"),
    Row("match", "mode=all sync t=b32|b64", "P s s", "match", S_ + "match-sync"),
    Row("activemask", "t=b32", "d", "activemask", S_ + "activemask"),
    Row("redux", "sync op=add|min|max t=u32|s32", "d s s", "redux", S_ + _REDUX),
    Row("redux", "sync op=and|or|xor t=b32", "d s s", "redux", S_ + _REDUX),
    Row("redux", "sync op=min|max ?abs ?NaN t=f32", "d s s", "redux", S_ + _REDUX),
    Row("elect", "sync", "P s", "elect", S_ + "elect-sync"),
)
ROWS: Final = CONTROL + ATOMIC + SYNC
