"""Barriers, warp operations and yields: the coroutine shape, against the reference scheduler."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from ptx.block import DeadlockError
from ptx.program import kernel, run

from rgpu_emu.lower import abi

STORE = "\nmul.wide.u32 %rd30, %tid, 4; add.u64 %rd30, %out, %rd30; st.u32 [%rd30], %r9;"
LOAD = "mul.wide.u32 %rd29, %tid, 4; add.u64 %rd29, %in, %rd29; ld.u32 %r1, [%rd29];\n"
ZEROS = np.zeros(64, np.uint32)
DATA = np.random.default_rng(3).integers(0, 2**32, 64, dtype=np.uint32)
SMALL = (DATA % 5).astype(np.uint32)


def warp(body: str, data: np.ndarray = DATA, threads: int = 64) -> np.ndarray:
    return run(LOAD + body + STORE, data, ZEROS[:threads], threads=threads)


@pytest.mark.parametrize(
    "name",
    [
        "bar.sync 0",
        "bar.cta.sync 0",
        "barrier.sync 0",
        "barrier.sync.aligned 0",
        "barrier.cta.sync 3",
        "bar.sync 2, 64",
    ],
)
def test_barriers_order_shared_memory(name: str) -> None:
    body = f"""
    .shared .b32 window[64];
    mov.u32 %r2, window; mad.lo.u32 %r3, %tid, 4, %r2; st.shared.u32 [%r3], %r1; {name};
    xor.b32 %r4, %tid, 37; mad.lo.u32 %r5, %r4, 4, %r2; ld.shared.u32 %r9, [%r5];
    """
    assert warp(body).tolist() == [DATA[t ^ 37] for t in range(64)]


def test_flag_for_plain_barriers() -> None:
    plain, other = (
        kernel("bar.sync 0; bar.sync 0;").lowered,
        kernel("bar.sync 0; bar.sync 1;").lowered,
    )
    assert (plain.kind, plain.flags) == (abi.KIND_COROUTINE, abi.FLAG_BAR_ONLY)
    assert (other.kind, other.flags) == (abi.KIND_COROUTINE, 0)
    assert kernel("st.u32 [%out], 1;").lowered.kind == abi.KIND_LOOP


@pytest.mark.parametrize("arrive", ["bar.arrive", "barrier.arrive", "barrier.cta.arrive.aligned"])
def test_producers_arrive_and_consumers_wait(arrive: str) -> None:
    body = """
    .shared .b32 box;
    setp.lt.u32 %p1, %tid, 32;
    @%p1 bra produce;
    bar.sync 1, 64; ld.shared.u32 %r9, [box]; bra done;
    produce: setp.eq.u32 %p2, %tid, 0; @%p2 st.shared.u32 [box], 55; {arrive} 1, 64; mov.u32 %r9, 1;
    done:
    """.replace("{arrive}", arrive)
    assert warp(body).tolist() == [1] * 32 + [55] * 32


@pytest.mark.parametrize("bar", ["bar", "barrier", "barrier.cta"])
def test_reductions_at_a_barrier(bar: str) -> None:
    body = f"""
    setp.gt.u32 %p1, %r1, 1;
    {bar}.red.popc.u32 %r2, 0, %p1; {bar}.red.and.pred %p2, 0, %p1; {bar}.red.or.pred %p3, 0, 64, !%p1;
    selp.u32 %r3, 1000, 0, %p2; selp.u32 %r4, 2000, 0, %p3; add.u32 %r9, %r2, %r3; add.u32 %r9, %r9, %r4;
    """
    assert warp(body, SMALL).tolist() == [int((SMALL > 1).sum()) + 2000] * 64


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    segment, clamp = c >> 8 & 31, c & 31
    high = lane & segment | clamp & ~segment & 31
    if mode == "up":
        source, good = lane - b, lane - b >= high
    elif mode == "down":
        source, good = lane + b, lane + b <= high
    elif mode == "bfly":
        source, good = lane ^ b, (lane ^ b) <= high
    else:
        source = lane & segment | b & ~segment & 31
        good = source <= high
    return (source if good else lane), good


@pytest.mark.parametrize(
    ("mode", "b", "c"),
    [
        ("up", 1, 0),
        ("up", 3, 0x1800),
        ("down", 2, 31),
        ("down", 5, 0x181F),
        ("bfly", 16, 31),
        ("bfly", 7, 0x101F),
        ("idx", 9, 31),
        ("idx", 2, 0x181F),
    ],
)
def test_shuffles(mode: str, b: int, c: int) -> None:
    body = f"shfl.sync.{mode}.b32 %r2|%p1, %r1, {b}, {c}, 0xffffffff; selp.u32 %r3, 1, 0, %p1; xor.b32 %r9, %r2, %r3;"
    expected = []
    for t in range(64):
        source, good = shuffled(mode, t % 32, b, c)
        expected.append(int(DATA[t // 32 * 32 + source]) ^ int(good))
    assert warp(body).tolist() == expected


def mask_of(flags: np.ndarray) -> int:
    return sum(1 << n for n, f in enumerate(flags) if f)


def test_votes() -> None:
    body = """
    setp.gt.u32 %p1, %r1, 2; setp.lt.u32 %p2, %r1, 9;
    vote.sync.ballot.b32 %r2, %p1, -1; vote.ballot.sync.b32 %r3, !%p1, 0xffffffff; xor.b32 %r9, %r2, %r3;
    vote.sync.all.pred %p3, %p2, -1; selp.u32 %r4, 2, 0, %p3; add.u32 %r2, %r2, %r4;
    vote.sync.any.pred %p4, %p1, -1; selp.u32 %r4, 4, 0, %p4; add.u32 %r2, %r2, %r4;
    vote.sync.uni.pred %p5, %p1, -1; selp.u32 %r4, 8, 0, %p5; add.u32 %r2, %r2, %r4;
    vote.uni.sync.pred %p5, %p2, -1; selp.u32 %r4, 16, 0, %p5; add.u32 %r2, %r2, %r4;
    xor.b32 %r9, %r9, %r2;
    """
    expected = [
        0xFFFFFFFF ^ (mask_of(w > 2) + 2 + 4 + 16 & 0xFFFFFFFF)
        for w in (SMALL[:32], SMALL[32:])
        for _ in range(32)
    ]
    assert warp(body, SMALL).tolist() == expected


def test_matches() -> None:
    body = """
    match.any.sync.b32 %r2, %r1, -1; cvt.u64.u32 %rd1, %r1; shl.b64 %rd1, %rd1, 40; match.any.sync.b64 %r3, %rd1, -1;
    sub.u32 %r4, %r2, %r3; mov.u32 %r5, 7; match.all.sync.b32 %r6|%p1, %r5, -1; match.all.sync.b64 %r7|%p2, %rd1, -1;
    selp.u32 %r8, 1, 0, %p1; selp.u32 %r10, 1, 0, %p2; add.u32 %r9, %r2, %r4; add.u32 %r9, %r9, %r8; add.u32 %r9, %r9, %r10;
    add.u32 %r9, %r9, %r6; add.u32 %r9, %r9, %r7;
    """
    expected = []
    for w in (SMALL[:32], SMALL[32:]):
        expected += [mask_of(w == v) + 1 + 0xFFFFFFFF & 0xFFFFFFFF for v in w]
    assert warp(body, SMALL).tolist() == expected


def test_warp_reductions() -> None:
    for name, compute in (
        ("add.u32", lambda w: int(w.sum()) & 0xFFFFFFFF),
        ("add.s32", lambda w: int(w.sum()) & 0xFFFFFFFF),
        ("min.u32", lambda w: int(w.min())),
        ("max.u32", lambda w: int(w.max())),
        ("min.s32", lambda w: int(w.view(np.int32).min()) & 0xFFFFFFFF),
        ("max.s32", lambda w: int(w.view(np.int32).max()) & 0xFFFFFFFF),
        ("and.b32", lambda w: int(np.bitwise_and.reduce(w))),
        ("or.b32", lambda w: int(np.bitwise_or.reduce(w))),
        ("xor.b32", lambda w: int(np.bitwise_xor.reduce(w))),
    ):
        out = warp(f"redux.sync.{name} %r9, %r1, -1;")
        assert out.tolist() == [compute(DATA[:32])] * 32 + [compute(DATA[32:])] * 32, name


def reduced(words: list[int], op: str, absolute: bool, nan: bool) -> int:
    """redux.sync of floats by their values: -0 is below +0, and NaN counts only with .NaN."""
    words = [w & 0x7FFFFFFF if absolute else w for w in words]
    numbers = [w for w in words if w & 0x7FFFFFFF <= 0x7F800000]
    if not numbers or (nan and len(numbers) < len(words)):
        return 0x7FFFFFFF
    value = {w: struct.unpack("<f", struct.pack("<I", w))[0] for w in numbers}
    return (min if op == "min" else max)(numbers, key=lambda w: (value[w], w < 1 << 31))


FLOATS = [0, 1 << 31, 1, 0x80000001, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
          0xFF800000, 0x00800000, 0x807FFFFF, 0x40490FDB, 0xC0490FDB, 0x7FC00000, 0xFF800001]  # fmt: skip


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("absolute", ["", ".abs"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_redux_of_floats(op: str, absolute: str, nan: str) -> None:
    """Warps of few different values, among them warps of NaN alone and of zeros alone."""
    rng = np.random.default_rng(11)
    for count in (1, 1, 1, 2, 2, 2, 3, 16):
        pools = [rng.choice(FLOATS, count) for _ in (0, 1)]
        pools = (
            [np.array([0x7FC00001, 0xFFFFFFFF]), np.array([0, 1 << 31])] if count == 3 else pools
        )
        words = np.concatenate([rng.choice(pool, 32) for pool in pools]).astype(np.uint32)
        out = warp(f"redux.sync.{op}{absolute}{nan}.f32 %r9, %r1, -1;", words).tolist()
        warps = (words[:32].tolist(), words[32:].tolist())
        first, second = (reduced(w, op, bool(absolute), bool(nan)) for w in warps)
        assert out == [first] * 32 + [second] * 32


def test_redux_of_floats_takes_float_registers_and_part_of_a_warp() -> None:
    body = """
    cvt.rn.f32.u32 %f1, %tid; neg.f32 %f1, %f1; and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0;
    mov.u32 %r9, 0; @!%p1 bra done; redux.sync.min.f32 %f2, %f1, 0x55555555; mov.b32 %r9, %f2;
    done:
    """
    least = [struct.unpack("<I", struct.pack("<f", -v))[0] for v in (30.0, 62.0)]
    assert warp(body).tolist() == [least[t // 32] if t % 2 == 0 else 0 for t in range(64)]


def test_divergent_warps_meet_by_mask() -> None:
    body = """
    and.b32 %r2, %tid, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra even;
    activemask.b32 %r9; shfl.sync.idx.b32 %r3, %tid, 31, 31, 0xaaaaaaaa; add.u32 %r9, %r9, %r3; bra join;
    even: redux.sync.add.u32 %r9, %tid, 0x55555555;
    join: bar.warp.sync 0xffffffff;
    """
    evens = [sum(range(32 * w, 32 * w + 32, 2)) for w in (0, 1)]
    expected = [
        evens[t // 32] if t % 2 == 0 else 0xAAAAAAAA + 32 * (t // 32) + 31 for t in range(64)
    ]
    assert warp(body).tolist() == expected


def test_election() -> None:
    body = "elect.sync %r2|%p1, 0xffffffff; selp.u32 %r3, 100, 0, %p1; add.u32 %r9, %r2, %r3;"
    assert warp(body).tolist() == [100 if t % 32 == 0 else 0 for t in range(64)]


def test_threads_that_have_ended_do_not_hold_up_a_barrier() -> None:
    body = "setp.lt.u32 %p1, %tid, 10; @%p1 exit; bar.sync 0; mov.u32 %r9, 3;"
    assert warp(body).tolist() == [0] * 10 + [3] * 54


def test_a_barrier_in_a_function_is_inlined() -> None:
    before = """
    .func (.param .b32 r) sum_all(.param .b32 x)
    {
        .shared .b32 total; .local .b32 mine; .reg .b32 %r<5>;
        ld.param.b32 %r1, [x]; st.local.b32 [mine], %r1; ld.local.b32 %r2, [mine];
        atom.shared.add.u32 %r3, [total], %r2; bar.sync 0; ld.shared.u32 %r4, [total]; st.param.b32 [r], %r4; ret;
    }
    """
    body = """
    .local .b32 other; st.local.u32 [other], 9;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %tid; call (b), sum_all, (a); ld.param.b32 %r9, [b]; }
    bar.sync 0;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], 0; call (b), sum_all, (a); ld.param.b32 %r2, [b]; }
    sub.u32 %r9, %r9, %r2; ld.local.u32 %r3, [other]; add.u32 %r9, %r9, %r3;
    """
    assert run(body + STORE, DATA, ZEROS, threads=64, before=before).tolist() == [9] * 64


def test_spinning_threads_yield() -> None:
    """Thread 0 waits for a flag that thread 63 sets; without a yield the block would hang."""
    body = """
    .shared .b32 flag;
    setp.eq.u32 %p1, %tid, 63; @%p1 st.volatile.shared.u32 [flag], 1; @%p1 bra done;
    wait: ld.volatile.shared.u32 %r2, [flag]; setp.eq.u32 %p2, %r2, 0; @%p2 bra wait;
    done: mov.u32 %r9, 1;
    """
    assert warp(body).tolist() == [1] * 64


def test_a_lock_held_over_a_suspension() -> None:
    body = """
    .shared .b32 lock; .shared .b32 counter;
    take: atom.shared.cas.b32 %r2, [lock], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra take;
    ld.volatile.shared.u32 %r3, [counter]; nanosleep.u32 20; add.u32 %r3, %r3, 1; st.volatile.shared.u32 [counter], %r3;
    membar.cta; atom.shared.exch.b32 %r4, [lock], 0;
    bar.sync 0; ld.shared.u32 %r9, [counter];
    """
    assert warp(body).tolist() == [64] * 64


def test_lock_free_updates_do_not_make_a_coroutine() -> None:
    body = """
    ld.u32 %r2, [%out];
    again: mov.u32 %r3, %r2; max.u32 %r4, %r3, %tid; atom.cas.b32 %r2, [%out], %r3, %r4;
    setp.ne.u32 %p1, %r2, %r3; @%p1 bra again;
    """
    made = kernel(body)
    assert made.lowered.kind == abi.KIND_LOOP
    place = made.arena.put(ZEROS)
    made.launch((1,), (50,), np.uint64(0), np.uint64(place))
    assert made.arena.get(place, ZEROS)[0] == 49


def test_a_deadlock_is_one() -> None:
    with pytest.raises(DeadlockError):
        warp("setp.lt.u32 %p1, %tid, 5; @%p1 bar.sync 1, 64;")


FORMS = [
    "bar.sync",
    "bar.arrive",
    "barrier.arrive",
    "bar.red.popc.u32",
    "bar.red.and.pred",
    "barrier.sync",
    "barrier.red.popc.u32",
    "barrier.red.or.pred",
    "bar.warp.sync",
    "shfl.sync.up.b32",
    "vote.sync.all.pred",
    "vote.sync.ballot.b32",
    "vote.all.sync.pred",
    "vote.ballot.sync.b32",
    "match.any.sync.b32",
    "match.all.sync.b64",
    "activemask.b32",
    "redux.sync.add.u32",
    "redux.sync.xor.b32",
    "redux.sync.min.abs.NaN.f32",
    "elect.sync",
    "nanosleep.u32",
]
