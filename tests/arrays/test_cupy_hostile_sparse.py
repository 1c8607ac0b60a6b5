"""The indices of a sparse matrix lie in memory that its owner can write at any time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_session import session

import rgpu_client.cupy as cp
from rgpu_client.arrays.issuer import Issuer
from rgpu_client.cupy._current import use
from rgpu_client.cupy.errors import exception
from rgpu_client.cupyx.scipy import sparse
from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.library import Slot

WILD = (1 << 30, -1, -(1 << 30))
A = [Tag.SLOT_OBJECT]


@pytest.fixture(autouse=True)
def issuer() -> Iterator[Issuer]:
    with session(CupyLibrary(most_bytes=16 << 20), exception) as opened:
        use(opened)
        yield opened
        use(None)


def parts() -> tuple[Any, Any, Any]:
    """Data, indices and index pointer of a matrix of 4 by 4."""
    return cp.arange(1.0, 5), cp.arange(4, dtype="int32"), cp.arange(5, dtype="int32")


def uses(matrix: Any) -> None:
    """Each of these reads the indices in C."""
    for use_it in (
        lambda: matrix @ cp.ones(4),
        lambda: matrix.tocsc() if matrix.format != "csc" else matrix.tocsr(),
        lambda: matrix.toarray(),
        lambda: matrix + matrix,
        lambda: matrix @ matrix,
        lambda: matrix.sum(axis=0),
        lambda: sparse.hstack([matrix, matrix]),
        lambda: sparse.linalg.spsolve(matrix, cp.ones(4)),
    ):
        with pytest.raises(ValueError, match="of a sparse matrix"):
            looked_at(use_it())


def looked_at(value: Any) -> None:
    """Waits until the node has it."""
    current = value._session.issuer
    current.describe([value._id])


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix])
def test_indices_that_change_later_are_refused(form: Any, wild: int) -> None:
    data, indices, starts = parts()
    matrix = form((data, indices, starts), shape=(4, 4))
    assert matrix.toarray().sum() == 10
    indices[2] = wild
    uses(matrix)
    indices[2] = 2
    assert matrix.toarray().sum() == 10


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_an_index_pointer_that_changes_later_is_refused(wild: int, at: int) -> None:
    data, indices, starts = parts()
    matrix = sparse.csr_matrix((data, indices, starts), shape=(4, 4))
    assert matrix.nnz == 4
    starts[at] = wild
    uses(matrix)


@pytest.mark.parametrize("wild", WILD)
def test_coordinates_that_change_later_are_refused(wild: int) -> None:
    row, column = cp.arange(4, dtype="int32"), cp.arange(4, dtype="int32")
    matrix = sparse.coo_matrix((cp.ones(4), (row, column)), shape=(4, 4))
    assert matrix.toarray().sum() == 4
    column[0] = wild
    uses(matrix)


def test_what_is_sorted_once_need_not_be_later() -> None:
    data, indices, starts = cp.ones(4), cp.arange(4, dtype="int32"), cp.asarray([0, 4, 4, 4, 4])
    matrix = sparse.csr_matrix((data, indices, starts.astype("int32")), shape=(4, 4))
    matrix.sum_duplicates()
    assert matrix.nnz == 4
    indices[:] = 1
    assert matrix.toarray()[0].tolist() == [0, 4, 0, 0]
    matrix.sum_duplicates()
    assert matrix.nnz == 1


def overlapping() -> tuple[Any, Any, Any]:
    """Data, indices and index pointer of a matrix of 4 by 4. Its data end where the pointer does."""
    memory = np.zeros(8)
    starts, indices, data = memory.view(np.int32)[4:9], np.arange(4, dtype=np.int32), memory[:4]
    starts[:] = [0, 4, 4, 4, 4]
    indices[:] = [1, 1, 0, 0]
    return data, indices, starts


def test_what_a_matrix_changes_in_place_are_not_its_own_indices() -> None:
    """The sums of data would be written to the index pointer, while SciPy goes along it."""
    library = CupyLibrary()
    data, indices, starts = overlapping()
    made = library.keep(
        library.define("sparse.compressed", ["csr", *[Slot("a")] * 3, (4, 4)], {}).call(
            "csr", data, indices, starts, (4, 4)
        )
    )
    for name in ("sum_duplicates", "sort_indices", "toarray"):
        library.define(f"sparse.{name}", [Slot("a")], {}).call(made)
        parts = [made.matrix.data, made.matrix.indices, made.matrix.indptr]
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(parts, 2))


def test_two_matrices_of_one_operation_share_no_indices() -> None:
    """What SciPy does to the first in place would change the second after its check."""
    library, both = CupyLibrary(), []
    indices, starts = np.arange(4, dtype=np.int32), np.arange(5, dtype=np.int32)
    for _ in range(2):
        made = library.define("sparse.compressed", ["csr", *[Slot("a")] * 3, (4, 4)], {}).call(
            "csr", np.ones(4), indices, starts, (4, 4)
        )
        both.append(library.keep(made))
    total = library.define("sparse.add", [Slot("a")] * 2, {}).call(*both)
    assert total.toarray().tolist() == (2 * np.eye(4)).tolist()
    assert not np.shares_memory(both[0].matrix.indices, both[1].matrix.indices)
    # One matrix given twice is no two matrices.
    kept = both[0].matrix.indices
    library.define("sparse.matmul", [Slot("a")] * 2, {}).call(both[0], both[0])
    assert both[0].matrix.indices is kept


def test_other_operations_get_no_matrix(issuer: Issuer) -> None:
    """NumPy would make an object array of it, and compute by the matrix's methods."""
    matrix = sparse.csr_matrix(cp.eye(4))
    for name in ("add", "multiply", "matmul", "rgpu.copy", "rgpu.astype", "rgpu.getitem"):
        made = issuer.new_id()
        second = {"rgpu.astype": [Tag.DTYPE, "int8"], "rgpu.getitem": 0}.get(name, 1)
        arguments = [A] if name == "rgpu.copy" else [A, second]
        issuer.run(issuer.template(name, name, arguments, {}), [matrix._id], [made])
        with pytest.raises(Exception, match=r".+"):
            issuer.describe([made])
    assert matrix.nnz == 4
