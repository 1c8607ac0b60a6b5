"""Functions of CuPy give what NumPy gives, the first time and when their signature is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_programs import check_strides
from helpers.array_session import session

import rgpu_client.cupy as cp
from rgpu_client.cupy import _catalogue
from rgpu_client.cupy._current import use
from rgpu_client.cupy.errors import exception
from rgpu_server.arrays.cupy_library import CupyLibrary

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def opened() -> Iterator[None]:
    with session(CupyLibrary(), exception) as issuer:
        use(issuer)
        yield
        use(None)


M = np.array([[4.0, 1.5, -2.0], [1.5, 3.0, 0.5], [-2.0, 0.5, 5.0]])
V = np.array([3.0, -1.0, 2.0, 0.5])
N = np.array([3, 1, 2, 1, 0])
C = np.array([1 + 2j, -0.5j, 3])
T = np.arange(24.0).reshape(2, 3, 4)
W = np.array([1.0, np.nan, 2.0, -np.inf])

# Function, arguments, keywords. Arrays are copied to the node.
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("sum", [T], {"axis": (0, 2)}), ("sum", [N], {"dtype": "float32"}), ("sum", [T], {"axis": 1, "keepdims": True}),
    ("mean", [N], {}), ("mean", [T, 0], {"dtype": np.float32}), ("std", [T], {"axis": 1, "ddof": 1}),
    ("var", [T, -1], {}), ("median", [T], {"axis": 2}), ("median", [T], {}), ("percentile", [V, 30], {}),
    ("quantile", [T, 0.25], {"axis": 0, "method": "lower"}), ("average", [V], {"weights": V}), ("ptp", [T, 0], {}),
    ("nansum", [W], {}), ("nanmean", [W], {}), ("nanmax", [W], {}), ("nanmin", [W], {}), ("nanstd", [W], {}),
    ("nanargmax", [W], {}), ("cumsum", [T], {"axis": 1}), ("cumprod", [V], {}), ("diff", [T], {"n": 2, "axis": 2}),
    ("diff", [N], {}), ("gradient", [V], {}), ("ediff1d", [V], {}), ("trace", [M], {}), ("prod", [N], {}),
    ("argmax", [T], {"axis": 1}), ("argmin", [T], {}), ("count_nonzero", [N], {}), ("count_nonzero", [T, 1], {}),
    ("sort", [M], {"axis": 0}), ("argsort", [V], {}), ("lexsort", [M], {}), ("partition", [V, 2], {}),
    ("unique", [N], {}), ("unique", [N], {"return_counts": True, "return_inverse": True}), ("nonzero", [N], {}),
    ("flatnonzero", [N], {}), ("argwhere", [N], {}), ("searchsorted", [np.sort(V), V], {"side": "right"}),
    ("digitize", [V, np.array([0.0, 1.0, 2.0])], {}), ("bincount", [N], {}), ("bincount", [N], {"minlength": 9}),
    ("histogram", [V], {"bins": 4}), ("histogram", [V], {"bins": 3, "range": (0, 3)}), ("isin", [N, N[:2]], {}),
    ("where", [N > 1, N, 0], {}), ("where", [N], {}), ("select", [[N > 2, N > 0], [N, N * 10]], {}),
    ("clip", [V, 0, 2], {}), ("clip", [V, None, 1.5], {}), ("choose", [N % 2, [N, N * 2]], {}),
    ("compress", [N > 1, N], {}), ("extract", [N > 1, N], {}), ("take", [M, N % 3], {"axis": 1}), ("take", [V, 1], {}),
    ("take_along_axis", [M, np.argsort(M, 1), 1], {}), ("diag", [V], {}), ("diag", [M], {"k": 1}), ("diagflat", [V], {}),
    ("diagonal", [T], {}), ("tril", [M], {"k": -1}), ("triu", [M], {}), ("vander", [V], {}), ("tri", [3, 4], {}),
    ("eye", [3], {"k": 1, "dtype": "int32"}), ("identity", [4], {}), ("full", [(2, 2), 3], {}), ("full", [2, 1j], {}),
    ("zeros", [(2, 0)], {}), ("ones", [3, "int8"], {}), ("arange", [2, 9, 3], {}), ("arange", [0.0, 1.0, 0.3], {}),
    ("arange", [5], {"dtype": "float32"}), ("linspace", [0, 1, 7], {}), ("linspace", [0, 5, 3], {"endpoint": False}),
    ("logspace", [0, 2, 5], {}), ("zeros_like", [M], {}), ("full_like", [N, 7], {"dtype": "float64"}),
    ("ones_like", [C], {}), ("meshgrid", [N, V], {}), ("meshgrid", [N, V], {"indexing": "ij"}), ("indices", [(2, 3)], {}),
    ("concatenate", [[M, M]], {"axis": 1}), ("stack", [[V, V]], {"axis": -1}), ("vstack", [[V, V]], {}),
    ("hstack", [[V, N]], {}), ("dstack", [[M, M]], {}), ("column_stack", [[V, V]], {}), ("append", [V, N], {}),
    ("split", [V, 2], {}), ("array_split", [V, 3], {}), ("split", [T, [1, 2]], {"axis": 1}), ("hsplit", [V, 2], {}),
    ("vsplit", [T, 2], {}), ("repeat", [V, 3], {}), ("repeat", [N, N], {}), ("repeat", [M, 2], {"axis": 0}),
    ("tile", [V, (2, 2)], {}), ("pad", [M, 1], {}), ("pad", [V, (1, 2)], {"mode": "edge"}),
    ("pad", [V, 2], {"constant_values": 9}), ("roll", [T, 2], {}), ("roll", [T, 1], {"axis": 1}), ("rot90", [M], {}),
    ("flip", [T], {"axis": 1}), ("fliplr", [M], {}), ("flipud", [M], {}), ("moveaxis", [T, 0, -1], {}),
    ("rollaxis", [T, 2], {}), ("swapaxes", [T, 0, 2], {}), ("transpose", [T], {}), ("transpose", [T, (1, 0, 2)], {}),
    ("expand_dims", [V, 0], {}), ("squeeze", [T[:1]], {}), ("ravel", [T], {}), ("reshape", [T, (4, -1)], {}),
    ("reshape", [T, (4, 6)], {"order": "F"}), ("broadcast_to", [V, (3, 4)], {}), ("atleast_2d", [V], {}),
    ("atleast_3d", [V], {}), ("atleast_3d", [M], {}), ("atleast_1d", [np.float64(2)], {}), ("delete", [V, 1], {}),
    ("broadcast_arrays", [V, T[:, :, :1]], {}), ("resize", [V, (2, 3)], {}), ("dot", [M, M], {}), ("dot", [V, V], {}),
    ("dot", [T, M.repeat(2, 0)[:4]], {}), ("matmul", [T, T.transpose(0, 2, 1)], {}), ("vdot", [C, C], {}),
    ("inner", [M, M], {}), ("outer", [V, N], {}), ("tensordot", [T, M], {"axes": ([1], [0])}), ("kron", [M, V], {}),
    ("einsum", ["ij,jk->ik", M, M], {}), ("einsum", ["ii", M], {}), ("einsum", ["ij->ji", M], {}),
    ("einsum", ["...j,j", T, V], {}), ("cross", [V[:3], V[1:]], {}), ("trapezoid", [V], {}), ("interp", [V, N[:4] * 1.0, V], {}),
    ("convolve", [V, V], {}), ("correlate", [V, V], {"mode": "full"}), ("cov", [M], {}), ("corrcoef", [M], {}),
    ("isclose", [V, V + 1e-9], {}), ("allclose", [V, V], {}), ("array_equal", [V, N], {}), ("nan_to_num", [W], {}),
    ("isnan", [W], {}), ("isreal", [C], {}), ("angle", [C], {}), ("real", [C], {}), ("imag", [C], {}), ("around", [V, 0], {}),
    ("round", [M / 3, 2], {}), ("unwrap", [V * 3], {}), ("i0", [V], {}), ("sinc", [V], {}), ("fix", [V], {}),
    ("hanning", [6], {}), ("kaiser", [5, 2.0], {}), ("divmod", [N, 2], {}), ("modf", [V], {}), ("frexp", [V], {}),
    ("polyval", [V, 2.0], {}), ("roots", [V], {}), ("polyfit", [V, V * 2 + 1, 1], {}), ("union1d", [N, N + 1], {}),
    ("intersect1d", [N, N + 1], {}), ("setdiff1d", [N, N[:2]], {}), ("packbits", [N > 0], {}), ("sort_complex", [C], {}), ("sort_complex", [V], {}), ("linalg.eig", [M], {}), ("linalg.eigvals", [M - M.T], {}),
    ("delete", [V, N[:2]], {}), ("delete", [V, V > 0], {}), ("real_if_close", [C], {}), ("real_if_close", [C.real + 0j], {}),

    ("unravel_index", [N, (2, 3)], {}), ("ravel_multi_index", [(N % 2, N % 3), (2, 3)], {}), ("tril_indices", [3], {}),
    ("linalg.norm", [M], {}), ("linalg.norm", [M], {"axis": 1}), ("linalg.norm", [M, 1], {}), ("linalg.norm", [M, "fro"], {}),
    ("linalg.inv", [M], {}), ("linalg.det", [M], {}), ("linalg.slogdet", [M], {}), ("linalg.solve", [M, M[0]], {}),
    ("linalg.cholesky", [M], {}), ("linalg.eigh", [M], {}), ("linalg.eigvalsh", [M], {}), ("linalg.svd", [M], {}),
    ("linalg.svd", [M[:2]], {"full_matrices": False}), ("linalg.svd", [M], {"compute_uv": False}), ("linalg.qr", [M], {}),
    ("linalg.pinv", [M[:2]], {}), ("linalg.matrix_rank", [M], {}), ("linalg.matrix_power", [M, 3], {}),
    ("linalg.lstsq", [M, M[0]], {}), ("linalg.cond", [M], {}), ("linalg.tensorsolve", [M, M[0]], {}),
    ("fft.fft", [V], {}), ("fft.fft", [T], {"n": 3, "axis": 1}), ("fft.ifft", [C], {}), ("fft.rfft", [T], {}),
    ("fft.irfft", [C], {}), ("fft.irfft", [C], {"n": 5}), ("fft.fft2", [T], {}), ("fft.rfft2", [T], {}),
    ("fft.fftn", [T], {"s": (2, 2), "axes": (0, 1)}), ("fft.fftfreq", [8], {"d": 0.5}), ("fft.fftshift", [V], {}),
    ("fft.hfft", [C], {}), ("fft.fft", [V.astype("float32")], {}),
]  # fmt: skip


def there(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [cp.asarray(one) for one in value]
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(cp.asarray(one) for one in value)
    return cp.asarray(value) if isinstance(value, np.ndarray) else value


def laid(value: Any, order: str) -> Any:
    """Returns an array in Fortran's order, so that results lie in other ways too."""
    if order == "F" and isinstance(value, cp.ndarray) and value.ndim > 1:
        return cp.asfortranarray(value)
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [one for part in value for one in flat(part)]
    return [value]


def function(package: Any, name: str) -> Any:
    for part in name.split("."):
        package = getattr(package, part)
    return package


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    CALLS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_function_gives_what_numpy_gives(
    name: str, arguments: list[Any], keywords: dict[str, Any]
) -> None:
    expected = flat(function(np, name)(*arguments, **keywords))
    for order in ("C", "C", "F"):
        words = {word: there(value) for word, value in keywords.items()}
        given = [laid(there(value), order) for value in arguments]
        got = flat(function(cp, name)(*given, **words))
        assert len(got) == len(expected)
        for mine, numpys in zip(got, expected, strict=True):
            assert isinstance(mine, cp.ndarray)
            assert mine.shape == np.shape(numpys)
            assert mine.dtype == np.asarray(numpys).dtype
            check_strides(mine)
            np.testing.assert_allclose(mine.get(), numpys, rtol=1e-7, atol=1e-9)


def test_every_ufunc_of_the_list_is_there_with_out_where_and_dtype() -> None:
    names = [name for name, row in _catalogue.listed().items() if row.inputs and "." not in name]
    assert len(names) > 95
    for name in names:
        found = getattr(cp, name)
        assert isinstance(found, cp.ufunc)
        assert found.nin == _catalogue.listed()[name].inputs
    a, out = cp.asarray(V), cp.zeros(4)
    assert cp.exp(a, out=out) is out
    np.testing.assert_allclose(out.get(), np.exp(V))
    cp.add(a, 1, out=out, where=cp.asarray([True, False, True, False]))
    np.testing.assert_allclose(out.get(), np.where([1, 0, 1, 0], V + 1, np.exp(V)))
    assert cp.add(a, 1, dtype="float32").dtype == np.float32
    with pytest.raises(TypeError, match="Cannot cast ufunc 'add' output"):
        cp.add(a, 1, out=cp.zeros(4, int))
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        cp.add(a, 1, out=cp.zeros(1))
    fraction, whole = cp.modf(a)
    np.testing.assert_allclose((fraction + whole).get(), V)
    assert cp.add.reduce(cp.asarray(T), axis=1).shape == (2, 4)
    assert cp.maximum.accumulate(a).tolist() == np.maximum.accumulate(V).tolist()
    assert cp.multiply.outer(a, a).shape == (4, 4)
    counts = cp.zeros(3)
    cp.add.at(counts, cp.asarray([0, 0, 2]), 1)
    assert counts.tolist() == [2, 0, 1]


def test_methods_change_arrays_in_place() -> None:
    a = cp.asarray(V)
    a.sort()
    assert a.tolist() == sorted(V)
    a.fill(2)
    a.put([0, 1], [5, 6])
    assert a.tolist() == [5, 6, 2, 2]
    a.partition(1)
    a **= 2
    a //= 3
    assert a.tolist() == [1, 1, 8, 12]
    b = cp.zeros((2, 2))
    cp.fill_diagonal(b, 3)
    cp.copyto(b, cp.ones((2, 2)), where=b == 0)
    assert b.tolist() == [[3, 1], [1, 3]]
    cp.putmask(b, b > 2, cp.asarray([7.0]))
    cp.place(b, b < 2, cp.asarray([4.0]))
    assert b.tolist() == [[7, 4], [4, 7]]
    b.shape = (4,)
    assert b.shape == (4,)
    assert cp.r_[b, 1.0].shape == (5,)
    assert cp.mgrid[0:2, 0:3].shape == (2, 2, 3)
    assert cp.piecewise(a, [a < 2, a >= 2], [0, lambda x: x * 2]).tolist() == [0, 0, 16, 24]
    assert cp.apply_along_axis(lambda row: row.sum(), 1, cp.ones((2, 3))).tolist() == [3, 3]


def test_every_public_name_can_be_had() -> None:
    for package in (cp, cp.linalg, cp.fft, cp.random, cp.cuda, cp.lib, cp.testing):
        names = [name for name in dir(package) if not name.startswith("_")]
        assert len(names) > 1 or package is cp.lib
        for name in names:
            getattr(package, name)
    assert cp.newaxis is None
