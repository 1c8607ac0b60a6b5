"""Rows of commands that break one rule, and the sentence each gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from spec.refused import refused

from cudaspec import check, rows
from cudaspec.model import Command, Meter, Mode, Work, WorkKind

METER = "it allocates, copies or launches, so it must name the meter that pays (charges)."


def _posted(name: str, **fields: object) -> Command:
    return Command(1, name, Mode.POSTED, **fields)  # type: ignore[arg-type]


def _call(name: str, **fields: object) -> Command:
    return Command(1, name, Mode.CALL, **fields)  # type: ignore[arg-type]


COMMAND_CASES = {
    "posted with a reply": (
        _posted("rgpuX", reply=("address dptr",)),
        "rgpuX: a posted command has no reply; make it a call or drop 'address dptr'.",
    ),
    "posted that reports": (
        _posted("rgpuX", reports=True),
        "rgpuX: a posted command cannot report a deferred error; only a call can.",
    ),
    "posted with bytes back": (
        _posted("rgpuX", bulk="reply"),
        "rgpuX: a posted command sends nothing back; its class is DELIVERED when bytes come later.",
    ),
    "call that is reaped": (
        _call("rgpuX", reaped=True),
        "rgpuX: only a posted command can be reaped.",
    ),
    "drains without waiting": (
        _call("rgpuX", drains=True),
        "rgpuX: a command that drains all threads waits for them, so its class is PARKED.",
    ),
    "local command": (
        Command(1, "rgpuX", Mode.LOCAL),
        "rgpuX: a command is sent, so its class cannot be LOCAL.",
    ),
    "allocates without a meter": (
        _call("rgpuMemAllocMore", reply=("address dptr",)),
        f"rgpuMemAllocMore: {METER}",
    ),
    "launches without a meter": (
        _posted("rgpuLaunchAll"),
        f"rgpuLaunchAll: {METER}",
    ),
    "copies without a meter": (
        _posted("rgpuCopyAtoA"),
        f"rgpuCopyAtoA: {METER}",
    ),
    "pays for memory with time": (
        _call("rgpuMemAllocMore", charges=(Meter.LAUNCH,)),
        "rgpuMemAllocMore: it takes device memory, so it must name a meter of memory (charges).",
    ),
    "pays for time with memory": (
        _posted("rgpuGraphLaunch", charges=(Meter.GRAPH_MEMORY,)),
        "rgpuGraphLaunch: it keeps the device busy, so it must name a meter of time (charges).",
    ),
    "field of an unknown type": (
        _call("rgpuX", request=("u128 wide",)),
        "rgpuX: the field 'u128 wide' has the unknown type 'u128'.",
    ),
    "field without a name": (
        _call("rgpuX", request=("u64",)),
        "rgpuX: the field 'u64' is not 'TYPE NAME' or 'new HANDLE NAME'.",
    ),
    "new number": (
        _call("rgpuX", request=("new u64 bytes",)),
        "rgpuX: only a handle can be 'new', not 'u64'.",
    ),
    "handle minted by the worker": (
        _call("rgpuX", reply=("new event event",)),
        "rgpuX: the client creates handles, so a reply cannot have a 'new' one.",
    ),
    "field twice": (
        _call("rgpuX", request=("u64 a", "u64 a")),
        "rgpuX: the field 'a' appears twice.",
    ),
    "field that C++ cannot name": (
        _call("rgpuX", request=("u64 delete",)),
        "rgpuX: the field 'delete' is a keyword of C++; give it another name.",
    ),
    "name": (
        _call("cuX"),
        "cuX: the name of a command is 'rgpu' and words with capitals.",
    ),
    "event without a class": (
        _posted("rgpuX", request=("stream stream", "event event")),
        "rgpuX: it has the event 'event': name the event that it concerns, or 'none'.",
    ),
    "concerns another field": (
        _posted("rgpuX", request=("event a", "u32 b"), concerns="b"),
        "rgpuX: it concerns 'b', which is not an event of its request.",
    ),
    "concerns an event that it does not have": (
        _posted("rgpuX", request=("u32 b",), concerns="none"),
        "rgpuX: it concerns 'none', which is not an event of its request.",
    ),
    "device time without work": (
        _posted("rgpuCopyAtoA", charges=(Meter.COPY,)),
        "rgpuCopyAtoA: it is charged for device time, so it must say what the executor predicts "
        "(work).",
    ),
    "work without device time": (
        _posted("rgpuX", work=Work(WorkKind.COPY_IN, "4")),
        "rgpuX: it has work but is not charged for device time (charges).",
    ),
    "names of no field": (
        _call("rgpuX", request=("u32 a",), names={"b": {"kOne": 1}}),
        "rgpuX: 'b' has names for its values but is not an integer of its request.",
    ),
    "name of another form": (
        _call("rgpuX", request=("u32 a",), names={"a": {"ONE": 1}}),
        "rgpuX: 'ONE' is not a new name of the form kName.",
    ),
    "opcode that does not fit": (
        Command(0x10000, "rgpuX", Mode.CALL),
        "rgpuX: the opcode 0x10000 does not fit 16 bits.",
    ),
}

# A posted copy with this work.
WORK_CASES = {
    "over no field": (
        Work(WorkKind.COPY_IN, "width * rows"),
        "its work reads 'rows', which is not a field of its request.",
    ),
    "over bulk that does not travel": (
        Work(WorkKind.COPY_IN, "bulk"),
        "its work reads 'bulk', which is not a field of its request.",
    ),
    "behind a field of variable length": (
        Work(WorkKind.COPY_IN, "height"),
        "its work reads 'height', which stands behind a field of variable length.",
    ),
    "with a minus": (
        Work(WorkKind.COPY_IN, "width - 1"),
        "the length 'width - 1' is not '+' and '*' over names and integers.",
    ),
    "launch with a length": (
        Work(WorkKind.LAUNCH, "width"),
        "a launch has no length; what it launches says how long it runs.",
    ),
    "graph with a length": (
        Work(WorkKind.GRAPH, "width"),
        "a launch has no length; what it launches says how long it runs.",
    ),
    "graph of nothing": (
        Work(WorkKind.GRAPH),
        "its work reads 'exec', which is not a field of its request.",
    ),
    "launch of nothing": (
        Work(WorkKind.LAUNCH),
        "its work reads 'function', which is not a field of its request.",
    ),
}


@pytest.mark.parametrize("case", COMMAND_CASES)
def test_command(toy: Callable[..., rows.Spec], case: str) -> None:
    command, sentence = COMMAND_CASES[case]
    with refused(sentence):
        check.check(toy(calls=[], commands=[command]))


@pytest.mark.parametrize("case", WORK_CASES)
def test_work(toy: Callable[..., rows.Spec], case: str) -> None:
    work, sentence = WORK_CASES[case]
    request = ("u64 width", "bytes note", "u64 height")
    copy = _posted("rgpuCopyX", request=request, charges=(Meter.COPY,), work=work)
    with refused(f"rgpuCopyX: {sentence}"):
        check.check(toy(calls=[], commands=[copy]))


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
    with refused(f"{name}: {METER}"):
        check.check(toy(calls=[], commands=[_call(name)]))
