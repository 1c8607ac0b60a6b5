"""Programs give NumPy's results, and wait for the node as often as they read values."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.array_session import session

import rgpu_client.cupy as cp
from rgpu_client import cupyx
from rgpu_client.arrays.issuer import Issuer
from rgpu_client.cupy._current import use
from rgpu_client.cupy.errors import exception
from rgpu_client.cupyx import profiler
from rgpu_server.arrays.cupy_library import CupyLibrary


class Counted:
    """Counts how often the client asks the node something. To wait until the node has caught up is
    no question; how often that happens depends on how fast the node is.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.waits = 0
        self._ask = issuer._ask
        issuer._ask = self._counted  # type: ignore[method-assign]

    def _counted(self, *words: Any) -> Any:
        self.waits += 1
        return self._ask(*words)


@pytest.fixture(autouse=True)
def counted() -> Iterator[Counted]:
    with session(CupyLibrary(), exception) as issuer:
        use(issuer)
        cp.empty(1)  # the first allocation of a session asks how much room there is
        yield Counted(issuer)
        use(None)


def programs() -> Any:
    path = Path(__file__).parent / "programs" / "numerics.py"
    spec = importlib.util.spec_from_file_location("numerics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NUMERICS = programs()
RANDOM = np.random.default_rng(5)
POINTS = RANDOM.normal(size=(300, 3)) + RANDOM.integers(0, 4, (300, 1)) * 5
NOISE = RANDOM.normal(size=(40, 40))
MATRIX = NOISE @ NOISE.T + 40 * np.eye(40)

CASES = {
    "k_means": ((POINTS, POINTS[:4], 10), 1),
    # It reads the residual once in ten rounds.
    "conjugate_gradient": ((MATRIX, NOISE[0], 30), 4),
    "monte_carlo_option": ((RANDOM.normal(size=(500, 16)), 100.0, 105.0, 0.02, 0.3, 1.0), 1),
    "gaussian_mixture": ((POINTS, POINTS[:3], 6), 1),
    "heat": ((24, 15), 1),
    "spectrum": ((np.sin(np.arange(256) * 0.7) + 0.5 * np.sin(np.arange(256) * 0.2),), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_numpys_result_and_waits_for_what_it_reads(
    name: str, counted: Counted
) -> None:
    arguments, most_waits = CASES[name]
    program = getattr(NUMERICS, name)
    expected = program(np, *arguments)
    before = counted.waits
    got = program(cp, *arguments).get()
    assert counted.waits - before <= most_waits
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_random_numbers_behind_an_error_that_the_program_has_not_seen_are_not_drawn() -> None:
    own, state = cp.random.default_rng(1), cp.random.RandomState(2)
    flat, sparse = cp.ones((2, 2)), cupyx.scipy.sparse

    def issue() -> list[Any]:
        return [
            cp.random.rand(3), cp.random.permutation(5), own.random(3), state.normal(0, 1, 3),
            sparse.random(4, 4, 0.5, random_state=state).toarray(),
        ]  # fmt: skip

    def seed() -> None:
        cp.random.seed(3)
        state.seed(4)

    seed()
    cp.linalg.inv(cp.eye(2))
    first = [one.tolist() for one in issue()]
    second = [one.tolist() for one in issue()]
    own = cp.random.default_rng(1)
    seed()
    for expected in (first, second):
        wrong = cp.linalg.inv(flat)
        issue()
        seed()
        with pytest.raises(np.linalg.LinAlgError):
            wrong.get()
        assert [one.tolist() for one in issue()] == expected


def test_random_numbers_have_their_distribution_and_a_seed_repeats_them() -> None:
    first, second = cp.random.default_rng(7), cp.random.default_rng(7)
    drawn = first.standard_normal((1000,), dtype=cp.float32)
    assert drawn.dtype == np.float32
    assert (drawn == second.standard_normal((1000,), dtype=cp.float32)).all()
    assert abs(float(drawn.mean())) < 0.2
    state = cp.random.RandomState(3)
    assert state.randint(0, 5, size=(4, 2)).shape == (4, 2)
    assert state.rand(3).dtype == np.float64
    cp.random.seed(11)
    again = cp.random.normal(2.0, 0.5, 10)
    cp.random.seed(11)
    assert (cp.random.normal(2.0, 0.5, 10) == again).all()
    assert cp.random.rand(2, 3, dtype="float32").dtype == np.float32
    assert cp.random.uniform(0, 1, 5).shape == (5,)
    deck = cp.arange(10)
    cp.random.shuffle(deck)
    assert int(deck.sum()) == 45
    assert cp.random.permutation(6).shape == (6,)
    assert cp.random.choice(10, 3).shape == (3,)


def test_views_share_memory() -> None:
    a = cp.zeros((4, 4))
    row, part, turned = a[1], a[::2, 1:], a.T
    row[:] = 1
    part += 10
    turned[3] = 7
    expected = np.zeros((4, 4))
    expected[1] = 1
    expected[::2, 1:] += 10
    expected[:, 3] = 7
    assert (a.get() == expected).all()
    assert row.base is a
    assert turned.base is a
    assert cp.may_share_memory(row, part)
    assert a.reshape(16)[0:1].base is a
    element = a[0, 0]
    element += 5
    assert float(a[0, 0]) == 5
    assert a.T.strides == (8, 32)
    assert a.T.flags.f_contiguous
    assert not a.T.flags.c_contiguous


def test_reductions_give_arrays_without_dimensions() -> None:
    total = cp.arange(5).sum()
    assert isinstance(total, cp.ndarray)
    assert total.shape == ()
    assert int(total) == 10
    assert isinstance(cp.allclose(total, 10), cp.ndarray)


def test_whole_numbers_of_index_arrays_wrap_around() -> None:
    assert cp.arange(4)[cp.asarray([4, -5, 1])].tolist() == [0, 3, 1]
    with pytest.raises(IndexError, match="Index 4 is out of bounds for axis 0 with size 4"):
        cp.arange(4)[4]
    with pytest.raises(IndexError, match="Index 3 is out of bounds for axis 1"):
        cp.zeros((4, 3))[1, 3]


def test_numpys_functions_and_ufuncs_work_on_arrays_of_the_node() -> None:
    a = cp.arange(6.0).reshape(2, 3)
    assert isinstance(np.sum(a, axis=0), cp.ndarray)
    assert isinstance(np.add(a, 1), cp.ndarray)
    assert isinstance(np.linalg.norm(a), cp.ndarray)
    assert isinstance(np.add.reduce(a), cp.ndarray)
    assert (np.float64(2) * a).get().tolist() == [[0, 2, 4], [6, 8, 10]]
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(a)
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
        a + np.ones(3)


@pytest.mark.parametrize("name", ["lt", "le", "eq", "ne", "gt", "ge"])
@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int64(2), np.bool_(True)])
def test_numbers_are_compared_from_either_side(name: str, number: Any) -> None:
    compare, host = getattr(operator, name), np.arange(4.0)
    assert (compare(number, cp.asarray(host)).get() == compare(number, host)).all()
    assert (compare(cp.asarray(host), number).get() == compare(host, number)).all()


def test_arrays_come_and_go() -> None:
    a = cp.array([[1, 2], [3, 4]], dtype="int16")
    assert a.get(order="F").flags.f_contiguous
    out = np.zeros((2, 2), "int16")
    assert a.get(out=out) is out
    a.set(np.full((2, 2), 9, "int16"))
    assert a.tolist() == [[9, 9], [9, 9]]
    with pytest.raises(ValueError, match="Shape or dtype mismatch"):
        a.get(out=np.zeros(3))
    assert cp.array([cp.ones(2), cp.zeros(2)]).shape == (2, 2)
    assert np.from_dlpack(cp.arange(3)).tolist() == [0, 1, 2]
    assert cp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert cp.asarray(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert cp.get_array_module(a) is cp
    assert cp.get_array_module(out) is np
    assert not hasattr(a, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="in the memory of a GPU node"):
        _ = a.__cuda_array_interface__


def test_streams_events_and_pools_say_what_holds() -> None:
    start, end = cp.cuda.Event(), cp.cuda.Event()
    with cp.cuda.Stream() as stream:
        start.record()
        a = cp.ones(100) * 2
        end.record()
        stream.synchronize()
    assert cp.cuda.get_elapsed_time(start, end) >= 0
    assert int(a.sum()) == 200
    assert cp.cuda.runtime.getDeviceCount() == 1
    assert cp.cuda.runtime.memGetInfo()[1] > 0
    times = profiler.benchmark(cp.exp, (a,), n_repeat=3, n_warmup=1)
    assert times.gpu_times.shape == (1, 3)
    pool = cp.get_default_memory_pool()
    assert pool.get_limit() > 0
    assert pool.used_bytes() >= 0
    pool.free_all_blocks()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="one device"):
        cp.cuda.Device(1)
    with pytest.raises(NotImplementedError, match="belongs to the lease"):
        cp.cuda.set_allocator(lambda size: None)


def test_the_device_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = cp.cuda.runtime.getDeviceProperties(0)
    assert told["name"] == b"CPU of the GPU node"
    assert told["totalGlobalMem"] == cp.cuda.Device().mem_info[1]
    assert told["multiProcessorCount"] == cp.cuda.Device().attributes["MultiProcessorCount"] == 1
    assert cp.cuda.Device(0).compute_capability == f"{told['major']}{told['minor']}" == "80"
    assert cp.cuda.runtime.driverGetVersion() == cp.cuda.runtime.runtimeGetVersion()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="one device"):
        cp.cuda.runtime.getDeviceProperties(1)
    cp.show_config()
    assert "CPU of the GPU node" in capsys.readouterr().out


def test_a_program_that_asks_for_a_device_learns_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cp.is_available()
    monkeypatch.setenv("RGPU_SERVER", "unix:/nowhere/rgpu.sock")
    use(None)
    with pytest.warns(UserWarning, match=r"CuPy has no session .* start 'rgpu serve"):
        assert not cp.cuda.is_available()


def test_a_gpus_properties_come_from_cupy() -> None:
    properties = {"name": b"NVIDIA X", "major": 9, "minor": 0, "multiProcessorCount": 132}
    runtime = SimpleNamespace(getDeviceProperties=[properties].__getitem__)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(id=0))
    library = CupyLibrary()
    library._cupy = SimpleNamespace(cuda=cuda)
    assert library.answer("device", []) == ["NVIDIA X", 9, 0, 132]


def test_pinned_memory_is_ordinary_memory() -> None:
    host = cupyx.empty_pinned((2, 3), dtype="float32")
    host[...] = 1
    assert float(cp.asarray(host).sum()) == 6
    assert cupyx.zeros_like_pinned(host).sum() == 0
    space = np.frombuffer(cp.cuda.alloc_pinned_memory(80), "float64", 10)
    space[:] = 3
    assert float(cp.asarray(space).sum()) == 30


def test_sparse_matrices_and_scipys_functions() -> None:
    from rgpu_client.cupyx.scipy import ndimage, signal, special
    from rgpu_client.cupyx.scipy.sparse import coo_matrix, csr_matrix
    from rgpu_client.cupyx.scipy.sparse import linalg as sparse_linalg

    dense = cp.asarray(MATRIX * (np.abs(MATRIX) > 5))
    matrix = csr_matrix(dense)
    assert matrix.shape == (40, 40)
    np.testing.assert_allclose((matrix @ dense[0]).get(), (dense @ dense[0]).get())
    np.testing.assert_allclose((matrix + matrix.T).toarray().get(), (dense + dense.T).get())
    again = coo_matrix(
        (matrix.tocoo().data, (matrix.tocoo().row, matrix.tocoo().col)), shape=(40, 40)
    )
    assert again.tocsc().nnz == matrix.nnz
    solved, info = sparse_linalg.cg(matrix, dense[0], rtol=1e-10)
    assert int(info) == 0
    np.testing.assert_allclose((matrix @ solved).get(), dense[0].get(), atol=1e-5)
    assert special.erf(cp.zeros(2)).tolist() == [0, 0]
    assert ndimage.gaussian_filter(cp.ones((5, 5)), 1).shape == (5, 5)
    assert signal.convolve(cp.ones(3), cp.ones(2)).tolist() == [1, 2, 2, 1]
    labels, count = ndimage.label(cp.asarray([0, 1, 1, 0, 1]))
    assert int(count) == 2
    assert labels.tolist() == [0, 1, 1, 0, 2]


def test_what_is_learned_is_not_asked_again(counted: Counted) -> None:
    a = cp.arange(12.0).reshape(3, 4)
    cp.gradient(a)
    before = counted.waits
    parts = cp.gradient(a)
    assert isinstance(parts, list)
    assert counted.waits == before
    assert parts[1].shape == (3, 4)
