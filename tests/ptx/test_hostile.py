"""PTX that was written to break out: each is refused, or ends its own launch only."""

from __future__ import annotations

import numpy as np
import pytest
from ptx.harness import Kernel
from ptx.program import result_of, run, source

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

OTHER_ENTRY = """
.visible .entry other(.param .u64 p, .param .align 8 .b8 big[30000]) {
  .reg .b64 %a<3>;
  ld.param.u64 %a1, [p];
  ld.param.u64 %a2, [big+20000];
  st.global.u64 [%a1], %a2;
  ret;
}
"""
COMES_BACK = ".func .noreturn comes_back(.param .u64 a) { ret; }"


def test_an_entry_cannot_be_called() -> None:
    body = """
    { .param .b64 q; .param .align 8 .b8 w[30000];
      st.param.b64 [q], %out; call other, (q, w); }
    """
    with pytest.raises(PtxError, match="the entry other is called"):
        Kernel(source(body, before=OTHER_ENTRY), "k")


@pytest.mark.parametrize("place", ["in", "in+0", "%rd1"])
def test_parameters_of_an_entry_are_read_only(place: str) -> None:
    """The module does not load."""
    with pytest.raises(PtxError, match="parameters are read-only") as caught:
        link([source(f"mov.u64 %rd1, in;\n st.param.u64 [{place}], %out;")])
    assert caught.value.line > 4


def test_a_function_that_promised_not_to_return_ends_the_launch() -> None:
    body = "{ .param .b64 q; st.param.b64 [q], %out; call comes_back, (q); }"
    assert result_of(body, before=COMES_BACK) == 719


def test_elements_of_arrays_have_addresses() -> None:
    body = """
    .shared .b32 words[8];
    mov.u32 %r1, 77;
    st.shared.u32 [words+12], %r1;
    mov.u32 %r2, words[3];
    ld.shared.u32 %r3, [%r2];
    st.global.u32 [%out], %r3;
    """
    assert run(body, np.zeros(1, np.uint32), np.zeros(1, np.uint32), threads=1)[0] == 77
