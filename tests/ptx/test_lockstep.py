"""Programs that exchange values within a warp by volatile accesses of shared memory, without a
barrier: the threads of the warp go on together."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.program import run, source

from rgpu_emu.lower.analyse import reach
from rgpu_emu.ptx.link import link

THREADS = 96
BEFORE = ".shared .align 4 .b8 words[1024];"
PLACE = """
mov.u32 %r1, %tid.x; mov.u32 %r2, words; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %in, %rd1; add.u64 %rd3, %out, %rd1;
ld.global.u32 %r4, [%rd2]; st.volatile.shared.u32 [%r2], %r4;
"""


def words(body: str, threads: int = THREADS) -> np.ndarray:
    given = np.arange(threads, dtype=np.uint32) * 7 + 3
    return run(PLACE + body, given, np.zeros(threads, np.uint32), threads=threads, before=BEFORE)


GIVEN = np.arange(THREADS, dtype=np.uint32).reshape(-1, 32) * 7 + 3


def test_a_sum_by_halves() -> None:
    """The last steps of a reduction, as samples of earlier releases of CUDA have them."""
    step = """
    ld.volatile.shared.u32 %r5, [%r2+{bytes}]; ld.volatile.shared.u32 %r6, [%r2];
    add.u32 %r6, %r6, %r5; st.volatile.shared.u32 [%r2], %r6;
    """
    steps = "".join(step.format(bytes=4 * n) for n in (16, 8, 4, 2, 1))
    out = words(steps + "ld.volatile.shared.u32 %r6, [%r2]; st.global.u32 [%rd3], %r6;")
    assert out[::32].tolist() == GIVEN.sum(1).tolist()


@pytest.mark.parametrize("there", [-4, 4])
def test_what_a_neighbour_had(there: int) -> None:
    """Each thread reads its neighbour's word and then writes its own, from both sides."""
    out = words(
        f"""
        xor.b32 %r5, %r1, {1 if there > 0 else 31}; shl.b32 %r5, %r5, 2; mov.u32 %r6, words;
        add.u32 %r5, %r6, %r5; ld.volatile.shared.u32 %r7, [%r5];
        st.volatile.shared.u32 [%r2], %r7;
        ld.volatile.shared.u32 %r7, [%r5]; st.global.u32 [%rd3], %r7;
        """
    )
    # The neighbour has what this thread had.
    assert out.tolist() == GIVEN.reshape(-1).tolist()


def test_the_last_lane_is_waited_for() -> None:
    """Lane 0 reads what lane 31 wrote in the instruction before, in both arms of a branch."""
    out = words(
        """
        and.b32 %r5, %r1, 1; setp.eq.u32 %p1, %r5, 0; @%p1 bra even;
        mul.lo.u32 %r4, %r4, 2; st.volatile.shared.u32 [%r2], %r4; bra both;
        even: mul.lo.u32 %r4, %r4, 3; st.volatile.shared.u32 [%r2], %r4;
        both: or.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 2; mov.u32 %r6, words;
        add.u32 %r5, %r6, %r5; ld.volatile.shared.u32 %r7, [%r5]; st.global.u32 [%rd3], %r7;
        """
    )
    assert out.tolist() == np.repeat(2 * GIVEN[:, 31], 32).tolist()


def test_a_wait_for_another_warp_ends() -> None:
    """A loop that spins on a volatile word of shared memory lets the others run."""
    out = words(
        """
        setp.lt.u32 %p1, %r1, 64; @%p1 bra wait;
        bra done;
        wait: ld.volatile.shared.u32 %r5, [words+256]; setp.eq.u32 %p2, %r5, 0; @%p2 bra wait;
        done: st.global.u32 [%rd3], 1;
        """
    )
    assert out.tolist() == [1] * THREADS


def test_plain_words_are_seen_after_they_were_written() -> None:
    """In a function with warp operations; the loop runs more often in some threads."""
    out = words(
        """
        and.b32 %r5, %r1, 3; mov.u32 %r7, 0;
        again: st.shared.u32 [%r2], %r7; add.u32 %r7, %r7, 1; setp.le.u32 %p1, %r7, %r5;
        @%p1 bra again;
        xor.b32 %r5, %r1, 31; shl.b32 %r5, %r5, 2; mov.u32 %r6, words; add.u32 %r5, %r6, %r5;
        ld.shared.u32 %r7, [%r5]; bar.warp.sync -1; st.global.u32 [%rd3], %r7;
        """
    )
    assert out.tolist() == [(t ^ 31) & 3 for t in range(THREADS)]


def test_what_needs_no_meeting_has_none() -> None:
    """Neither a function without warp operations, nor one with a barrier between."""
    own = "st.shared.u32 [%r2], %r4; ld.shared.u32 %r5, [%r2];"
    between = "st.shared.u32 [%r2], %r4; bar.sync 0; ld.shared.u32 %r5, [%r2]; bar.warp.sync -1;"
    for body in (own, between):
        program = link([source(PLACE.replace(".volatile", "") + body, before=BEFORE)])
        (entry,) = program.entries.values()
        assert reach(program, entry).meetings == {entry: set()}
