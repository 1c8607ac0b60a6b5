"""The record: it is bounded, and after a crash the intact part of its files is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_server.observe.record import CURRENT, OLDER, Ring, Sample, Series, Store

SAMPLE_BYTES = 76
ALICE, BOB = Series("lease-1", "alice", "a", 0), Series("lease-2", "bob", "b", 1)


def sample(number: int, device_ns: int = 0) -> Sample:
    return Sample(device_ns, 0, 0, 0, 0, 10, 20, 400_000, 1_000_000, 0, number)


def write(store: Store, ring: Ring, seconds: range, *series: Series) -> None:
    for t in seconds:
        samples = [sample(ring.number(one), t * 1000) for one in series]
        store.append(ring.add(t * 1000, samples), ring)


def content(ring: Ring) -> list[tuple[int, list[tuple[Series, int]]]]:
    return [
        (second.time_ms, [(ring.series[s.number], s.device_ns) for s in second.samples()])
        for second in ring.seconds
    ]


def opened(folder: Path, limit: int = 1 << 20) -> tuple[Store, Ring]:
    store, ring = Store(folder, limit), Ring(limit)
    store.load(ring)
    return store, ring


def test_a_restart_reads_what_was_written_and_goes_on(tmp_path: Path) -> None:
    store, ring = opened(tmp_path)
    write(store, ring, range(5), ALICE, BOB)
    store.close()
    again, read = opened(tmp_path)
    assert content(read) == content(ring)
    write(again, read, range(5, 8), BOB)
    again.close()
    third, last = opened(tmp_path)
    third.close()
    assert content(last) == content(read)
    assert len(last.seconds) == 8


def test_memory_and_files_are_bounded(tmp_path: Path) -> None:
    limit = 10_000
    store, ring = opened(tmp_path, limit)
    for t in range(1000):
        series = Series(f"lease-{t}", "alice", "a", 0)
        write(store, ring, range(t, t + 1), series, BOB)
    store.close()
    assert sum(len(second.packed) for second in ring.seconds) <= limit
    assert ring.seconds[-1].time_ms == 999_000
    slack = 1000
    sizes = [(tmp_path / name).stat().st_size for name in (CURRENT, OLDER)]
    assert all(size <= limit // 2 + slack for size in sizes)
    _, read = opened(tmp_path, limit)
    assert content(read)[-1] == content(ring)[-1]


def test_series_that_nothing_is_left_of_are_forgotten() -> None:
    ring = Ring(SAMPLE_BYTES * 10)
    for t in range(5000):
        ring.add(t, [sample(ring.number(Series(f"lease-{t}", "x", "y", 0)))])
    assert len(ring.series) < 1100


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 2000))
def test_a_torn_file_is_read_up_to_the_tear(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("record")
    store, ring = opened(folder)
    write(store, ring, range(6), ALICE, BOB)
    store.close()
    path = folder / CURRENT
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    again, read = opened(folder)
    assert content(read) == content(ring)[: len(read.seconds)]
    write(again, read, range(100, 101), ALICE)
    again.close()
    _, last = opened(folder)
    assert content(last) == content(read)


@settings(max_examples=40, deadline=None)
@given(noise=st.binary(max_size=300), at=st.integers(0, 900))
def test_a_file_of_anything_is_no_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("record")
    store, ring = opened(folder)
    write(store, ring, range(3), ALICE)
    store.close()
    path = folder / CURRENT
    data = bytearray(path.read_bytes())
    data[at : at + len(noise)] = noise
    path.write_bytes(bytes(data))
    again, _ = opened(folder)
    again.close()


def test_a_folder_that_cannot_be_written_costs_only_the_files(tmp_path: Path) -> None:
    store, ring = opened(tmp_path / "gone")
    write(store, ring, range(3), ALICE)
    store.save_totals("{}")
    assert store.load_totals() is None
    store.close()
    assert len(ring.seconds) == 3
