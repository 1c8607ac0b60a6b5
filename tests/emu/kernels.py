"""Kernels of the tests, as PTX text, and small calls around modules."""

from __future__ import annotations

import ctypes

from emu.device import Device

HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"
PTX = (
    HEAD
    + """
.visible .global .align 4 .u32 counter = 5;
.visible .const .align 4 .f32 scale[2] = {0f3F800000, 0f40000000};
.global .align 8 .u64 pointer = counter;
.visible .entry add(.param .u64 p, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r6, [%rd4];
  add.s32 %r7, %r6, 1;
  st.global.u32 [%rd4], %r7;
done:
  ret;
}
.visible .entry bump()
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.global.u64 %rd1, [pointer];
  atom.add.u32 %r1, [%rd1], 1;
  ret;
}
.visible .entry wild(.param .u64 p)
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry small() .maxntid 64, 1, 1
{
  .shared .align 4 .b8 area[1024];
  .reg .b32 %r<2>;
  mov.u32 %r1, 1;
  st.shared.u32 [area], %r1;
  ret;
}
.visible .entry trap_() { trap; }
"""
)
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
VOID = ctypes.c_void_p


def load(cuda: Device, text: str = PTX) -> int:
    module: int = cuda.out("cuModuleLoadData", text.encode())
    return module


def attribute(cuda: Device, function: int, number: int) -> int:
    value: int = cuda.out("cuFuncGetAttribute", number, function, kind=ctypes.c_int)
    return value


CALLER = (
    HEAD
    + """
.extern .func (.param .b32 r) twice(.param .b32 a);
.visible .entry use(.param .u64 p)
{
  .reg .b32 %r<3>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  { .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r1;
    call.uni (r), twice, (a);
    ld.param.b32 %r2, [r]; }
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
)
CALLEE = (
    HEAD
    + """
.visible .func (.param .b32 r) twice(.param .b32 a)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [a];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [r], %r2;
  ret;
}
"""
)
