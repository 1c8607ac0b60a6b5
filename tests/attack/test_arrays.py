"""A tenant at the array seam that wants more memory than its lease has, memory of others, time
that nobody charges, or the end of its worker.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import needs
from helpers.server import Server, patient_server
from helpers.waiting import wait_until

from attack.array_lane import UNKNOWN_OUTPUTS, A, ArrayLane, RefusedError, V, worker_of
from rgpu_client.control import ControlClient, ResizeRequest
from rgpu_common.arrays.messages import MOST_OBJECTS, Op, Tag
from rgpu_common.arrays.seams import Seam
from rgpu_common.endpoints import parse_endpoint
from rgpu_server.arrays.ceiling import OVERHEAD_BYTES, THREAD_BYTES

MIB = 1 << 20
LEASE = 64 * MIB
# docs/explanation/quotas-memory.md: what a worker may have besides what it had, and its lease.
MORE_BYTES = OVERHEAD_BYTES + THREAD_BYTES * len(os.sched_getaffinity(0))
# What pages and the accounts of the C library add.
SLACK = 8 * MIB
FAR = 1 << 62
PRIME = 3_999_971


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that gives array workers time to start. It outlives all attacks."""
    with patient_server() as running:
        yield running
        assert running.process is not None
        assert running.process.poll() is None, "the daemon ended"


@pytest.fixture(scope="module")
def neighbour(server: Server) -> Iterator[ArrayLane]:
    """Another tenant's session, which was open before the attacks."""
    with ArrayLane(server, "neighbour", memory_bytes=LEASE) as lane:
        yield lane


@pytest.fixture(autouse=True)
def serves_on(neighbour: ArrayLane) -> Iterator[None]:
    """After each attack the neighbour's session works on."""
    yield
    assert neighbour.works()


@pytest.fixture(scope="module")
def mallory(server: Server) -> Iterator[ArrayLane]:
    """A session whose attacks are all refused. Its worker does not end."""
    with ArrayLane(server, "mallory", memory_bytes=LEASE) as lane:
        yield lane
        assert lane.works()


def status_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


class Growth:
    """What a worker has taken since it was looked at first."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._data, self._resident = status_bytes(pid, "VmData"), status_bytes(pid, "VmRSS")

    def check(self) -> None:
        """Asserts that private memory, and what was touched at most, keep to what is documented:
        the memory of the emulated device, which the lease has, is touched too.
        """
        data = status_bytes(self._pid, "VmData") - self._data
        most = status_bytes(self._pid, "VmHWM") - self._resident
        assert data <= LEASE + MORE_BYTES + SLACK, f"{data / MIB:.0f} MiB"
        assert most <= 2 * LEASE + MORE_BYTES + SLACK, f"{most / MIB:.0f} MiB"


# Memory


def limits_of(pid: int) -> tuple[int, int]:
    """Returns the soft and the hard limit of a process's private memory."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    (found,) = re.findall(r"Max data size +(\d+) +(\d+)", limits)
    return int(found[0]), int(found[1])


def test_no_code_in_a_worker_can_raise_its_ceiling(server: Server) -> None:
    """Only the daemon can, for a lease that grows, where the system lets it."""
    with ArrayLane(server, "raises", memory_bytes=LEASE) as lane:
        assert lane.works()
        worker = worker_of(server, lane)
        soft, hard = limits_of(worker)
        assert soft == hard <= status_bytes(worker, "VmData") + LEASE + MORE_BYTES + SLACK
        with ControlClient(parse_endpoint(server.tcp), 60) as client:
            (lease,) = client.leases("raises")
            client.resize(lease.lease_id, ResizeRequest(memory_bytes=2 * LEASE))
        stays = "the limit of private memory of worker"
        wait_until(
            lambda: (
                limits_of(worker) == (soft + LEASE, hard + LEASE)
                or any(stays in line for line in list(server.log))
            )
        )
        assert limits_of(worker) in ((soft, hard), (soft + LEASE, hard + LEASE))


def hoard(lane: ArrayLane, kept: list[int]) -> None:
    """Keeps lists of 65,536 views, each of a view, until the session may keep no more values."""
    whole = lane.put(np.ones(65536, np.int8))
    while len(kept) <= MOST_OBJECTS // 65536:
        kept.append(lane.run("array_split", [A, 65536], [whole], UNKNOWN_OUTPUTS))
        lane.sync()
        # A view of a view, under an id of its own.
        whole = lane.run("rgpu.reshape", [A, [Tag.LIST, 65536]], [whole])


def test_parts_of_results_take_no_memory_beyond_the_lease(server: Server) -> None:
    """Views have no elements of their own, so the ledger charges nothing for them. One id stands
    for 65,536 of them.
    """
    with ArrayLane(server, "parts", memory_bytes=LEASE) as lane:
        growth = Growth(worker_of(server, lane))
        kept: list[int] = []
        with pytest.raises(RefusedError, match="MemoryError"):
            hoard(lane, kept)
        growth.check()
        lane.free(*kept)
        assert lane.works()


def test_the_scratch_memory_of_a_transform_stays_within_bounds(server: Server) -> None:
    """For a length that is a prime the library takes many times the memory of the input."""
    with ArrayLane(server, "prime", memory_bytes=LEASE) as lane:
        growth = Growth(worker_of(server, lane))
        made = lane.run("fft.rfft", [A], [lane.put(np.ones(PRIME))])
        with pytest.raises(RefusedError, match="MemoryError"):
            lane.done(made)
        growth.check()
        assert lane.works()


@needs("torch")
def test_results_of_no_announced_size_stay_within_the_lease(server: Server) -> None:
    """The client leaves out how large the results are, so nothing is charged before they are there."""
    with ArrayLane(server, "unannounced", Seam.TORCH, memory_bytes=LEASE) as lane:
        growth = Growth(worker_of(server, lane))
        ones: Any = ("aten::ones", [[Tag.LIST, V]])
        for size in (300_000_000, LEASE, LEASE // 4 + 1):
            with pytest.raises(RefusedError, match="OutOfMemoryError: CUDA out of memory"):
                lane.done(lane.run(*ones, [size], UNKNOWN_OUTPUTS))
        growth.check()
        lane.done(lane.run(*ones, [7], UNKNOWN_OUTPUTS))


# Memory of others


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        (numbers(5), numbers(FAR)),
        (numbers(3, 5), numbers(8, FAR)),
        (numbers(2), numbers(-FAR) - FAR),
        (numbers(1 << 33), numbers(1 << 33)),
        (np.array([255, 2], np.uint8), np.array([255, 1], np.uint8)),
    ],
    ids=["wraps to 0", "wraps to 24", "wraps to itself", "wraps to 4", "uint8"],
)
def test_no_view_leaves_its_array(mallory: ArrayLane, shape: Any, strides: Any) -> None:
    """The bounds that a check adds up in the arrays' own dtype wrap around."""
    own = mallory.put(np.arange(10))
    slots = [own, mallory.put(shape), mallory.put(strides)]
    view = mallory.run("rgpu.as_strided", [A, A, A], slots)
    with pytest.raises(RefusedError, match=r"incompatible with shape|Out of memory"):
        mallory.read(view)
    assert mallory.read(own).tolist() == list(range(10))


def test_no_view_leaves_its_array_by_scalars_of_a_dtype(mallory: ArrayLane) -> None:
    own = mallory.put(np.arange(10))
    number = [Tag.TUPLE, [Tag.SLOT_SCALAR, "int64"]]
    view = mallory.run("rgpu.as_strided", [A, number, number], [own, 5, FAR])
    with pytest.raises(RefusedError, match=r"incompatible with shape|Out of memory"):
        mallory.read(view)
    # What no view shows cannot be written through it either.
    mallory.run("rgpu.setitem", [A, 1, 7], [view], outputs=0)
    with pytest.raises(RefusedError):
        mallory.sync()
    assert mallory.read(own).tolist() == list(range(10))


@pytest.mark.parametrize(
    "pivots",
    [numbers(1 << 28, 1 << 28, 1 << 28), numbers(0, 1, -5), numbers(0, 1, 3), np.full(3, 1e9),
     np.full((2, 3), 1 << 20), np.array(1), numbers(0, 1)],
    ids=["far", "before", "behind", "floats", "two rows", "no row", "too few"],
)  # fmt: skip
def test_forged_pivots_exchange_no_rows_of_others(mallory: ArrayLane, pivots: Any) -> None:
    """LAPACK exchanges the rows that the pivots name, wherever they lie."""
    slots = [mallory.put(np.eye(3)), mallory.put(pivots), mallory.put(np.ones(3))]
    made = mallory.run("cupyx.scipy.linalg.lu_solve", [[Tag.TUPLE, A, A], A], slots)
    with pytest.raises(RefusedError, match=r"pivots of a factorization must be|needs 3 pivots"):
        mallory.read(made)


@pytest.mark.parametrize(
    ("name", "number"),
    [("ndimage.uniform_filter1d", 1 << 61), ("ndimage.minimum_filter1d", 1 << 61),
     ("signal.medfilt2d", (1 << 32) + 1)],
)  # fmt: skip
def test_a_size_that_wraps_around_makes_no_small_buffer(
    mallory: ArrayLane, name: str, number: int
) -> None:
    """SciPy's C code multiplies it, and writes as many elements as it was told."""
    image = mallory.put(np.ones((8, 8)))
    made = mallory.run(f"cupyx.scipy.{name}", [A, V], [image, number])
    with pytest.raises(RefusedError, match=r"must (be|have) below"):
        mallory.done(made)


def test_labels_that_lie_over_each_other_are_no_places_in_a_table(mallory: ArrayLane) -> None:
    """SciPy reads the labels back that it has written, and trusts them."""
    image = mallory.put(np.indices((60, 60)).sum(0) % 2)
    tuples = [[Tag.TUPLE, 60, 60], [Tag.TUPLE, 1, 1]]
    over = mallory.run("rgpu.as_strided", [A, *tuples], [mallory.put(np.zeros(1000, np.int32))])
    made = mallory.run("cupyx.scipy.ndimage.label", [A, None, A], [image, over])
    with pytest.raises(RefusedError, match="elements of output lie in the same memory"):
        mallory.done(made)


@pytest.mark.parametrize("method", ["RandomState.normal", "RandomState.choice", "Generator.random"])
def test_a_forged_generator_draws_nothing(mallory: ArrayLane, method: str) -> None:
    """An array stands in the place of a generator, whose state C code would follow."""
    forged = mallory.put(np.full(2500, 255, np.uint8))
    made = mallory.run(f"random.{method}", [A, 3], [forged])
    with pytest.raises(RefusedError, match=r"AttributeError|NotOfferedError|TypeError"):
        mallory.read(made)


# Where a state of PyTorch's generator has the count of numbers that are left, a flag, and the place
# of the next one.
_STATE = struct.Struct("=8xiiQ")
_STATE_BYTES = 5056


@needs("torch")
def test_a_forged_state_of_a_generator_is_refused(server: Server) -> None:
    with ArrayLane(server, "forger", Seam.TORCH, memory_bytes=LEASE) as lane:
        worker = worker_of(server, lane)
        for left, place in ((624, 624), (2, 624), (-1, 0), (9, 1 << 40)):
            state = np.zeros(_STATE_BYTES, np.uint8)
            _STATE.pack_into(state, 0, left, 1, place)
            lane.run("rgpu::set_state", [None, A], [lane.put(state)], outputs=0)
            with pytest.raises(RefusedError, match="no state of a generator"):
                lane.sync()
        lane.done(lane.run("aten::ones", [[Tag.LIST, V]], [7], UNKNOWN_OUTPUTS))
        assert status_bytes(worker, "VmRSS") > 0, "the worker lives"


# Addresses


def test_no_error_tells_an_address_of_the_worker(mallory: ArrayLane) -> None:
    """NumPy's texts show objects with their addresses, by which an attacker finds its way."""
    state = mallory.run("random.RandomState", [7])
    matrix = mallory.put(np.eye(3))
    told: list[str] = []
    for name, arguments, slots in (
        ("random.default_rng", [[Tag.LIST, A]], [state]),
        ("add", [A, A], [state, matrix]),
        ("sum", [A], [state]),
        ("concatenate", [[Tag.LIST, A, A]], [matrix, state]),
        ("rgpu.reshape", [A, A], [matrix, state]),
        ("zeros", [A], [state]),
        ("linalg.norm", [A], [state]),
        ("random.RandomState.normal", [A, A], [state, state]),
        ("random.RandomState", [A], [state]),
        ("rgpu.getitem", [A, A], [matrix, state]),
    ):
        made = mallory.run(name, arguments, slots)
        try:
            mallory.done(made)
        except RefusedError as error:
            told.append(str(error))
    assert any("0x..." in text for text in told), told
    assert not [text for text in told if re.search(r"0x[0-9a-fA-F]{6}", text)]


# Time

COPIED = np.ones(MIB, np.float64)
COPIES = 4


def processor_ns(pid: int) -> int:
    """Processor time of a process, in all its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in tasks)


def charged_ns(server: Server, tenant: str) -> int:
    """Device time that the tenant's lease is charged for."""
    with ControlClient(parse_endpoint(server.tcp), 60) as client:
        (lease,) = [one for one in client.now().leases if one.tenant == tenant]
        return int(lease.device_ns)


def test_copies_on_the_node_are_charged(server: Server) -> None:
    """A tenant with a hundredth of the device has arrays hashed and copied again and again.

    A regression: with 5.6 s of a processor it was charged 20 ms.
    """
    fields = {"memory_bytes": 256 * MIB, "share_limit_ppm": 10_000}
    with ArrayLane(server, "copies", **fields) as lane:
        worker, source = worker_of(server, lane), lane.put(COPIED)
        lane.sync()
        digest = hashlib.sha256(COPIED.tobytes()).digest()
        charged, used = charged_ns(server, "copies"), processor_ns(worker)
        for _ in range(COPIES):
            assert lane.ask(Op.COPY, lane.new_id(), source, "float64", [MIB], digest) == [True]
        used = processor_ns(worker) - used
        # The worker's own threads run while it waits for its turns, for seconds at a hundredth, and
        # nobody charges them: a half of what it used is charged on a quiet machine.
        wait_until(lambda: charged_ns(server, "copies") - charged >= used / 5)
