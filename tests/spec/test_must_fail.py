"""Specifications that break one rule, and the sentence each gets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
    Work,
    WorkKind,
)

MEM_FREE = Command(0x0303, "rgpuMemFree", Mode.POSTED, request=("address dptr",))
PING = Command(0x0109, "rgpuPing", Mode.CALL, request=("u64 echo",), reply=("u64 echo",))

METER = "it allocates, copies or launches, so it must name the meter that pays (charges)."


def _local(prototype: str, **fields: object) -> Call:
    return Call(prototype, Mode.LOCAL, state="Dev", **fields)  # type: ignore[arg-type]


def _copy(work: Work) -> Command:
    request = ("u64 width", "bytes note", "u64 height")
    return Command(1, "rgpuCopyX", Mode.POSTED, request=request, charges=(Meter.COPY,), work=work)


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

COMMAND_CASES = {
    "posted with a reply": (
        Command(1, "rgpuX", Mode.POSTED, reply=("address dptr",)),
        "rgpuX: a posted command has no reply; make it a call or drop 'address dptr'.",
    ),
    "posted that reports": (
        Command(1, "rgpuX", Mode.POSTED, reports=True),
        "rgpuX: a posted command cannot report a deferred error; only a call can.",
    ),
    "posted with bytes back": (
        Command(1, "rgpuX", Mode.POSTED, bulk="reply"),
        "rgpuX: a posted command sends nothing back; its class is DELIVERED when bytes come later.",
    ),
    "call that is reaped": (
        Command(1, "rgpuX", Mode.CALL, reaped=True),
        "rgpuX: only a posted command can be reaped.",
    ),
    "drains without waiting": (
        Command(1, "rgpuX", Mode.CALL, drains=True),
        "rgpuX: a command that drains all threads waits for them, so its class is PARKED.",
    ),
    "local command": (
        Command(1, "rgpuX", Mode.LOCAL),
        "rgpuX: a command is sent, so its class cannot be LOCAL.",
    ),
    "allocates without a meter": (
        Command(1, "rgpuMemAllocMore", Mode.CALL, reply=("address dptr",)),
        f"rgpuMemAllocMore: {METER}",
    ),
    "launches without a meter": (
        Command(1, "rgpuLaunchAll", Mode.POSTED),
        f"rgpuLaunchAll: {METER}",
    ),
    "copies without a meter": (
        Command(1, "rgpuCopyAtoA", Mode.POSTED),
        f"rgpuCopyAtoA: {METER}",
    ),
    "pays for memory with time": (
        Command(1, "rgpuMemAllocMore", Mode.CALL, charges=(Meter.LAUNCH,)),
        "rgpuMemAllocMore: it takes device memory, so it must name a meter of memory (charges).",
    ),
    "pays for time with memory": (
        Command(1, "rgpuGraphLaunch", Mode.POSTED, charges=(Meter.GRAPH_MEMORY,)),
        "rgpuGraphLaunch: it keeps the device busy, so it must name a meter of time (charges).",
    ),
    "field of an unknown type": (
        Command(1, "rgpuX", Mode.CALL, request=("u128 wide",)),
        "rgpuX: the field 'u128 wide' has the unknown type 'u128'.",
    ),
    "field without a name": (
        Command(1, "rgpuX", Mode.CALL, request=("u64",)),
        "rgpuX: the field 'u64' is not 'TYPE NAME' or 'new HANDLE NAME'.",
    ),
    "new number": (
        Command(1, "rgpuX", Mode.CALL, request=("new u64 bytes",)),
        "rgpuX: only a handle can be 'new', not 'u64'.",
    ),
    "handle minted by the worker": (
        Command(1, "rgpuX", Mode.CALL, reply=("new event event",)),
        "rgpuX: the client creates handles, so a reply cannot have a 'new' one.",
    ),
    "field twice": (
        Command(1, "rgpuX", Mode.CALL, request=("u64 a", "u64 a")),
        "rgpuX: the field 'a' appears twice.",
    ),
    "field that C++ cannot name": (
        Command(1, "rgpuX", Mode.CALL, request=("u64 delete",)),
        "rgpuX: the field 'delete' is a keyword of C++; give it another name.",
    ),
    "name": (
        Command(1, "cuX", Mode.CALL),
        "cuX: the name of a command is 'rgpu' and words with capitals.",
    ),
    "event without a class": (
        Command(1, "rgpuX", Mode.POSTED, request=("stream stream", "event event")),
        "rgpuX: it has the event 'event': name the event that it concerns, or 'none'.",
    ),
    "concerns another field": (
        Command(1, "rgpuX", Mode.POSTED, request=("event a", "u32 b"), concerns="b"),
        "rgpuX: it concerns 'b', which is not an event of its request.",
    ),
    "concerns an event that it does not have": (
        Command(1, "rgpuX", Mode.POSTED, request=("u32 b",), concerns="none"),
        "rgpuX: it concerns 'none', which is not an event of its request.",
    ),
    "device time without work": (
        Command(1, "rgpuCopyAtoA", Mode.POSTED, charges=(Meter.COPY,)),
        "rgpuCopyAtoA: it is charged for device time, so it must say what the executor predicts "
        "(work).",
    ),
    "work without device time": (
        Command(1, "rgpuX", Mode.POSTED, work=Work(WorkKind.COPY_IN, "4")),
        "rgpuX: it has work but is not charged for device time (charges).",
    ),
    "work over no field": (
        _copy(Work(WorkKind.COPY_IN, "width * rows")),
        "rgpuCopyX: its work reads 'rows', which is not a field of its request.",
    ),
    "work over bulk that does not travel": (
        _copy(Work(WorkKind.COPY_IN, "bulk")),
        "rgpuCopyX: its work reads 'bulk', which is not a field of its request.",
    ),
    "work behind a field of variable length": (
        _copy(Work(WorkKind.COPY_IN, "height")),
        "rgpuCopyX: its work reads 'height', which stands behind a field of variable length.",
    ),
    "work with a minus": (
        _copy(Work(WorkKind.COPY_IN, "width - 1")),
        "rgpuCopyX: the length 'width - 1' is not '+' and '*' over names and integers.",
    ),
    "launch with a length": (
        _copy(Work(WorkKind.LAUNCH, "width")),
        "rgpuCopyX: a launch has no length; its function says how long it runs.",
    ),
    "launch of nothing": (
        _copy(Work(WorkKind.LAUNCH)),
        "rgpuCopyX: its work reads 'function', which is not a field of its request.",
    ),
    "names of no field": (
        Command(1, "rgpuX", Mode.CALL, request=("u32 a",), names={"b": {"kOne": 1}}),
        "rgpuX: 'b' has names for its values but is not an integer of its request.",
    ),
    "name of another form": (
        Command(1, "rgpuX", Mode.CALL, request=("u32 a",), names={"a": {"ONE": 1}}),
        "rgpuX: 'ONE' is not a new name of the form kName.",
    ),
    "opcode that does not fit": (
        Command(0x10000, "rgpuX", Mode.CALL),
        "rgpuX: the opcode 0x10000 does not fit 16 bits.",
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
    with pytest.raises(rows.SpecError) as error:
        check.check(toy(calls=[call], commands=[PING, MEM_FREE]))
    assert str(error.value) == sentence


@pytest.mark.parametrize("case", COMMAND_CASES)
def test_command(toy: Callable[..., rows.Spec], case: str) -> None:
    command, sentence = COMMAND_CASES[case]
    with pytest.raises(rows.SpecError) as error:
        check.check(toy(calls=[], commands=[command]))
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "name",
    [
        "rgpuArrayCreate", "rgpuArray3DCreate", "rgpuMipmappedArrayCreate", "rgpuMemAllocManaged",
        "rgpuMemCreate", "rgpuMemMap", "rgpuMemImport", "rgpuMemPrefetch", "rgpuGraphInstantiate",
        "rgpuGraphUpload", "rgpuGraphExecUpdate", "rgpuGraphAddMemAllocNode", "rgpuGraphLaunch",
    ],
)  # fmt: skip
def test_what_will_take_memory_does_not_generate_without_a_meter(
    toy: Callable[..., rows.Spec], name: str
) -> None:
    with pytest.raises(rows.SpecError) as error:
        check.check(toy(calls=[], commands=[Command(1, name, Mode.CALL)]))
    assert str(error.value) == f"{name}: {METER}"


def test_opcode_twice(toy: Callable[..., rows.Spec]) -> None:
    again = Command(0x0303, "rgpuOther", Mode.POSTED)
    with pytest.raises(rows.SpecError) as error:
        toy(calls=[], commands=[MEM_FREE, again])
    assert str(error.value) == "rgpuOther: the opcode 0x0303 is taken by rgpuMemFree."


def test_name_twice(toy: Callable[..., rows.Spec]) -> None:
    again = Command(0x0304, "rgpuMemFree", Mode.POSTED)
    with pytest.raises(rows.SpecError) as error:
        toy(calls=[], commands=[MEM_FREE, again])
    assert str(error.value) == "rgpuMemFree: there are two commands of this name."


def test_symbol_twice(toy: Callable[..., rows.Spec]) -> None:
    call = _local("CUresult cuX(void *user)", args={"user": Value()})
    with pytest.raises(rows.SpecError) as error:
        toy(calls=[call, call])
    assert str(error.value) == "cuX: there are two calls of this name."


def test_alias_with_other_parameters(toy: Callable[..., rows.Spec]) -> None:
    calls = [_local("CUresult cuX(int a)"), _local("CUresult cuY(size_t a)", alias="cuX")]
    with pytest.raises(rows.SpecError) as error:
        check.check(toy(calls=calls))
    assert str(error.value) == "cuY: its alias 'cuX' has other parameters."


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
    with pytest.raises(rows.SpecError) as error:
        check.check(toy(calls=[], commands=[changed]), lock.read(path))
    assert str(error.value) == sentence


@pytest.mark.parametrize("case", DATA_CASES)
def test_data_modules_hold_no_logic(case: str) -> None:
    text, node = DATA_CASES[case]
    with pytest.raises(rows.SpecError) as error:
        datacheck.check_source(text, "calls/toy.py")
    assert str(error.value).startswith("calls/toy.py:")
    assert str(error.value).endswith(f"a data module holds only rows of literals; {node} is logic.")


def test_meters_are_named() -> None:
    assert {m.value for m in Meter} >= {"vram", "pool", "launch", "copy"}
