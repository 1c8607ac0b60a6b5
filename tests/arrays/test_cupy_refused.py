"""What is wrong comes up as CuPy's own exception, at the line that is wrong."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_session import session

import rgpu_client.cupy as cp
from rgpu_client.arrays.issuer import Issuer, SessionLostError
from rgpu_client.cupy._call import call
from rgpu_client.cupy._current import use
from rgpu_client.cupy.errors import exception
from rgpu_common.arrays.messages import Tag
from rgpu_common.errors import NoSessionError
from rgpu_server.arrays import cupy_rows
from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.library import NotOfferedError, Slot
from rgpu_server.arrays.templates import Builder, MalformedError

MIB = 1 << 20


@pytest.fixture(autouse=True)
def issuer() -> Iterator[Issuer]:
    with session(CupyLibrary(most_bytes=16 * MIB), exception) as opened:
        use(opened)
        yield opened
        use(None)


def test_wrong_shapes_are_refused_at_once_with_numpys_text() -> None:
    with pytest.raises(
        ValueError, match=r"could not be broadcast together with shapes \(3,\) \(4,\)"
    ):
        cp.ones(3) + cp.ones(4)
    with pytest.raises(ValueError, match="mismatch in its core dimension 0"):
        cp.ones((2, 3)) @ cp.ones((2, 3))
    for number in (3, 2.5, np.float32(1)):
        with pytest.raises(ValueError, match="Input operand 1 does not have enough dimensions"):
            cp.ones((2, 3)) @ number
        with pytest.raises(ValueError, match="Input operand 0 does not have enough dimensions"):
            number @ cp.ones((2, 3))
    with pytest.raises(ValueError, match="cannot reshape array of size 6 into shape"):
        cp.ones(6).reshape(4)
    with pytest.raises(ValueError, match="could not broadcast input array from shape"):
        cp.ones(3)[:] = cp.ones(4)
    with pytest.raises(np.exceptions.AxisError, match="axis 2 is out of bounds"):
        cp.ones((2, 2)).sum(axis=2)
    with pytest.raises(TypeError, match="not supported for the input types"):
        cp.ones(3) & cp.ones(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        cp.sum(cp.ones(3), axes=1)
    with pytest.raises(np.linalg.LinAlgError, match="must be square"):
        cp.linalg.inv(cp.ones((2, 3)))


def test_a_failure_on_the_node_names_the_line_of_the_program() -> None:
    singular = cp.zeros((2, 2))
    inverse = cp.linalg.inv(singular)
    line = sys._getframe().f_lineno - 1
    result = inverse + 1
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix") as caught:
        result.get()
    assert caught.value.rgpu_site == (__file__, line)  # type: ignore[attr-defined]
    assert (singular + 1).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.einsum("ij->k", x.ones((2, 3))),
        lambda x: x.take_along_axis(x.ones((2, 3)), x.zeros(2, dtype=int), 0),
        lambda x: x.concatenate([]),
        lambda x: x.stack([]),
        lambda x: x.concatenate([x.ones(2), x.ones((2, 2))]),
        lambda x: x.ones((2, 3)) @ x.ones((2, 3)),
        lambda x: x.squeeze(x.ones((2, 3)), 1),
    ],
)
def test_wrong_arguments_are_refused_in_numpys_words(make: Any) -> None:
    with pytest.raises(ValueError) as want:  # noqa: PT011
        make(np)
    with pytest.raises(ValueError) as got:  # noqa: PT011
        make(cp)
    assert str(got.value) == str(want.value)


def test_objects_and_text_are_no_arrays() -> None:
    with pytest.raises(ValueError, match="Unsupported dtype object"):
        cp.array([object()])
    with pytest.raises(ValueError, match="Unsupported dtype"):
        cp.array(["text"])
    with pytest.raises(ValueError, match="Unsupported dtype object"):
        cp.zeros(3, dtype=object)
    with pytest.raises(TypeError, match="Unsupported type"):
        cp.add(cp.ones(2), "text")
    with pytest.raises(OverflowError, match="too large"):
        cp.ones(2) + 2**70


@pytest.mark.parametrize(
    "make",
    [
        lambda: cp.zeros((1 << 20, 1 << 20)),
        lambda: cp.ones(4 * MIB),
        lambda: cp.arange(1 << 40),
        lambda: cp.eye(1 << 20),
        lambda: cp.ones(10).repeat(1 << 30),
        lambda: cp.tile(cp.ones(10), 1 << 30),
        lambda: cp.broadcast_to(cp.ones(1), (1 << 20, 1 << 20)),
        lambda: cp.random.rand(1 << 20, 1 << 10),
        lambda: cp.outer(cp.ones(1 << 14), cp.ones(1 << 14)),
        lambda: cp.pad(cp.ones(3), 1 << 40),
        lambda: cp.fft.fft(cp.ones(3), n=1 << 40),
        lambda: cp.linspace(0, 1, 1 << 40),
        lambda: cp.diag(cp.ones(3), 1 << 30),
    ],
)
def test_an_array_that_can_never_fit_is_refused_before_it_is_made(make: Any) -> None:
    with pytest.raises(cp.cuda.OutOfMemoryError, match="Out of memory allocating"):
        make().get()
    assert cp.ones(3).sum().get() == 3


def test_an_array_that_fits_is_made() -> None:
    assert cp.ones(2 * MIB).nbytes == 16 * MIB
    assert int(cp.ones(2 * MIB).sum()) == 2 * MIB
    assert cp.zeros(16 * MIB, "int8").get().nbytes == 16 * MIB
    assert cp.zeros_like(cp.zeros(16 * MIB, "int8")).get().nbytes == 16 * MIB
    with pytest.raises(MemoryError, match="Out of memory allocating 16,777,224 bytes"):
        cp.ones(2 * MIB + 1).get()


def test_strides_may_not_leave_the_memory() -> None:
    from rgpu_client.cupy.lib.stride_tricks import as_strided, sliding_window_view

    a = cp.arange(10)
    assert as_strided(a, (3, 2), (16, 8)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert sliding_window_view(a, 4).shape == (7, 4)
    for shape, strides in [((11,), (8,)), ((2,), (-8,)), ((3, 3), (8, 80)), ((1 << 20,), (8,))]:
        with pytest.raises((ValueError, MemoryError)):
            as_strided(a, shape, strides).get()


@pytest.mark.parametrize(
    ("name", "form", "count"), [("sparse.compressed", "csr", 3), ("sparse.coordinates", "coo", 2)]
)
def test_indices_that_change_after_they_were_checked_are_refused(
    name: str, form: str, count: int
) -> None:
    library, parts = CupyLibrary(), [Slot("a")] * 3
    indices = [np.arange(2, dtype=np.int32), np.arange(count, dtype=np.int32)]
    made = library.keep(library.define(name, [form, *parts], {}).call(form, np.ones(2), *indices))
    for one in indices:
        one[:] = 1 << 30
    with pytest.raises(ValueError, match="of a sparse matrix"):
        library.define("sparse.toarray", parts[:1], {}).call(made)


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("cumsum", [np.arange(3.0)], {"axis": 0, "out": np.array(3.0)}),
        ("nancumprod", [np.arange(3.0), 0, None], {"out": np.array(3.0)}),
        ("rgpu.ufunc_accumulate", ["add", np.arange(3.0)], {"out": np.array(3.0)}),
        ("cumulative_sum", [np.arange(3.0)], {"out": np.array(3.0)}),
        ("cumulative_prod", [np.arange(3.0)], {"axis": 0, "out": np.array(3.0)}),
        ("cupyx.scipy.ndimage.white_tophat",
         [np.array(2), np.array([[3.0]]), 0, np.array(2)], {}),
        ("cupyx.scipy.ndimage.grey_closing", [float("nan"), 3, False, 5], {}),
    ],
)  # fmt: skip
def test_what_numpy_and_scipy_would_crash_on_is_refused(
    name: str, arguments: list[Any], keywords: dict[str, Any]
) -> None:
    def shown(value: Any) -> Any:
        return Slot("a") if isinstance(value, np.ndarray) else value

    template = CupyLibrary().define(
        name, [shown(one) for one in arguments], {key: shown(one) for key, one in keywords.items()}
    )
    with pytest.raises(ValueError, match=r"wrong size|at least one dimension"):
        template.call(*arguments, **keywords)


def test_a_closed_session_says_so(issuer: Issuer) -> None:
    a = cp.ones(3)
    issuer.close()
    with pytest.raises(SessionLostError, match="the session is closed"):
        a + 1
    with pytest.raises(SessionLostError, match="the session is closed"):
        a.get()


def test_without_a_session_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(None)
    monkeypatch.setenv("RGPU_SERVER", "unix:/nowhere/rgpu.sock")
    with pytest.raises(NoSessionError, match=r"CuPy has no session .* start .rgpu serve"):
        cp.ones(3)


def test_arrays_of_two_sessions_do_not_mix() -> None:
    a = cp.ones(3)
    with session(CupyLibrary(), exception) as other:
        use(other)
        b = cp.ones(3)
        with pytest.raises(ValueError, match="different sessions"):
            a + b
        with pytest.raises(ValueError, match="different sessions"):
            cp.where(a, b, b)
        del b


REFUSED = [
    "load", "save", "fromfile", "memmap", "safe_eval", "lib.npyio.DataSource", "os.system", "builtins.eval",
    "__import__", "ndarray.__reduce__", "ndarray.ctypes", "cuda.runtime.free", "fuse", "vectorize", "sum.__call__",
    "linalg", "random", "random.get_state", "rgpu", "rgpu.getattr", "add.__class__", "", ".", "a" * 5000,
    "apply_along_axis", "from_dlpack", "set_allocator", "rgpu.ufunc", "cupyx.scipy.sparse.safely_cast_index_arrays",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_on_the_list_is_not_executed(name: str) -> None:
    with pytest.raises(NotOfferedError):
        CupyLibrary().define(name, [], {})


def test_text_is_taken_only_where_it_is_on_the_list() -> None:
    library = CupyLibrary()
    for name, arguments, keywords in [
        ("zeros", [3, "O"], {}),
        ("zeros", [3], {"dtype": "O"}),
        ("sort", [Slot("a")], {"kind": "__class__"}),
        ("einsum", ["ij;import os", Slot("a")], {}),
        ("einsum", ["a,a,a,a,a,a,a,a,a", *[Slot("a")] * 9], {"optimize": "optimal"}),
        ("einsum", ["a,a,a,a,a,a,a,a,a", *[Slot("a")] * 9], {"optimize": Slot("v")}),
        ("einsum", ["a,a,a,a,a,a,a,a,a", *[Slot("a")] * 9], {"optimize": ("optimal", 9)}),
        ("rgpu.ufunc_reduce", ["frompyfunc", Slot("a")], {}),
        ("rgpu.ufunc_reduce", ["__class__", Slot("a")], {}),
        ("rgpu.getitem", [Slot("a"), "field"], {}),
        ("rgpu.setitem", [Slot("a"), 0, "text"], {}),
        ("split", [Slot("a"), 10**9], {}),
        ("sum", [Slot("a")], {"initial": 3}),
        ("sum", [Slot("a")] * 9, {}),
        ("pad", [Slot("a"), 3, "os"], {}),
        ("array", ["abc"], {}),
    ]:
        with pytest.raises(NotOfferedError):
            library.define(name, arguments, keywords)


def test_text_in_the_slot_of_a_run_is_refused(issuer: Issuer) -> None:
    made = issuer.new_id()
    template = issuer.template("hostile", "zeros", [["v"], ["v"]], {})
    issuer.run(template, [3, "O"], [made])
    with pytest.raises(NotImplementedError, match="not offered"):
        issuer.describe([made])


def test_hostile_templates_end_in_a_refusal_or_an_exception() -> None:
    """Arguments that no client builds: nothing but an Exception of the call's may come out."""
    draw, library = random.Random(3), CupyLibrary(most_bytes=MIB)
    names = sorted(cupy_rows.rows())
    values = np.arange(6.0).reshape(2, 3)
    # These take long for some numbers, and nothing else.
    slow = ("cupyx.scipy.signal.", "cupyx.scipy.ndimage.", "matrix_power", "random.zipf", "special")
    executed = 0
    for _ in range(1500):
        name = draw.choice(names)
        if any(part in name for part in slow):
            continue
        arguments = [hostile(draw, 0) for _ in range(draw.randint(0, 4))]
        try:
            template = Builder(library).build(name, arguments, {}, 1)
        except (NotOfferedError, MalformedError):
            continue
        slots = [
            values if slot.kind == "a" else 1 + 2j if slot.kind == "c" else 2
            for slot in template.slots
        ]
        with contextlib.suppress(Exception):
            library.keep(template.call(slots))
        executed += 1
    assert executed > 200
    assert values.shape == (2, 3)


def hostile(draw: random.Random, depth: int) -> Any:
    plain = [
        None,
        True,
        -1,
        0,
        3,
        1 << 62,
        2.5,
        float("nan"),
        "C",
        "O",
        "__class__",
        ["a"],
        ["a"],
        ["v"],
    ]
    tagged = [
        [Tag.DTYPE, "float32"],
        [Tag.ELLIPSIS],
        [Tag.COMPLEX, 1.0, 2.0],
        [Tag.SLICE, None, 2, None],
    ]
    if depth < 2 and draw.random() < 0.2:
        kind = draw.choice([Tag.LIST, Tag.TUPLE])
        return [kind, *(hostile(draw, depth + 1) for _ in range(draw.randint(0, 3)))]
    return draw.choice([*plain, *tagged])


def test_the_client_refuses_names_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match=r"'nothing_of_this_name': .* with NumPy"):
        _ = cp.nothing_of_this_name
    with pytest.raises(KeyError):
        call("os.system", (cp.ones(2),), {})


def test_an_engine_survives_what_no_client_sends(issuer: Issuer) -> None:
    """Hostile templates through a session: whatever they are, the session still computes after."""
    draw = random.Random(5)
    names = [name for name in sorted(cupy_rows.rows()) if not name.startswith("cupyx")]
    value = cp.ones((2, 3))
    for at in range(300):
        arguments = [hostile(draw, 0) for _ in range(draw.randint(0, 3))]
        # A list is a part only with a tag; these come without slots to fill.
        if "'a'" in repr(arguments) or "'v'" in repr(arguments):
            continue
        made = issuer.new_id()
        issuer.run(issuer.template(("hostile", at), draw.choice(names), arguments, {}), [], [made])
        with contextlib.suppress(Exception):
            issuer.sync()
        issuer.free(made)
    with contextlib.suppress(Exception):
        issuer.sync()
    assert float(value.sum()) == 6


@pytest.mark.parametrize("order", ["C", "F", "K", None])
def test_arrays_in_fortrans_order_travel_as_they_lie(order: str | None) -> None:
    whole = np.arange(24.0).reshape(2, 3, 4)
    for value in (whole, np.asfortranarray(whole), whole[:, ::2], whole.transpose(0, 2, 1)):
        made = cp.array(value, order=order) if order else cp.asarray(value)
        assert (made.get() == value).all()
        assert made.flags.f_contiguous == (order == "F" or (order != "C" and value.flags.fnc))
        back = made.get(order="F")
        assert back.flags.f_contiguous
        assert (back == value).all()
        made[0] = 1
        assert (made.get()[0] == 1).all()
