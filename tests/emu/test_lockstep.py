"""Threads of a warp that exchange values by volatile accesses of shared memory."""

from __future__ import annotations

import struct

from emu.device import Device, on_device
from emu.kernels import HEAD, U64, load

BLOCKS, THREADS = 8, 96
STEP = """
  ld.volatile.shared.u32 %r5, [%r2+{bytes}]; ld.volatile.shared.u32 %r6, [%r2];
  add.u32 %r6, %r6, %r5; st.volatile.shared.u32 [%r2], %r6;
"""
PTX = (
    HEAD
    + """
.visible .entry sums(.param .u64 data)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 4 .b8 words[1024];
  ld.param.u64 %rd1, [data]; mov.u32 %r1, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x;
  mov.u32 %r2, words; shl.b32 %r5, %r1, 2; add.u32 %r2, %r2, %r5;
  mad.lo.u32 %r6, %r3, %r4, %r1; mul.wide.u32 %rd2, %r6, 4; add.u64 %rd1, %rd1, %rd2;
  st.volatile.shared.u32 [%r2], %r6;
"""
    + "".join(STEP.format(bytes=4 * n) for n in (16, 8, 4, 2, 1))
    + """
  and.b32 %r1, %r1, 31; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
  ld.volatile.shared.u32 %r6, [%r2]; st.global.u32 [%rd1], %r6; ret;
}
"""
)


@on_device()
def test_sums_of_warps(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda, PTX), "sums")
    count = BLOCKS * THREADS
    data = cuda.alloc(4 * count)
    cuda.launch(function, [U64(data)], grid=BLOCKS, block=THREADS)
    words = struct.unpack(f"{count}I", cuda.read(data, 4 * count))
    assert words[::32] == tuple(sum(range(n, n + 32)) for n in range(0, count, 32))
