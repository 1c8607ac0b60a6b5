"""Arguments that NumPy and SciPy trust are checked, whatever carries them: numbers or arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays import cupy_numbers, cupy_rows
from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.held_sparse import Held
from rgpu_server.arrays.library import NotOfferedError, Slot

FAR = 1 << 62
_OBJECTS = (np.ndarray, np.generic, Held)


def call(name: str, *arguments: Any, **keywords: Any) -> Any:
    """Executes a function as a session with a lease of 1 MiB does."""
    library = CupyLibrary(most_bytes=1 << 20)
    form = [shown(one) for one in arguments]
    named = {key: shown(one) for key, one in keywords.items()}
    return library.define(name, form, named).call(*arguments, **keywords)


def shown(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(shown, value))
    if isinstance(value, np.generic):
        return Slot(Tag.SLOT_SCALAR, value.dtype.name)
    return Slot(Tag.SLOT_OBJECT) if isinstance(value, _OBJECTS) else value


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


# The products of shape and strides are 0, or a small number, in 64 bits.
WRAPPED = [
    (i64(5), i64(FAR)),
    (i64(3, 5), i64(8, FAR)),
    (i64(2), i64(-FAR) - FAR),
    ((np.int64(5),), (np.int64(FAR),)),
    ([np.int64(5)], [np.array(FAR)]),
    ((1 << 33,), (1 << 33,)),
    (np.array([255, 2], np.uint8), np.array([255, 1], np.uint8)),
]


@pytest.mark.parametrize(("shape", "strides"), WRAPPED)
def test_no_view_leaves_its_memory_by_arithmetic_that_wraps(shape: Any, strides: Any) -> None:
    with pytest.raises((ValueError, MemoryError), match=r"incompatible with shape|Out of memory"):
        call("rgpu.as_strided", np.arange(10), shape, strides)


def test_arrays_are_numbers_where_numbers_are_meant() -> None:
    view = call("rgpu.as_strided", np.arange(10), i64(3, 2), (np.int64(16), np.array(8)))
    assert view.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert call("zeros", i64(2, 3)).shape == (2, 3)
    assert call("sum", np.ones((2, 3)), np.array(1)).tolist() == [3, 3]
    assert call("sum", np.ones((2, 3)), axis=np.int8(0)).tolist() == [2, 2, 2]
    assert [len(one) for one in call("split", np.arange(5), i64(1, 3))] == [1, 2, 2]
    # Here a parameter of such a name is an array.
    assert call("linalg.matrix_power", 2 * np.eye(2), np.array(3)).tolist() == [[8, 0], [0, 8]]
    assert call("tril", np.ones((2, 2)), np.array(0)).tolist() == [[1, 0], [1, 1]]


def test_numbers_of_arrays_have_the_same_bounds() -> None:
    for sizes in (i64(1 << 32, 1 << 32), np.full(2, 1 << 31, np.uint32)):
        with pytest.raises(MemoryError, match="Out of memory"):
            call("zeros", sizes)
        with pytest.raises(MemoryError, match="Out of memory"):
            call("resize", np.ones(3), sizes)
    with pytest.raises(NotOfferedError, match="indices_or_sections is out of range"):
        call("array_split", np.arange(3), np.array(10**9))
    with pytest.raises(NotOfferedError, match="takes at most 65536 numbers"):
        call("array_split", np.arange(3), np.zeros(10**5, np.int64))


def test_every_exception_is_a_function_of_the_list() -> None:
    rows = cupy_rows.rows()
    names = {name for row in rows.values() for name in (*row.parameters, *row.keywords)}
    assert names >= cupy_numbers._NAMES
    for parameter, functions in cupy_numbers._ARRAYS.items():
        for one in functions:
            found = [row for public, row in rows.items() if public.startswith(one)]
            assert any(parameter in (*row.parameters, *row.keywords) for row in found)


def test_counts_that_add_up_to_nothing_are_refused() -> None:
    four = np.zeros(4, np.int8)
    for counts in (np.array(FAR), i64(FAR, FAR, FAR, FAR), [FAR] * 4, [np.array(FAR)] * 4, FAR):
        with pytest.raises(MemoryError, match="Out of memory"):
            call("repeat", four, counts)
        with pytest.raises(MemoryError, match="Out of memory"):
            call("repeat", np.zeros((4, 1), np.int8), counts, axis=0)
    with pytest.raises(MemoryError, match="Out of memory"):
        call("tile", np.zeros((4, 8, 1), np.int8), (1, FAR, 0))
    # What fits is repeated, also where one count is large.
    assert call("repeat", np.arange(1000), [0] * 999 + [5000]).tolist() == [999] * 5000
    assert call("repeat", np.arange(4).reshape(2, 2), i64(1, 2), axis=0).shape == (3, 2)
    assert call("tile", np.ones(3), (2, 0)).shape == (2, 0)


def test_indices_that_wrap_around_do_so_at_once() -> None:
    """NumPy subtracts the length again and again."""
    for index, at in ((FAR, 0), (-FAR - 1, 7), (FAR + 9, 1)):
        assert call("take", np.arange(8), i64(index)).tolist() == [at]
        changed = np.zeros(8)
        call("put", changed, i64(index), 1.0, mode="wrap")
        assert changed.nonzero()[0].tolist() == [at]
    assert call("take", np.arange(8).reshape(2, 4), np.array(-1), 1).tolist() == [3, 7]


FACTORS = np.eye(3)


@pytest.mark.parametrize(
    "pivots",
    [
        np.full(3, 1 << 28, np.int32), i64(0, 1, -5), i64(0, 1, 3), [1 << 30] * 3, i64(0, 1),
        np.full(3, 1e9), np.full((2, 3), 1 << 20), np.array(1),
    ],
)  # fmt: skip
def test_pivots_are_rows_of_the_matrix(pivots: Any) -> None:
    with pytest.raises(ValueError, match=r"pivots of a factorization must be|needs 3 pivots"):
        call("cupyx.scipy.linalg.lu_solve", (FACTORS, pivots), np.ones(3))


def test_good_pivots_are_taken_and_no_result_changes_them() -> None:
    pivots, right = np.arange(3, dtype=np.int32), np.ones((3, 2))
    for one in (pivots, pivots.astype(np.int64), [0, 1, 2]):
        assert call("cupyx.scipy.linalg.lu_solve", (FACTORS, one), right).tolist() == right.tolist()
    # The right side, which the result overwrites, lies where the pivots do.
    memory = np.zeros(16, np.float32)
    pivots = memory.view(np.int32)[:3]
    pivots[:] = [0, 1, 2]
    answer = call(
        "cupyx.scipy.linalg.lu_solve", (FACTORS.astype(np.float32), pivots), memory[:3],
        overwrite_b=True, check_finite=False,
    )  # fmt: skip
    assert answer.shape == (3,)


IMAGE = np.arange(16.0).reshape(4, 4)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("shift", lambda wild: [wild]),
        ("shift", lambda wild: [np.array([0, wild])]),
        ("map_coordinates", lambda wild: [np.array([[0, wild], [0, 0]])]),
        ("affine_transform", lambda wild: [np.array([[1, wild], [0, 1]])]),
        ("affine_transform", lambda wild: [np.eye(2), np.array([wild, 0])]),
    ],
)
def test_places_in_an_image_are_finite(name: str, form: Any) -> None:
    for wild in (NAN, INF, -INF, 1e18, -1e300):
        for mode, order in (("constant", 3), ("wrap", 1), ("mirror", 0), ("nearest", 1)):
            with pytest.raises(ValueError, match="a place in an image must be finite"):
                call(f"cupyx.scipy.ndimage.{name}", IMAGE, *form(wild), mode=mode, order=order)


def test_a_turn_by_no_number_is_refused() -> None:
    for reshape in (True, False):
        with pytest.raises(ValueError, match="a place in an image must be finite"):
            call("cupyx.scipy.ndimage.rotate", IMAGE, NAN, reshape=reshape, mode="wrap", order=1)
    assert call("cupyx.scipy.ndimage.rotate", IMAGE, 90.0).shape == (4, 4)
    assert call("cupyx.scipy.ndimage.shift", IMAGE, [1e6, 0.0], mode="wrap", order=1).shape == (
        4,
        4,
    )
    same = call("cupyx.scipy.ndimage.affine_transform", IMAGE, np.eye(2), order=1)
    assert same.tolist() == IMAGE.tolist()


def test_filters_are_not_longer_than_the_image() -> None:
    name, image = "cupyx.scipy.signal.sepfir2d", np.ones((3, 5))
    for row, column in ((np.ones(7), np.ones(3)), (np.ones(5), np.ones(5)), (np.ones(101),) * 2):
        with pytest.raises(ValueError, match=r"must have at most [35] elements"):
            call(name, image, row, column)
    assert call(name, image, np.ones(5), np.ones(3)).shape == (3, 5)
    for sizes in ([-1, -1], [3, -3], i64(-1, -1)):
        with pytest.raises(ValueError, match="must be positive"):
            call("cupyx.scipy.signal.medfilt2d", IMAGE, sizes)
    assert call("cupyx.scipy.signal.medfilt2d", IMAGE, 3).shape == (4, 4)


@pytest.mark.parametrize(
    "name",
    ["grey_closing", "grey_opening", "grey_dilation", "grey_erosion", "white_tophat",
     "black_tophat", "morphological_gradient", "morphological_laplace"],
)  # fmt: skip
def test_a_structure_is_as_large_as_its_footprint(name: str) -> None:
    full = f"cupyx.scipy.ndimage.{name}"
    for structure, footprint in (((1, 1), (3, 3)), ((3, 3), (1, 1)), ((1, 9), (3, 3))):
        with pytest.raises(ValueError, match="structure and footprint must have one shape"):
            call(full, IMAGE, structure=np.ones(structure), footprint=np.ones(footprint))
    given = {"structure": np.zeros((3, 3)), "footprint": np.ones((3, 3), bool)}
    assert call(full, IMAGE, **given).shape == (4, 4)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("median_filter", {}),
        ("percentile_filter", {"percentile": 40}),
        ("rank_filter", {"rank": 1}),
    ],
)
def test_a_filter_reaches_no_further_than_the_image(name: str, given: Any) -> None:
    full = f"cupyx.scipy.ndimage.{name}"
    for count, size, origin, mode in (
        (1, 101, 50, "reflect"), (5, 11, 5, "reflect"), (5, 11, (5,), "wrap"), (1, 3, 0, "mirror"),
        (2, 3, -1, "mirror"), (50, 101, np.array(50), "grid-wrap"),
    ):  # fmt: skip
        for extent in ({"size": size}, {"footprint": np.ones(size, bool)}):
            with pytest.raises(ValueError, match="reaches beyond the"):
                call(full, np.arange(float(count)), **extent, origin=origin, mode=mode, **given)
    for count, size, origin, mode in (
        (5, 11, 0, "reflect"), (5, 9, 0, "mirror"), (1, 3, 0, "reflect"), (1, 9, 2, "nearest"),
        (9, 5, 2, "wrap"), (9, 5, -2, "constant"),
    ):  # fmt: skip
        made = call(full, np.ones(count), size=size, origin=origin, mode=mode, **given)
        assert made.tolist()[4:5] in ([1], [])
    assert call(full, np.ones((2, 2)), size=9, **given).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("correlate", lambda window: [window]), ("convolve", lambda window: [window]),
        ("maximum_filter", lambda window: [None, window % 2]), ("minimum_filter", lambda window: [None, window % 2]),
        ("median_filter", lambda window: [None, window]), ("rank_filter", lambda window: [2, None, window]),
        ("median_filter", lambda window: [window.shape]), ("grey_dilation", lambda window: [None, window % 2]),
        ("grey_erosion", lambda window: [None, None, window]), ("white_tophat", lambda window: [None, None, window]),
    ],
)  # fmt: skip
def test_no_filter_reaches_over_a_reflected_image_twice(name: str, form: Any) -> None:
    """SciPy took the row before the image, so the result showed what lies there in memory."""
    full, image = f"cupyx.scipy.ndimage.{name}", np.ones((2, 400))
    for extents, origin in (((17, 1), 0), ((11, 3), (-5, 0))):
        window = np.arange(extents[0] * extents[1]).reshape(extents)
        with pytest.raises(ValueError, match="is too long for an image of 2 there"):
            call(full, image, *form(window), origin=origin)
        assert call(full, image, *form(window), origin=origin, mode="constant").shape == (2, 400)
        assert call(full, image.T, *form(window)).shape == (400, 2)


def test_a_start_vector_has_an_element_for_each_row() -> None:
    matrix = Held(scipy.sparse.csr_matrix(np.diag(np.arange(1.0, 9))))
    for start in (np.ones(1), np.ones(0), np.ones(7)):
        with pytest.raises(ValueError, match="v0 must have 8 elements"):
            call("cupyx.scipy.sparse.linalg.eigsh", matrix, k=2, v0=start)
    found, _ = call("cupyx.scipy.sparse.linalg.eigsh", matrix, k=2, v0=np.ones(8))
    assert np.allclose(found, [7, 8])


LARGE = 1 << 61


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("ndimage.uniform_filter1d", {"size": LARGE}),
        ("ndimage.uniform_filter1d", {"size": np.array(LARGE)}),
        ("ndimage.minimum_filter1d", {"size": LARGE}),
        ("ndimage.maximum_filter1d", {"size": LARGE, "mode": "nearest"}),
        ("ndimage.uniform_filter", {"size": (LARGE,)}),
        ("ndimage.minimum_filter", {"size": (np.int64(LARGE),)}),
        ("ndimage.grey_erosion", {"size": [LARGE]}),
        ("ndimage.gaussian_filter", {"sigma": 1.0, "radius": LARGE}),
        ("signal.medfilt", {"kernel_size": LARGE + 1}),
        ("signal.upfirdn", {"x": np.ones(5), "up": LARGE}),
    ],
)
def test_sizes_that_wrap_around_in_a_buffer_are_refused(name: str, given: Any) -> None:
    """The buffer would have as many elements as the image, and as many are written as were said."""
    with pytest.raises(ValueError, match="must be below"):
        call(f"cupyx.scipy.{name}", np.ones(100), **given)


@pytest.mark.parametrize("sizes", [(65537, 65537), ((1 << 32) + 1, (1 << 32) + 1), 65537])
def test_the_window_of_a_median_has_a_size(sizes: Any) -> None:
    with pytest.raises(ValueError, match=r"must be below|must have below"):
        call("cupyx.scipy.signal.medfilt2d", np.ones((4, 4)), sizes)


@pytest.mark.parametrize("strides", [(4, 4), (4, 0), (0, 0), (1, 1), (28, 16), (-4, 4)])
def test_labels_are_read_back_as_they_were_written(strides: tuple[int, int]) -> None:
    """A label is a place in a table, which the function reads from its result."""
    image = np.indices((60, 60)).sum(0) % 2
    memory = np.zeros(1 << 15, np.int32)[1 << 14 :]
    overlapping = np.lib.stride_tricks.as_strided(memory, (60, 60), strides)
    with pytest.raises(ValueError, match="elements of output lie in the same memory"):
        call("cupyx.scipy.ndimage.label", image, output=overlapping)
    places = np.lib.stride_tricks.as_strided(memory, (2, 60, 60), (0, 240, 4))
    with pytest.raises(ValueError, match="elements of indices lie in the same memory"):
        call("cupyx.scipy.ndimage.distance_transform_edt", image, indices=places)


@pytest.mark.parametrize(
    "part", [np.s_[:60, :60], np.s_[60:0:-1, ::2], np.s_[::2, 1:60:3]], ids=["block", "back", "far"]
)
@pytest.mark.parametrize("turned", [False, True])
def test_results_may_be_any_part_of_an_array(part: Any, turned: bool) -> None:
    whole = np.zeros((120, 120), np.int32)
    output = (whole.T if turned else whole)[part]
    image = np.ones(output.shape)
    call("cupyx.scipy.ndimage.label", image, output=output)
    assert output.min() == output.max() == 1
    assert int(whole.sum()) == output.size
