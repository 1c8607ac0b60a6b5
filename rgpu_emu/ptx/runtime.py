"""The functions of the CUDA device runtime that programs call by name and link at run time.

NVIDIA ships them as machine code in `libcudadevrt.a`. Their declarations are public, in
`cuda_device_runtime_api.h`. Those for cooperative grids and for conditional nodes of graphs are here
as PTX. Those that launch kernels from the device are refused by name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.errors import unsupported

if TYPE_CHECKING:
    from rgpu_emu.ptx.errors import PtxError

# What `vprintf`, `malloc` and the like do is in the launch runtime (lower/calls.py).
RUNTIME_FUNCTIONS: Final = frozenset(("vprintf", "malloc", "free", "__assertfail"))
OWN_FUNCTIONS: Final = frozenset(
    (
        "cudaCGGetIntrinsicHandle",
        "cudaCGSynchronize",
        "cudaCGSynchronizeGrid",
        "cudaCGGetSize",
        "cudaCGGetRank",
        "cudaGraphSetConditional",
    )
)
_DEVICE_RUNTIME: Final = re.compile(r"__cudaCDP2[A-Z]\w*|cuda[A-Z]\w*")

# A handle is the address of the grid's workspace, which the launch has zeroed: a word for its size,
# then the barrier. As in cooperative groups, the master block adds what flips the highest bit when
# all other blocks have added 1. Without a cooperative launch there is no workspace, and no barrier
# that could work: the kernel ends with a trap.
_BARRIER: Final = """
.visible .func (.param .b32 result) {name}(.param .b64 handle, .param .b32 flags)
{{
    .reg .pred %p<5>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [handle];
    setp.eq.u64 %p1, %rd1, 0;
    @%p1 trap;
    bar.sync 0;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %tid.z;
    or.b32 %r4, %r1, %r2;
    or.b32 %r4, %r4, %r3;
    setp.ne.u32 %p2, %r4, 0;
    @%p2 bra done;
    mov.u32 %r5, %ctaid.x;
    mov.u32 %r6, %ctaid.y;
    mov.u32 %r7, %ctaid.z;
    or.b32 %r8, %r5, %r6;
    or.b32 %r8, %r8, %r7;
    mov.u32 %r9, %nctaid.x;
    mov.u32 %r10, %nctaid.y;
    mul.lo.u32 %r9, %r9, %r10;
    mov.u32 %r10, %nctaid.z;
    mul.lo.u32 %r9, %r9, %r10;
    sub.u32 %r11, 0x80000001, %r9;
    setp.eq.u32 %p3, %r8, 0;
    selp.u32 %r12, %r11, 1, %p3;
    fence.acq_rel.gpu;
    atom.add.release.gpu.u32 %r13, [%rd1+4], %r12;
wait:
    ld.acquire.gpu.u32 %r14, [%rd1+4];
    xor.b32 %r15, %r14, %r13;
    setp.ge.s32 %p4, %r15, 0;
    @%p4 bra wait;
    fence.acq_rel.gpu;
done:
    bar.sync 0;
    st.param.u32 [result], 0;
    ret;
}}
"""
_PAIR: Final = """
.visible .func (.param .b32 result) {name}
(.param .b64 first, .param .b64 second, .param .b64 handle)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [first];
    ld.param.u64 %rd2, [second];
    ld.param.u64 %rd3, [handle];
    setp.eq.u64 %p1, %rd3, 0;
    @%p1 trap;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %ntid.y;
    mov.u32 %r3, %ntid.z;
    mul.lo.u32 %r4, %r1, %r2;
    mul.lo.u32 %r4, %r4, %r3;
    mov.u32 %r5, %nctaid.x;
    mov.u32 %r6, %nctaid.y;
    mov.u32 %r7, %nctaid.z;
{body}
    setp.ne.u64 %p2, %rd1, 0;
    @%p2 st.u32 [%rd1], %r8;
    setp.ne.u64 %p3, %rd2, 0;
    @%p3 st.u32 [%rd2], {second};
    st.param.u32 [result], 0;
    ret;
}}
"""
_SIZE: Final = """
    mul.lo.u32 %r8, %r5, %r6;
    mul.lo.u32 %r8, %r8, %r7;
    mul.lo.u32 %r8, %r8, %r4;"""
_RANK: Final = """
    mov.u32 %r9, %ctaid.x;
    mov.u32 %r10, %ctaid.y;
    mov.u32 %r11, %ctaid.z;
    mad.lo.u32 %r10, %r11, %r6, %r10;
    mad.lo.u32 %r9, %r10, %r5, %r9;
    mov.u32 %r12, %tid.x;
    mov.u32 %r13, %tid.y;
    mov.u32 %r14, %tid.z;
    mad.lo.u32 %r13, %r14, %r2, %r13;
    mad.lo.u32 %r12, %r13, %r1, %r12;
    mad.lo.u32 %r8, %r9, %r4, %r12;"""
_HANDLE: Final = """
.visible .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    ld.param.u32 %r1, [scope];
    mov.u32 %r2, %envreg1;
    mov.u32 %r3, %envreg2;
    mov.b64 %rd1, {%r3, %r2};
    setp.eq.u32 %p1, %r1, 1;
    selp.b64 %rd2, %rd1, 0, %p1;
    st.param.b64 [result], %rd2;
    ret;
}
"""
# The handle of a conditional node's value is the address of a word of device memory
# (device/graph_memory.h).
_CONDITIONAL: Final = """
.visible .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [handle];
    ld.param.u32 %r1, [value];
    st.relaxed.sys.u32 [%rd1], %r1;
    ret;
}
"""
OWN_TEXT: Final = "".join(
    (
        ".version 8.0\n.target sm_80\n.address_size 64\n",
        _HANDLE,
        _BARRIER.format(name="cudaCGSynchronize"),
        _BARRIER.format(name="cudaCGSynchronizeGrid"),
        _PAIR.format(name="cudaCGGetSize", body=_SIZE, second=1),
        _PAIR.format(name="cudaCGGetRank", body=_RANK, second=0),
        _CONDITIONAL,
    )
)


def launches(name: str) -> PtxError | None:
    """Returns the refusal of a kernel that calls an undefined function of that name; None if the
    name is not one of the device runtime's.
    """
    if _DEVICE_RUNTIME.fullmatch(name) is None or name in OWN_FUNCTIONS:
        return None
    return unsupported(
        f"the function '{name}'",
        "belongs to launching from kernels, which the emulated device does not support",
    )
