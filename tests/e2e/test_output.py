"""What kernels print: printf goes to the program's stdout, failed assertions to its stderr."""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.server import TRANSPORTS, Server

PTX = """
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
                           .param .b64 c) .noreturn;
.global .align 1 .b8 hello[7] = {104, 101, 108, 108, 111, 10, 0};
.global .align 1 .b8 text[2] = {120, 0};
.visible .entry say()
{
  .reg .b64 %d<2>; .reg .b32 %r;
  .param .b64 f; .param .b64 a; .param .b32 r;
  mov.u64 %d0, hello;
  mov.u64 %d1, 0;
  st.param.b64 [f], %d0; st.param.b64 [a], %d1;
  call.uni (r), vprintf, (f, a);
  ret;
}
.visible .entry odd()
{
  .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d;
  .param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 1;
  setp.eq.u32 %p, %r1, 0;
  @%p bra GOOD;
  mov.u64 %d, text;
  st.param.b64 [a0], %d; st.param.b64 [a1], %d; st.param.b32 [a2], 7;
  st.param.b64 [a3], %d; st.param.b64 [a4], 1;
  call.uni __assertfail, (a0, a1, a2, a3, a4);
GOOD:
  ret;
}
"""
LAUNCH = f"""
cuda.open()
module = cuda.load({PTX.encode()!r} + b"\\0")
cuda.launch(cuda.function(module, NAME), 2, 4)
print(cuda.result("cuCtxSynchronize"))
"""
BYSTANDER = """
cuda.open()
print("ready", flush=True)
wait_for_line()
print(cuda.result("cuCtxSynchronize"))
"""
ASSERT = 710


def launch(kernel: str) -> str:
    return LAUNCH.replace("NAME", repr(kernel))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_printf_goes_to_stdout(server: Server, transport: str) -> None:
    code, output, errors = clients.run(server.address(transport), launch("say"))
    assert (code, output) == (0, "hello\n" * 8 + "0\n"), errors


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_failed_assertion_has_a_line_on_stderr(server: Server, transport: str) -> None:
    """The lines are as CUDA writes them. Neither another tenant nor the operator sees them."""
    address = server.address(transport)
    bystander = clients.start(address, BYSTANDER)
    assert bystander.stdout is not None
    assert bystander.stdout.readline() == "ready\n"
    code, output, errors = clients.run(address, launch("odd"))
    assert (code, output) == (0, f"{ASSERT}\n"), errors
    lines = [line for line in errors.splitlines() if "Assertion" in line]
    assert sorted(lines) == [
        f"x:7: x: block: [{block},0,0], thread: [{thread},0,0] Assertion `x` failed."
        for block in (0, 1)
        for thread in (1, 3)
    ]
    output, errors = bystander.communicate("\n", timeout=60)
    assert output == "0\n"
    assert "Assertion" not in errors
    assert not any("Assertion" in line for line in server.log)
