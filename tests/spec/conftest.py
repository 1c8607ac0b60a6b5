"""A toy specification of five calls, and the goldens that it must generate."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cudaspec import forward, load, model, rows
from cudaspec.model import (
    Call,
    Command,
    In,
    Meter,
    Mode,
    NotZero,
    Out,
    Work,
    WorkBound,
    WorkKind,
)

GOLDEN = Path(__file__).parent / "golden"

TYPES: tuple[model.Type, ...] = (
    model.Alias("CUdeviceptr", "unsigned long long"),
    model.Handle("CUstream", "CUstream_st"),
    model.Opaque("CUarray"),
)
ERRORS = (
    model.Error(0, "CUDA_SUCCESS", "no error"),
    model.Error(500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    model.Error(801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
)
COMMANDS = (
    Command(
        0x0301,
        "rgpuMemAlloc",
        Mode.CALL,
        request=("u64 bytes",),
        reply=("address dptr",),
        reports=True,
        charges=(Meter.VRAM,),
    ),
    Command(
        0x0303, "rgpuMemFree", Mode.POSTED, request=("address dptr",), destroys=True, reaped=True
    ),
    Command(
        0x0401,
        "rgpuCopyHtoD",
        Mode.POSTED,
        request=("address dst", "u64 width", "stream stream", "bytes note"),
        bulk="request",
        charges=(Meter.COPY,),
        work=Work(WorkKind.COPY_IN, "bulk"),
    ),
    Command(
        0x0406,
        "rgpuMemset",
        Mode.POSTED,
        request=("address dst", "u32 kind", "u32 width", "u64 height"),
        charges=(Meter.COPY,),
        work=Work(WorkKind.SET, "width * height + 16", WorkBound.PIECE),
        names={"kind": {"kZero": 0, "kOne": 1}},
    ),
    Command(
        0x0512,
        "rgpuEventRecord",
        Mode.POSTED,
        request=("stream stream", "event event"),
        concerns="event",
    ),
    Command(
        0x0601,
        "rgpuLaunch",
        Mode.POSTED,
        request=("function function", "kernel kernel", "bytes params"),
        charges=(Meter.LAUNCH,),
        work=Work(WorkKind.LAUNCH),
    ),
)
CALLS = (
    Call(
        "CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)",
        Mode.CALL,
        args={"dptr": Out(creates="address"), "bytesize": NotZero()},
        sends=("rgpuMemAlloc",),
        reports=True,
    ),
    Call(
        "CUresult cuMemFree_v2(CUdeviceptr dptr)", Mode.POSTED, sends=("rgpuMemFree",), state="Adr"
    ),
    Call(
        "CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, "
        "CUstream hStream)",
        Mode.POSTED,
        args={"src": In(len="bytes", empty=True)},
        sends=("rgpuCopyHtoD",),
        state="Adr",
        twins="_ptsz",
    ),
    Call(
        "CUresult cuDriverGetVersion(int *version)",
        Mode.LOCAL,
        args={"version": Out()},
        state="Dev",
        early=True,
    ),
    Call("CUresult cuArrayDestroy(CUarray hArray)", Mode.PLANNED, reason="arrays"),
)
SYMBOLS = (
    model.Symbols("cuArrayDestroy", ((2000, "cuArrayDestroy"),)),
    model.Symbols("cuDriverGetVersion", ((2020, "cuDriverGetVersion"),)),
    model.Symbols("cuMemAlloc", ((2000, "cuMemAlloc"), (3020, "cuMemAlloc_v2"))),
    model.Symbols("cuMemFree", ((2000, "cuMemFree"), (3020, "cuMemFree_v2"))),
    model.Symbols(
        "cuMemcpyHtoDAsync", ((3020, "cuMemcpyHtoDAsync_v2"),), ("cuMemcpyHtoDAsync_v2_ptsz",)
    ),
)


@dataclass(frozen=True)
class Toy:
    """Makes the toy specification, or one with other rows."""

    calls: Sequence[Call] = CALLS
    commands: Sequence[Command] = COMMANDS
    types: tuple[model.Type, ...] = TYPES
    driver: tuple[str, ...] = ("cuMemAlloc_v2", "cuMemFree_v2")
    emulated: frozenset[str] = field(
        default_factory=lambda: frozenset(c.prototype.split("(")[0].split()[1] for c in CALLS[:4])
    )
    emulated_nullable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def spec(self) -> rows.Spec:
        calls, made = forward.expand(load.call_rows({"toy": self.calls}), self.types)
        return rows.Spec(
            calls=calls,
            commands=load.command_rows({"toy": (*self.commands, *made.get("toy", ()))}),
            types=self.types,
            errors=ERRORS,
            symbols=SYMBOLS if self.calls is CALLS else (),
            emulated=self.emulated if self.calls is CALLS else frozenset(),
            emulated_nullable=self.emulated_nullable,
            driver=self.driver if self.calls is CALLS else (),
            extra_exports={"shim": ("rgpu_shim_version",)},
        )


@pytest.fixture
def toy() -> Callable[..., rows.Spec]:
    """toy() is the toy specification; toy(calls=[...], commands=[...]) has other rows."""
    return lambda **rows: Toy(**rows).spec()


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """golden(NAME, TEXT): TEXT is the golden file NAME; RGPU_UPDATE_GOLDENS=1 writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("RGPU_UPDATE_GOLDENS") == "1":
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), "golden", "generated", lineterm=""
        )
        assert text == expected, f"{name} has changed:\n" + "\n".join(diff)

    return compare


@pytest.fixture(scope="session")
def spec() -> rows.Spec:
    """The specification of the installed package."""
    return load.load()


@pytest.fixture(scope="session")
def symbols(spec: rows.Spec) -> Mapping[str, model.Symbols]:
    return {row.name: row for row in spec.symbols}
