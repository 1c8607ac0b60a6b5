"""Kernels whose threads part and meet, and the masks that a GPU gives them: k(in, out) for 64 threads.

Each thread reads one word of `in` and writes WORDS words of `out`.  The expected masks follow from the model of the
hardware: the threads of a warp part at a branch and join where its two ways meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptx.nvrtc import compile_cuda
from ptx.program import source

THREADS = 64
WORDS = 8
DATA = [(n * 2654435761 >> 7) & 0xFFFF for n in range(THREADS)]
_START = """
    mul.wide.u32 %rd1, %tid, 4; add.u64 %rd1, %in, %rd1; ld.global.u32 %r1, [%rd1];
    mul.wide.u32 %rd1, %tid, 32; add.u64 %rd1, %out, %rd1;
"""


@dataclass(frozen=True)
class Scene:
    """`expected` gives the words of thread t, which may ask for the mask of a condition in t's warp."""

    ptx: Callable[[], str]
    expected: Callable[[int], list[int]]


def warp_mask(t: int, condition: Callable[[int], bool]) -> int:
    """The lanes of t's warp whose threads fulfil a condition."""
    first = t // 32 * 32
    return sum(1 << lane for lane in range(32) if condition(first + lane))


def _low(t: int) -> bool:
    return DATA[t] % 3 == 0


def _beside(t: int) -> list[int]:
    mine = warp_mask(t, lambda u: _low(u) == _low(t))
    return [mine, 0xFFFFFFFF]


# Both sides of a branch, the place where they meet, and the same with one side after that place in
# the text.
BESIDE = """
    rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;
    @%p1 bra low; activemask.b32 %r3; bra join;
    low: activemask.b32 %r3; join: activemask.b32 %r4;
    st.global.v2.u32 [%rd1], {%r3, %r4};
"""
BEHIND = """
    rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;
    @%p1 bra low; activemask.b32 %r3;
    join: activemask.b32 %r4; st.global.v2.u32 [%rd1], {%r3, %r4}; ret;
    low: activemask.b32 %r3; bra join;
"""


def _bit(t: int, n: int) -> int:
    return DATA[t] >> n & 1


# Eight rounds; in each the threads with that bit take one way, the others the other way or none.
ROUNDS = """
    mov.u32 %r2, 0;
    again: shr.u32 %r3, %r1, %r2; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1; mov.u32 %r4, 0;
    @%p1 activemask.b32 %r4; st.global.u32 [%rd1], %r4;
    add.u64 %rd1, %rd1, 4; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 8; @%p2 bra again;
"""
TWO_WAYS = """
    mov.u32 %r2, 0; bra test;
    body: shr.u32 %r3, %r1, %r2; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 1;
    @%p1 bra odd; activemask.b32 %r4; bra next;
    odd: activemask.b32 %r4;
    next: st.global.u32 [%rd1], %r4; add.u64 %rd1, %rd1, 4; add.u32 %r2, %r2, 1;
    test: setp.lt.u32 %p2, %r2, 8; @%p2 bra body;
"""


def _lengths(t: int) -> list[int]:
    """Round n of thread t runs an inner loop of (DATA >> 4n & 3) rounds; each adds its mask; then the outer mask."""
    words = []
    for n in range(4):
        total = 0
        for inner in range(DATA[t] >> 4 * n & 3):
            total += warp_mask(t, lambda u, n=n, i=inner: (DATA[u] >> 4 * n & 3) > i)
        words += [total & 0xFFFFFFFF, 0xFFFFFFFF]
    return words


NESTED = """
    mov.u32 %r2, 0;
    outer: shl.b32 %r3, %r2, 2; shr.u32 %r3, %r1, %r3; and.b32 %r3, %r3, 3; mov.u32 %r5, 0;
    inner: setp.eq.u32 %p1, %r3, 0; @%p1 bra out;
    activemask.b32 %r4; add.u32 %r5, %r5, %r4; sub.u32 %r3, %r3, 1; bra inner;
    out: activemask.b32 %r6; st.global.v2.u32 [%rd1], {%r5, %r6}; add.u64 %rd1, %rd1, 8;
    add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 4; @%p2 bra outer;
"""
FUNCTION = """
    .func (.param .b32 r) who()
    { .reg .b32 %r<2>; activemask.b32 %r1; st.param.b32 [r], %r1; ret; }
"""
CALLED = """
    rem.u32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0;
    @%p1 bra low;
    { .param .b32 a; call (a), who, (); ld.param.b32 %r3, [a]; } bra join;
    low: { .param .b32 a; call (a), who, (); ld.param.b32 %r3, [a]; }
    join: { .param .b32 a; call (a), who, (); ld.param.b32 %r4, [a]; }
    st.global.v2.u32 [%rd1], {%r3, %r4};
"""
GROUPS = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__device__ unsigned taken[64];
extern "C" __global__ void k(const unsigned* in, unsigned* out) {
  unsigned t = threadIdx.x, value = in[t];
  out += t * 8;
  if (value % 3 == 0) {
    auto group = cg::coalesced_threads();
    unsigned base = 0;
    if (group.thread_rank() == 0) base = atomicAdd(&taken[t / 32], group.size());
    out[0] = group.size();
    out[1] = group.shfl(base, 0) + group.thread_rank();
    unsigned sum = value;
    for (unsigned d = 1; d < group.size(); d *= 2) {
      unsigned other = group.shfl_up(sum, d);
      if (group.thread_rank() >= d) sum += other;
    }
    out[2] = sum;
  } else {
    out[0] = __popc(__activemask());
  }
  for (unsigned n = 0; n < 4; n++)
    if (value >> n & 1) out[3 + n] = cg::coalesced_threads().size();
}
"""


def _groups(t: int) -> list[int]:
    mine = [u for u in range(t // 32 * 32, t // 32 * 32 + 32) if _low(u) == _low(t)]
    words = [len(mine), 0, 0]
    if _low(t):
        words = [len(mine), mine.index(t), sum(DATA[u] for u in mine if u <= t)]
    for n in range(4):
        together = warp_mask(t, lambda u, n=n: _bit(u, n) == 1).bit_count()
        words.append(together if _bit(t, n) else 0)
    return words


def _plain(body: str, before: str = "") -> Callable[[], str]:
    return lambda: source(_START + body, before=before)


SCENES = {
    "beside": Scene(_plain(BESIDE), _beside),
    "behind": Scene(_plain(BEHIND), _beside),
    "rounds": Scene(
        _plain(ROUNDS),
        lambda t: [
            warp_mask(t, lambda u, n=n: _bit(u, n) == 1) if _bit(t, n) else 0 for n in range(8)
        ],
    ),
    "two ways": Scene(
        _plain(TWO_WAYS),
        lambda t: [warp_mask(t, lambda u, n=n: _bit(u, n) == _bit(t, n)) for n in range(8)],
    ),
    "nested": Scene(_plain(NESTED), _lengths),
    "called": Scene(_plain(CALLED, FUNCTION), _beside),
    "cooperative groups": Scene(lambda: compile_cuda(GROUPS, headers=True), _groups),
}


def expected(scene: Scene) -> list[list[int]]:
    """Row t is what thread t writes."""
    rows = [scene.expected(t) for t in range(THREADS)]
    return [row + [0] * (WORDS - len(row)) for row in rows]
