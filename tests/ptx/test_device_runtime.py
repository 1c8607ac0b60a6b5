"""The device runtime's functions: those for cooperative grids are linked, those that launch are refused."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import HEADER, Kernel
from ptx.program import result_of, run, source

from rgpu_emu.lower.entry import lower_entry
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link
from rgpu_emu.ptx.runtime import OWN_FUNCTIONS

DECLARED = """
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 r) cudaCGSynchronizeGrid(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 r) cudaCGGetSize(.param .b64 a, .param .b64 b, .param .b64 handle);
.extern .func (.param .b32 r) cudaCGGetRank(.param .b64 a, .param .b64 b, .param .b64 handle);
"""
HANDLE = """
{ .param .b32 s; .param .b64 r; st.param.b32 [s], SCOPE;
  call (r), cudaCGGetIntrinsicHandle, (s); ld.param.b64 %rd9, [r]; }
"""
SYNC = """
{ .param .b64 h; .param .b32 f; .param .b32 r; st.param.b64 [h], %rd9; st.param.b32 [f], 0;
  call (r), NAME, (h, f); ld.param.b32 %r9, [r]; }
"""
PAIR = """
{ .param .b64 a; .param .b64 b; .param .b64 h; .param .b32 r;
  st.param.b64 [a], %rd7; st.param.b64 [b], %rd8; st.param.b64 [h], %rd9;
  call (r), NAME, (a, b, h); ld.param.b32 %r9, [r]; }
"""


def cooperative(body: str, grid: tuple[int, ...], block: tuple[int, ...], words: int) -> list[int]:
    kernel = Kernel(source(HANDLE.replace("SCOPE", "1") + body, before=DECLARED), "k")
    out = np.zeros(words, np.uint32)
    place = kernel.arena.put(out)
    kernel.launch(grid, block, np.uint64(0), np.uint64(place), cooperative=True)
    found: list[int] = kernel.arena.get(place, out).tolist()
    return found


@pytest.mark.parametrize("name", ["cudaCGSynchronize", "cudaCGSynchronizeGrid"])
def test_a_barrier_of_one_block(name: str) -> None:
    body = (
        SYNC.replace("NAME", name) * 3
        + """
    mul.wide.u32 %rd1, %tid, 4; add.u64 %rd1, %out, %rd1; add.u32 %r9, %r9, %tid; st.u32 [%rd1], %r9;
    """
    )
    assert cooperative(body, (1,), (70,), 70) == list(range(70))


def test_sizes_and_ranks() -> None:
    """Of a grid in three dimensions. Either result may be left out."""
    place = """
    add.u64 %rd7, %out, 0; add.u64 %rd8, %out, 4;
    """
    size = cooperative(place + PAIR.replace("NAME", "cudaCGGetSize"), (2, 3, 4), (4, 2, 3), 2)
    assert size == [576, 1]
    rank = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mad.lo.u32 %r2, %r3, 3, %r2; mad.lo.u32 %r1, %r2, 2, %r1;
    mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mad.lo.u32 %r2, %r3, 2, %r2; mad.lo.u32 %r2, %r2, 4, %tid;
    mad.lo.u32 %r1, %r1, 24, %r2; mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %out, %rd7; mov.u64 %rd8, 0;
    """
    body = rank + PAIR.replace("NAME", "cudaCGGetRank")
    assert cooperative(body, (2, 3, 4), (4, 2, 3), 576) == list(range(576))
    none = "add.u64 %rd8, %out, 0; mov.u64 %rd7, 0; st.u32 [%out], 7;"
    assert cooperative(none + PAIR.replace("NAME", "cudaCGGetRank"), (1,), (1,), 1) == [0]


@pytest.mark.parametrize("function", [SYNC.replace("NAME", "cudaCGSynchronize"),
                                      PAIR.replace("NAME", "cudaCGGetSize")])  # fmt: skip
@pytest.mark.parametrize("scope", ["1", "2"])
def test_without_a_cooperative_launch_the_kernel_ends_with_a_trap(
    function: str, scope: str
) -> None:
    body = HANDLE.replace("SCOPE", scope) + function
    assert result_of(body, before=DECLARED) == 719


def test_environment_registers_and_counters_are_zero() -> None:
    body = """
    mov.u32 %r1, %envreg1; mov.b64 %rd1, {%envreg2, %envreg1}; mov.u32 %r2, %pm0; mov.u32 %r3, %pm7;
    mov.u64 %rd2, %pm0_64; mov.u64 %rd3, %pm7_64; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3;
    or.b64 %rd1, %rd1, %rd2; or.b64 %rd1, %rd1, %rd3; st.u32 [%out], %r1; st.u64 [%out+8], %rd1;
    """
    out = run(body, np.zeros(1, np.uint32), np.full(4, 9, np.uint32), threads=1)
    assert out.tolist() == [0, 9, 0, 0]


def test_functions_of_the_program_come_first() -> None:
    """A program that brings its own function keeps it, also beside the others."""
    own = """
    .visible .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope)
    { st.param.b64 [r], 5; ret; }
    """
    declared = DECLARED.replace(DECLARED.strip().splitlines()[0], own)
    body = HANDLE.replace("SCOPE", "1") + "st.u64 [%out], %rd9;"
    out = run(body, np.zeros(1), np.zeros(1, np.uint64), threads=1, before=declared)
    assert out[0] == 5
    other = HEADER + own
    program = link([source(body, before=DECLARED), other])
    assert program.function("cudaCGGetIntrinsicHandle", program.modules[0]) is not None
    assert len(program.modules) == 3


def test_nothing_is_added_to_a_program_that_needs_nothing() -> None:
    assert len(link([source("add.u32 %r1, %r2, %r3;")]).modules) == 1
    assert len(OWN_FUNCTIONS) == 6


LAUNCHING = [
    "cudaLaunchDeviceV2",
    "cudaGetParameterBufferV2",
    "cudaLaunchDevice",
    "__cudaCDP2LaunchDeviceV2",
    "cudaDeviceSynchronize",
]


@pytest.mark.parametrize("name", LAUNCHING)
def test_launching_from_the_device_is_refused_by_name(name: str) -> None:
    """Only the kernels that reach the call are refused."""
    text = f"""
    .extern .func (.param .b32 r) {name}(.param .b64 a);
    .func inner() {{ .reg .b64 %rd; .param .b64 a; .param .b32 r; call (r), {name}, (a); ret; }}
    .visible .entry bad() {{ call inner; ret; }}
    .visible .entry good() {{ ret; }}
    """
    program = link([HEADER + text])
    assert list(program.refusals) == ["bad"]
    error = program.refusals["bad"]
    assert error.result == 801
    assert error.line == 6
    assert f"'{name}'" in str(error)
    assert "launching from kernels" in str(error)
    lower_entry(program, "good")


def test_the_address_of_an_entry_refuses_its_kernel_alone() -> None:
    text = """
    .visible .entry good() { ret; }
    .visible .entry bad() { .reg .b64 %rd<2>;
      mov.u64 %rd1, good; ret; }
    """
    program = link([HEADER + text])
    assert list(program.refusals) == ["bad"]
    assert "address of entry 'good'" in str(program.refusals["bad"])
    assert program.refusals["bad"].line == 7


def test_other_undefined_functions_are_wrong_text() -> None:
    with pytest.raises(PtxError, match="not defined in any input") as caught:
        link([source("call helper, ();", before=".extern .func helper();\n")])
    assert caught.value.result == 218
