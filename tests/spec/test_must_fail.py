"""Specifications that break one rule, and the sentence each gets. Rows of commands have a file of
their own (`test_must_fail_commands.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from spec.refused import refused

from cudaspec import check, datacheck, lock, rows
from cudaspec.model import (
    Call,
    Command,
    Flags,
    In,
    InOut,
    Meter,
    Mode,
    NotZero,
    Out,
    Range,
    Value,
)

MEM_FREE = Command(0x0303, "rgpuMemFree", Mode.POSTED, request=("address dptr",))
PING = Command(0x0109, "rgpuPing", Mode.CALL, request=("u64 echo",), reply=("u64 echo",))


def _local(prototype: str, **fields: object) -> Call:
    return Call(prototype, Mode.LOCAL, state="Dev", **fields)  # type: ignore[arg-type]


CALL_CASES = {
    "pointer without direction": (
        _local("CUresult cuX(int *value)"),
        "cuX: the pointer 'value' has no direction: say In, Out, InOut, Value, Image or Layout.",
    ),
    "direction of a value": (
        _local("CUresult cuX(int value)", args={"value": In()}),
        "cuX: 'value' is not a pointer, so it must have no direction.",
    ),
    "direction of nothing": (
        _local("CUresult cuX(int value)", args={"valu": In()}),
        "cuX: 'valu' has a direction but is not a parameter.",
    ),
    "limits of a pointer": (
        _local("CUresult cuX(int *value)", args={"value": NotZero()}),
        "cuX: 'value' is a pointer, so it has a direction and not limits.",
    ),
    "range without a limit": (
        _local("CUresult cuX(int value)", args={"value": Range()}),
        "cuX: the range of 'value' has no limit.",
    ),
    "unknown flag": (
        _local("CUresult cuX(int value)", args={"value": Flags(("CU_NOTHING",))}),
        "cuX: the limit 'CU_NOTHING' of 'value' is not in types/.",
    ),
    "empty without a length": (
        _local("CUresult cuX(const int *value)", args={"value": In(empty=True)}),
        "cuX: 'value' may be empty, so it needs a length.",
    ),
    "unknown type": (
        _local("CUresult cuX(CUbogus value)"),
        "cuX: the type 'CUbogus' of 'value' is not in types/.",
    ),
    "output that points to const": (
        _local("CUresult cuX(const int *value)", args={"value": Out()}),
        "cuX: 'value' points to const, so it cannot be written.",
    ),
    "void pointer without length": (
        _local("CUresult cuX(void *data)", args={"data": Out()}),
        "cuX: the void pointer 'data' needs a length in bytes.",
    ),
    "length with a minus": (
        _local("CUresult cuX(void *data, size_t n)", args={"data": Out(len="n - 1")}),
        "cuX: the length 'n - 1' is not '+' and '*' over names and integers.",
    ),
    "length over nothing": (
        _local("CUresult cuX(void *data, size_t n)", args={"data": Out(len="m * 4")}),
        "cuX: the length 'm * 4' of 'data' reads 'm', which is not a parameter.",
    ),
    "length over a pointer": (
        _local("CUresult cuX(void *data, size_t *n)", args={"data": Out(len="n"), "n": InOut()}),
        "cuX: the length 'n' of 'data' reads 'n', which is a pointer.",
    ),
    "sends no command": (
        Call("CUresult cuX(int value)", Mode.CALL, sends=("rgpuNothing",)),
        "cuX: it sends 'rgpuNothing', which is not a command.",
    ),
    "posted, but waits": (
        Call("CUresult cuX(int value)", Mode.POSTED, sends=("rgpuPing",)),
        "cuX: it is posted, but 'rgpuPing' waits for a reply.",
    ),
    "reports by nothing": (
        Call("CUresult cuX(int value)", Mode.CALL, sends=("rgpuPing",), reports=True),
        "cuX: it cannot report an earlier error: none of the commands that it sends does.",
    ),
    "local, but sends": (
        _local("CUresult cuX(int value)", sends=("rgpuPing",)),
        "cuX: a local call sends nothing, not 'rgpuPing'.",
    ),
    "local without state": (
        Call("CUresult cuX(int value)", Mode.LOCAL),
        "cuX: a local call must say which table answers it (state).",
    ),
    "call that sends nothing": (
        Call("CUresult cuX(int value)", Mode.CALL),
        "cuX: it is not local, so it must say which commands it sends.",
    ),
    "no class": (
        Call("CUresult cuX(int value)", "call"),  # type: ignore[arg-type]
        "cuX: its class is one of Mode, not 'call'.",
    ),
    "planned without reason": (
        Call("CUresult cuX(int value)", Mode.PLANNED),
        "cuX: a call that is not implemented must say why (reason).",
    ),
    "unsupported with an unknown error": (
        Call("CUresult cuX(int value)", Mode.UNSUPPORTED, reason="no", error="CUDA_ERROR_NO"),
        "cuX: its error 'CUDA_ERROR_NO' is not a CUresult.",
    ),
    "alias of nothing": (
        _local("CUresult cuX(int value)", alias="cuY"),
        "cuX: its alias 'cuY' is not an implemented call.",
    ),
    "not a declaration": (
        _local("cudaError_t cuX(int value)"),
        "calls/toy: 'cudaError_t cuX(int value)' is not a declaration 'CUresult cuNAME(...)'.",
    ),
    "parameter without a type": (
        _local("CUresult cuX(value)"),
        "calls/toy: cuX: the parameter 'value' has no type or no name.",
    ),
}

DATA_CASES = {
    "loop": ("for i in range(3):\n    print(i)\n", "For"),
    "comprehension": (
        "from cudaspec.model import Call\nCALLS = [Call(x) for x in ()]\n",
        "ListComp",
    ),
    "function": ("def rows():\n    return []\n", "FunctionDef"),
    "arithmetic": ("SIZE = 4 * 2\n", "BinOp"),
    "foreign import": ("import os\n", "Import"),
    "foreign call": ("CALLS = [dict(a=1)]\n", "Call"),
    "spread": ("A = {**{}}\n", "Dict"),
    "second string": ('"""Data."""\n"""More."""\n', "Expr"),
}


@pytest.mark.parametrize("case", CALL_CASES)
def test_call(toy: Callable[..., rows.Spec], case: str) -> None:
    call, sentence = CALL_CASES[case]
    with refused(sentence):
        check.check(toy(calls=[call], commands=[PING, MEM_FREE]))


def test_opcode_twice(toy: Callable[..., rows.Spec]) -> None:
    again = Command(0x0303, "rgpuOther", Mode.POSTED)
    with refused("rgpuOther: the opcode 0x0303 is taken by rgpuMemFree."):
        toy(calls=[], commands=[MEM_FREE, again])


def test_name_twice(toy: Callable[..., rows.Spec]) -> None:
    again = Command(0x0304, "rgpuMemFree", Mode.POSTED)
    with refused("rgpuMemFree: there are two commands of this name."):
        toy(calls=[], commands=[MEM_FREE, again])


def test_symbol_twice(toy: Callable[..., rows.Spec]) -> None:
    call = _local("CUresult cuX(void *user)", args={"user": Value()})
    with refused("cuX: there are two calls of this name."):
        toy(calls=[call, call])


def test_alias_with_other_parameters(toy: Callable[..., rows.Spec]) -> None:
    calls = [_local("CUresult cuX(int a)"), _local("CUresult cuY(size_t a)", alias="cuX")]
    with refused("cuY: its alias 'cuX' has other parameters."):
        check.check(toy(calls=calls))


@pytest.mark.parametrize(
    ("function", "pointer"),
    [
        ("cuX", "q"),  # not a parameter
        ("cuX", "n"),  # not a pointer
        ("cuX", "p"),  # may be null everywhere
        ("cuX", "late"),  # checked by the function
        ("cuY", "r"),  # not emulated
    ],
)
def test_the_device_allows_null_only_where_the_row_forbids_it(
    toy: Callable[..., rows.Spec], function: str, pointer: str
) -> None:
    args = {"n": NotZero(), "p": Out(nullable=True), "late": Out(late="the handle decides first")}
    calls = [
        _local("CUresult cuX(int n, int *p, int *late)", args=args),
        _local("CUresult cuY(int *r)", args={"r": Out()}),
    ]
    spec = toy(calls=calls, emulated_nullable={function: (pointer,)})
    sentence = f"'{function}' has no pointer '{pointer}' that must not be null."
    with refused(f"types/emulated.py: {sentence}"):
        check.check(dataclasses.replace(spec, emulated=frozenset({"cuX"})))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            Command(0x0303, "rgpuMemFree", Mode.POSTED, request=("address dptr", "u32 flags")),
            "rgpuMemFree: its layout is not the one that opcodes.lock has for 0x0303: "
            "take a new opcode, because releases that are out use this one.",
        ),
        (
            Command(0x0303, "rgpuMemFreeAll", Mode.POSTED, request=("address dptr",)),
            "rgpuMemFreeAll: the opcode 0x0303 is rgpuMemFree's for ever; take a new one.",
        ),
        (
            Command(0x0304, "rgpuMemFree", Mode.POSTED, request=("address dptr",)),
            "rgpuMemFree: the opcode 0x0304 is not in opcodes.lock: "
            "run 'python -m cudaspec --lock'.",
        ),
    ],
    ids=["layout", "name", "new"],
)
def test_lock(
    toy: Callable[..., rows.Spec], tmp_path: Path, changed: Command, sentence: str
) -> None:
    path = tmp_path / "opcodes.lock"
    lock.append(toy(calls=[], commands=[MEM_FREE]), path)
    with refused(sentence):
        check.check(toy(calls=[], commands=[changed]), lock.read(path))


@pytest.mark.parametrize("case", DATA_CASES)
def test_data_modules_hold_no_logic(case: str) -> None:
    text, node = DATA_CASES[case]
    with pytest.raises(rows.SpecError) as error:
        datacheck.check_source(text, "calls/toy.py")
    assert str(error.value).startswith("calls/toy.py:")
    assert str(error.value).endswith(f"a data module holds only rows of literals; {node} is logic.")


def test_meters_are_named() -> None:
    assert {m.value for m in Meter} >= {"vram", "pool", "launch", "copy"}
