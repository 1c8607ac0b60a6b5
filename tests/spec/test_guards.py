"""The checks of arguments that are generated from the rows."""

from __future__ import annotations

import pytest

from cudaspec import load
from cudaspec.gen import guards
from cudaspec.model import (
    Arg,
    Call,
    Device,
    Flags,
    Image,
    In,
    InOut,
    Layout,
    Mode,
    NotZero,
    Out,
    Range,
    Value,
)

PROTOTYPE = "CUresult cuX(int *p, int *q, int n, CUdevice dev)"
VALUE, DEVICE = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_DEVICE"


def _lines(*nullable: str, **args: Arg) -> list[str]:
    call = Call(PROTOTYPE, Mode.LOCAL, args=args, state="Dev")
    return guards.guards(load.call_rows({"toy": [call]})["cuX"], "ns", nullable)


@pytest.mark.parametrize(
    ("arg", "condition"),
    [
        (In(), "p == nullptr"),
        (Out(), "p == nullptr"),
        (InOut(), "p == nullptr"),
        (Layout(), "p == nullptr"),
        (Value(nullable=False), "p == nullptr"),
        (In(count="n", empty=True), "(p == nullptr && n != 0)"),
        (NotZero(), "p == 0"),
        (Range(1), "p < 1"),
        (Range("CU_A", "CU_B"), "p < CU_A || p > CU_B"),
        (Flags(), "p != 0"),
        (Flags(("CU_A",)), "(p & ~(static_cast<unsigned>(CU_A))) != 0"),
    ],
)
def test_one_check(arg: Arg, condition: str) -> None:
    assert _lines(p=arg) == [f"  if ({condition}) return entry.Leave({VALUE});"]


def test_the_context_comes_first_where_the_driver_looks_for_it_first() -> None:
    call = Call(PROTOTYPE, Mode.LOCAL, args={"p": Out()}, state="Dev", current=True)
    (line,) = guards.guards(load.call_rows({"toy": [call]})["cuX"], "ns")
    assert line == f"  if (p == nullptr) return entry.LeaveInContext({VALUE});"


@pytest.mark.parametrize(
    "arg",
    [
        In(nullable=True),
        Out(nullable=True),
        InOut(nullable=True),
        Layout(nullable=True),
        Value(),
        Image(),
        In(late="the handle decides first"),
        Out(late="the handle decides first"),
    ],
)
def test_no_check(arg: Arg) -> None:
    assert _lines(p=arg) == []


def test_the_order_is_the_order_of_the_row() -> None:
    assert _lines(p=Out(), q=Out(), dev=Device(), n=NotZero()) == [
        f"  if (p == nullptr || q == nullptr) return entry.Leave({VALUE});",
        f"  if (!ns::IsDevice(dev)) return entry.Leave({DEVICE});",
        f"  if (n == 0) return entry.Leave({VALUE});",
    ]


def test_a_pointer_that_may_be_null_in_one_library_is_not_checked_there() -> None:
    assert _lines("p", p=Out(), q=Out()) == [f"  if (q == nullptr) return entry.Leave({VALUE});"]
