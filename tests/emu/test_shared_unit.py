"""Shared memory is allocated in units of 128 bytes, as PTX says of a device of 8.0."""

from __future__ import annotations

import struct

from emu.device import Device, expect, on_device
from emu.kernels import HEAD, U32, U64, load

UNIT = 128
ASKED = 8
PTX = (
    HEAD
    + """
.extern .shared .align 4 .b8 area[];
.visible .entry read(.param .u64 data, .param .u32 at)
{
  .reg .b32 %r<6>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [at];
  mov.u32 %r2, area; add.u32 %r2, %r2, %r1; ld.shared.u32 %r3, [%r2]; mov.u32 %r4, %total_smem_size;
  st.global.u32 [%rd1], %r4; st.global.u32 [%rd1+4], %r3; ret;
}
"""
)


@on_device()
def test_a_kernel_may_read_to_the_end_of_the_unit(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda, PTX), "read")
    data = cuda.alloc(8)
    cuda.launch(function, [U64(data), U32(UNIT - 4)], shared=ASKED)
    assert struct.unpack("I", cuda.read(data, 4)) == (UNIT,)


@on_device()
def test_beyond_the_unit_is_an_illegal_address(cuda: Device) -> None:
    cuda.open()
    function = cuda.function(load(cuda, PTX), "read")
    data = cuda.alloc(8)
    cuda.launch(function, [U64(data), U32(1 << 20)], shared=ASKED)
    expect(700, lambda: cuda.read(data, 4))
