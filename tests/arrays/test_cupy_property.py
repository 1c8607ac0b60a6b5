"""Random programs: every intermediate equals NumPy's, and is known before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_programs import (
    BINARY,
    REDUCTIONS,
    SCALARS,
    UNARY,
    Pair,
    arrays,
    both,
    indices,
    outcome,
)
from helpers.array_session import session
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rgpu_client.cupy as cp
from rgpu_client.cupy._current import use
from rgpu_client.cupy.errors import exception
from rgpu_server.arrays.cupy_library import CupyLibrary

# NumPy warns of casts and of means of nothing, in both places.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def opened() -> Iterator[None]:
    with session(CupyLibrary(), exception) as issuer:
        use(issuer)
        yield
        use(None)


def on_node(index: Any) -> Any:
    return tuple(cp.asarray(part) if isinstance(part, np.ndarray) else part for part in index)


def whole(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """With an ellipsis NumPy gives an array, and a view, where it would give a scalar."""
    return index if any(part is Ellipsis for part in index) else (*index, Ellipsis)


class Program:
    """The arrays of a program so far. Every step draws an operation, and operands among them."""

    def __init__(self, data: Any) -> None:
        self.data = data
        start = [arrays(data) for _ in range(2)]
        self.pairs = [Pair(one, cp.asarray(one)) for one in start]

    def draw(self, strategy: Any) -> Any:
        return self.data.draw(strategy)

    def one(self) -> Pair:
        return self.pairs[self.draw(st.integers(0, len(self.pairs) - 1))]

    def keep(self, made: Pair | None) -> None:
        if made is not None and made.here.size < 4096:
            made.check(cp)
            self.pairs.append(made)

    def step(self) -> None:
        getattr(self, self.draw(st.sampled_from(STEPS)))()

    def step_unary(self) -> None:
        name, a = self.draw(st.sampled_from(UNARY)), self.one()
        self.keep(both(lambda: getattr(np, name)(a.here), lambda: getattr(cp, name)(a.there)))

    def step_binary(self) -> None:
        name, a, b = self.draw(st.sampled_from(BINARY)), self.one(), self.one()
        self.keep(
            both(
                lambda: getattr(np, name)(a.here, b.here),
                lambda: getattr(cp, name)(a.there, b.there),
            )
        )

    def step_operator(self) -> None:
        a, b = self.one(), self.draw(SCALARS)
        symbol = self.draw(
            st.sampled_from(
                ["add", "sub", "mul", "truediv", "radd", "rsub", "lt", "ge", "eq", "mod"]
            )
        )
        name = f"__{symbol}__"
        self.keep(
            both(lambda: np.asarray(getattr(a.here, name)(b)), lambda: getattr(a.there, name)(b))
        )

    def step_in_place(self) -> None:
        a = self.one()
        b = self.one() if self.draw(st.booleans()) else None
        scalar = self.draw(st.sampled_from([2, 3.0, True]))
        name = self.draw(st.sampled_from(["add", "subtract", "multiply", "maximum"]))
        assume(a.here.flags.writeable)
        here, there = (scalar, scalar) if b is None else (b.here, b.there)
        if isinstance(outcome(lambda: np.result_type(a.here, here)), Exception):
            return
        failed = outcome(lambda: getattr(np, name)(a.here.copy(), here, out=a.here.copy()))
        if isinstance(failed, Exception):
            with pytest.raises(TypeError if isinstance(failed, TypeError) else ValueError):
                getattr(cp, name)(a.there, there, out=a.there)
            return
        outcome(lambda: getattr(np, name)(a.here, here, out=a.here))
        assert getattr(cp, name)(a.there, there, out=a.there) is a.there
        a.check(cp)

    def step_index(self) -> None:
        a = self.one()
        index = indices(self.data, a.here.shape)
        self.keep(both(lambda: a.here[whole(index)], lambda: a.there[on_node(index)]))

    def step_set(self) -> None:
        a = self.one()
        index = indices(self.data, a.here.shape)
        assume(a.here.flags.writeable)
        if self.draw(st.booleans()):
            here = there = self.draw(st.sampled_from([1, 2.0, True]))
        else:
            value = self.one()
            here, there = value.here, value.there
        if np.asarray(here).dtype.kind == "c" and a.here.dtype.kind != "c":
            return
        shape = outcome(lambda: a.here[whole(index)].shape)
        if isinstance(outcome(lambda: np.broadcast_to(here, shape)), Exception) or np.shares_memory(
            a.here, here
        ):
            return
        # Elements that an index names twice get either value, so values are the same.
        if np.size(here) > 1 and any(isinstance(part, np.ndarray) for part in index):
            return
        if outcome(lambda: a.here.__setitem__(index, here)) is None:
            a.there[on_node(index)] = there
            a.check(cp)

    def step_reduce(self) -> None:
        name, a = self.draw(st.sampled_from(REDUCTIONS)), self.one()
        axes = st.one_of(st.none(), st.integers(-3, 2))
        # NumPy takes axis 0 of an array without axes; CuPy does not.
        axis = self.draw(axes) if a.here.ndim else None
        if name in ("std", "var", "median") and a.here.dtype.kind in "bc":
            return
        self.keep(
            both(
                lambda: getattr(np, name)(a.here, axis=axis),
                lambda: getattr(cp, name)(a.there, axis=axis),
            )
        )

    def step_keepdims(self) -> None:
        a, name = self.one(), self.draw(st.sampled_from(["sum", "max", "mean"]))
        axis = self.draw(st.sampled_from([None, 0, -1, (0, 1)])) if a.here.ndim else None
        self.keep(
            both(
                lambda: getattr(np, name)(a.here, axis=axis, keepdims=True),
                lambda: getattr(cp, name)(a.there, axis=axis, keepdims=True),
            )
        )

    def step_shape(self) -> None:
        a = self.one()
        kind = self.draw(
            st.sampled_from(
                ["ravel", "T", "reshape", "newaxis", "swap", "squeeze", "broadcast", "flip"]
            )
        )
        calls = {
            "ravel": lambda x, xp: x.reshape(-1),
            "T": lambda x, xp: x.T,
            "reshape": lambda x, xp: x.reshape(2, -1),
            "newaxis": lambda x, xp: xp.expand_dims(x, (0, -1)),
            "swap": lambda x, xp: x.swapaxes(0, -1),
            "squeeze": lambda x, xp: x.squeeze(),
            "broadcast": lambda x, xp: xp.broadcast_to(x, (2, *x.shape)),
            "flip": lambda x, xp: xp.flip(x),
        }
        self.keep(both(lambda: calls[kind](a.here, np), lambda: calls[kind](a.there, cp)))

    def step_join(self) -> None:
        a, b = self.one(), self.one()
        kind = self.draw(
            st.sampled_from(["concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"])
        )
        axis = self.draw(st.integers(-2, 2))
        words = {"axis": axis} if kind in ("concatenate", "stack") else {}
        self.keep(
            both(
                lambda: getattr(np, kind)([a.here, b.here], **words),
                lambda: getattr(cp, kind)([a.there, b.there], **words),
            )
        )

    def step_product(self) -> None:
        a, b = self.one(), self.one()
        kind = self.draw(st.sampled_from(["matmul", "dot", "outer", "tensordot", "kron", "inner"]))
        words = {"axes": 1} if kind == "tensordot" else {}
        if a.here.dtype == bool and b.here.dtype == bool and kind != "matmul":
            return
        self.keep(
            both(
                lambda: getattr(np, kind)(a.here, b.here, **words),
                lambda: getattr(cp, kind)(a.there, b.there, **words),
            )
        )

    def step_where(self) -> None:
        a, b, c = self.one(), self.one(), self.one()
        self.keep(
            both(
                lambda: np.where(a.here, b.here, c.here),
                lambda: cp.where(a.there, b.there, c.there),
            )
        )

    def step_astype(self) -> None:
        a, dtype = (
            self.one(),
            self.draw(st.sampled_from(["float32", "float64", "complex64", "bool"])),
        )
        if a.here.dtype.kind == "c" and dtype != "complex64":
            return
        self.keep(both(lambda: a.here.astype(dtype), lambda: a.there.astype(dtype)))

    def step_sort(self) -> None:
        a, name = self.one(), self.draw(st.sampled_from(["sort", "unique", "nonzero"]))
        if name == "nonzero":
            if a.here.ndim:
                self.keep(Pair(np.nonzero(a.here)[0], cp.nonzero(a.there)[0]))
            return
        self.keep(both(lambda: getattr(np, name)(a.here), lambda: getattr(cp, name)(a.there)))

    def step_fft(self) -> None:
        a, name = self.one(), self.draw(st.sampled_from(["fft", "ifft", "rfft", "fftn"]))
        if not a.here.ndim:
            return
        self.keep(
            both(lambda: getattr(np.fft, name)(a.here), lambda: getattr(cp.fft, name)(a.there))
        )


STEPS = [name for name in dir(Program) if name.startswith("step_")]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_intermediate_of_a_random_program_equals_numpys(data: st.DataObject) -> None:
    program = Program(data)
    for _ in range(data.draw(st.integers(1, 8))):
        program.step()
    for pair in program.pairs:
        pair.compare()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_an_index_of_any_kind_selects_what_numpy_selects(data: st.DataObject) -> None:
    array = arrays(data)
    index = indices(data, array.shape)
    made = both(lambda: array[whole(index)], lambda: cp.asarray(array)[on_node(index)])
    if made is not None:
        made.check(cp)
