"""mbarrier objects: counts, phases and waits, one thread and many."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import result_of, run

SPACES = ("", ".shared", ".shared::cta")
ARRIVALS = [
    f"mbarrier.{action}{rest}.b64"
    for action in ("arrive", "arrive_drop")
    for rest in ("", ".shared", ".release.cta.shared::cta", ".relaxed.cluster.shared::cluster")
]
COUNTED = [
    f"mbarrier.{action}.noComplete{rest}.b64"
    for action in ("arrive", "arrive_drop")
    for rest in ("", ".release.cta.shared")
]
EXPECTING = [
    f"mbarrier.{action}.expect_tx{rest}.b64"
    for action in ("arrive", "arrive_drop")
    for rest in (
        "",
        ".release.cta.shared::cta",
        ".shared::cta.relaxed.cluster",
        ".cluster.relaxed.shared::cta",
    )
]
WAITS = [
    f"mbarrier.{wait}{rest}{space}.b64"
    for wait in ("test_wait", "try_wait", "test_wait.parity", "try_wait.parity")
    for rest in ("", ".acquire.cta", ".relaxed.cluster")
    for space in SPACES
]
BYTES = [
    f"mbarrier.{what}{rest}.b64"
    for what in ("expect_tx", "complete_tx")
    for rest in ("", ".relaxed.cta.shared", ".relaxed.cluster.shared::cluster")
]
BULK = [
    *(
        f"cp.async.bulk.{to}.{origin}.mbarrier::complete_tx::bytes"
        for to, origin in (
            ("shared::cta", "global"), ("shared::cluster", "global"), ("shared::cluster", "shared::cta"),
        )
    ),
    "cp.async.bulk.global.shared::cta.bulk_group",
    "cp.async.bulk.prefetch.L2.global",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group.read",
]  # fmt: skip
COPIES = [f"cp.async.mbarrier.arrive{n}{s}.b64" for n in ("", ".noinc") for s in SPACES]
FORMS = [
    *(f"mbarrier.{what}{space}.b64" for what in ("init", "inval") for space in SPACES),
    "mbarrier.pending_count.b64",
    *ARRIVALS, *COUNTED, *EXPECTING, *WAITS, *BYTES, *COPIES, *BULK,
]  # fmt: skip
BOX = """
    .shared .align 8 .b64 bar; .reg .b64 %s<4>, %g; .reg .b32 %w<9>;
    mov.u64 %g, bar; cvta.shared.u64 %g, %g;
"""


def place(name: str) -> str:
    return "[bar]" if ".shared" in name else "[%g]"


def words(body: str, count: int) -> list[int]:
    """Runs one thread; %w0 to %w(count - 1) are its results."""
    stores = "".join(f"st.u32 [%out+{4 * n}], %w{n};" for n in range(count))
    out = run(BOX + body + stores, np.zeros(1, np.uint32), np.zeros(count, np.uint32), threads=1)
    return [int(v) for v in out]


def _tested(state: str, into: str) -> str:
    return f"mbarrier.test_wait.shared.b64 %p1, [bar], {state}; selp.u32 {into}, 1, 0, %p1;"


def parity(phase: int, into: str) -> str:
    return f"mbarrier.test_wait.parity.shared.b64 %p1, [bar], {phase}; selp.u32 {into}, 1, 0, %p1;"


@pytest.mark.parametrize("name", ARRIVALS)
def test_the_last_arrival_ends_the_phase(name: str) -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 2;
    {name} %s0, {place(name)}; {_tested("%s0", "%w0")} {parity(0, "%w1")}
    {name} %s1, {place(name)}; {_tested("%s1", "%w2")} {parity(0, "%w3")} {parity(1, "%w4")}
    {name.replace("_drop", "")} %s2, {place(name)}; {_tested("%s2", "%w5")}
    {name.replace("_drop", "")} _, {place(name)}; {_tested("%s2", "%w6")}"""
    got = words(body, 7)
    assert got[:5] == [0, 0, 1, 1, 0]
    if "drop" not in name:
        assert got[5:] == [0, 1]


@pytest.mark.parametrize("name", [n for n in ARRIVALS if "drop" in n])
def test_a_dropped_arrival_is_not_awaited_again(name: str) -> None:
    arrive = name.replace("_drop", "")
    body = f"""mbarrier.init.shared.b64 [bar], 3;
    {name} _, {place(name)}; {arrive} _, {place(name)}; {arrive} _, {place(name)};
    {arrive} %s0, {place(name)}; {_tested("%s0", "%w0")} {arrive} %s1, {place(name)}; {_tested("%s1", "%w1")}"""
    assert words(body, 2) == [0, 1]


@pytest.mark.parametrize("name", COUNTED)
def test_the_state_knows_the_pending_count(name: str) -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 1000000;
    {name} %s0, {place(name)}, 300000; {name} %s1, {place(name)}, 5;
    mbarrier.pending_count.b64 %w0, %s0; mbarrier.pending_count.b64 %w1, %s1;
    {name} %s2, {place(name)}, 1; mbarrier.pending_count.b64 %w2, %s2;"""
    assert words(body, 3) == [1000000, 700000, 699995]


def test_arrivals_may_be_counted() -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 7;
    mbarrier.arrive.shared.b64 %s0, [bar], 3; {_tested("%s0", "%w0")}
    mbarrier.arrive_drop.shared.b64 %s1, [bar], 4; {_tested("%s1", "%w1")}
    mbarrier.arrive.shared.b64 %s1, [bar], 3; {_tested("%s1", "%w2")}"""
    assert words(body, 3) == [0, 1, 1]


@pytest.mark.parametrize("name", EXPECTING)
def test_a_phase_waits_for_the_bytes_that_it_expects(name: str) -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 1;
    {name} %s0, {place(name)}, 48; {_tested("%s0", "%w0")}
    mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 16; {_tested("%s0", "%w1")}
    mbarrier.complete_tx.b64 [%g], 32; {_tested("%s0", "%w2")}"""
    assert words(body, 3) == [0, 0, 1]


@pytest.mark.parametrize("name", [n for n in BYTES if "expect" in n])
def test_bytes_may_come_before_they_are_expected(name: str) -> None:
    complete = name.replace("expect", "complete")
    body = f"""mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %s0, [bar];
    {complete} {place(name)}, 1048575; mbarrier.arrive.shared.b64 _, [bar]; {_tested("%s0", "%w0")}
    {name} {place(name)}, 1048575; {_tested("%s0", "%w1")}"""
    assert words(body, 2) == [0, 1]


@pytest.mark.parametrize("name", WAITS)
def test_waits_for_a_phase(name: str) -> None:
    state = "%w8" if "parity" in name else "%s0"
    hint = ", 1000" if "try_wait" in name else ""
    body = f"""mov.u32 %w8, 0; mbarrier.init.b64 [%g], 1; mov.u64 %s0, 0;
    {name} %p1, {place(name)}, {state}; selp.u32 %w0, 1, 0, %p1;
    mbarrier.arrive.b64 %s0, [%g]; {name} %p1, {place(name)}, {state}{hint}; selp.u32 %w1, 1, 0, %p1;"""
    assert words(body, 2) == [0, 1]


@pytest.mark.parametrize("name", COPIES)
def test_copies_arrive(name: str) -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 2;
    {name} {place(name)}; mbarrier.arrive.shared.b64 %s0, [bar]; {_tested("%s0", "%w0")}
    mbarrier.arrive.noComplete.shared.b64 %s1, [bar], 1; mbarrier.pending_count.b64 %w1, %s1;"""
    assert words(body, 2) == ([1, 2] if "noinc" in name else [0, 1])


def test_an_object_can_be_made_again() -> None:
    body = f"""mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 _, [bar]; {parity(0, "%w0")}
    mbarrier.inval.shared.b64 [bar]; mbarrier.init.shared.b64 [bar], 5; {parity(0, "%w1")}
    mbarrier.arrive.noComplete.shared.b64 %s0, [bar], 1; mbarrier.pending_count.b64 %w2, %s0;"""
    assert words(body, 3) == [1, 0, 5]


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_threads_wait_for_each_other(wait: str) -> None:
    """Each round every thread passes its number on to another warp; the loop lets it run."""
    body = f"""
    .shared .align 8 .b64 bar; .shared .b32 cells[256]; .reg .b64 %s; .reg .b32 %n, %v, %a, %b, %x;
    setp.ne.u32 %p1, %tid, 0; @%p1 bra ready; mbarrier.init.shared.b64 [bar], 128; ready: bar.sync 0;
    mov.u32 %n, 0; mov.u32 %v, %tid; mov.u32 %a, cells;
    round:
    and.b32 %x, %n, 1; shl.b32 %x, %x, 9; add.u32 %b, %a, %x;
    shl.b32 %r1, %tid, 2; add.u32 %r1, %r1, %b; st.shared.u32 [%r1], %v;
    mbarrier.arrive.shared.b64 %s, [bar];
    again: mbarrier.{wait}.shared.b64 %p2, [bar], %s; @!%p2 bra again;
    add.u32 %r2, %tid, 37; and.b32 %r2, %r2, 127; shl.b32 %r2, %r2, 2; add.u32 %r2, %r2, %b;
    ld.shared.u32 %v, [%r2]; add.u32 %n, %n, 1; setp.lt.u32 %p3, %n, 5; @%p3 bra round;
    mul.wide.u32 %rd1, %tid, 4; add.u64 %rd1, %out, %rd1; st.u32 [%rd1], %v;
    """
    out = run(body, np.zeros(1, np.uint32), np.zeros(128, np.uint32), threads=128)
    assert out.tolist() == [(t + 5 * 37) % 128 for t in range(128)]


def test_an_object_that_is_not_aligned_is_refused() -> None:
    assert result_of(".shared .align 8 .b64 two[2]; mbarrier.init.shared.b64 [two+4], 1;") == 716


@pytest.mark.parametrize("name", BULK[:2])
def test_bulk_copies_complete_their_bytes(name: str) -> None:
    """96 bytes go to shared memory and back; the object waits for them."""
    body = f"""
    .shared .align 8 .b64 bar; .shared .align 16 .b8 box[128], other[128]; .reg .b64 %s;
    mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 %s, [bar], 192;
    {name} [box], [%in], 96, [bar];
    mbarrier.test_wait.shared.b64 %p1, [bar], %s; selp.u32 %r1, 1, 0, %p1;
    {BULK[2]} [other], [box], 96, [bar];
    mbarrier.test_wait.shared.b64 %p1, [bar], %s; selp.u32 %r2, 1, 0, %p1;
    {BULK[3]} [%out], [other], 80; {BULK[5]}; {BULK[6]} 0; {BULK[4]} [%in], 64;
    st.u32 [%out+96], %r1; st.u32 [%out+100], %r2;
    """
    data = np.random.default_rng(6).integers(0, 1 << 32, 24, dtype=np.uint32)
    out = run(body, data, np.zeros(26, np.uint32), threads=1)
    assert out.tolist() == [*data[:20].tolist(), 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "operands", ["[box], [%in], 24", "[box+8], [%in], 16", "[box], [%in+4], 16"]
)
def test_bulk_copies_are_by_16_bytes(operands: str) -> None:
    body = f""".shared .align 8 .b64 bar; .shared .align 16 .b8 box[64];
    mbarrier.init.shared.b64 [bar], 1; {BULK[0]} {operands}, [bar];"""
    assert result_of(body) == 716
