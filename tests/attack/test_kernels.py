"""Kernels that break the rules: each ends with the matching error, and the neighbouring session
goes on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from helpers import clients
from helpers.server import Server

HEADER = ".version 7.8\n.target sm_80\n.address_size 64\n"
CALL = "{ .param .b64 a; st.param.b64 [a], %d1; call F, (a); }"


@dataclass(frozen=True)
class Attack:
    """`body` of a kernel with the device address of 1 MiB of zeros in %d1; `before` it other code.

    results: CUresults that may end it.
    """

    body: str
    results: tuple[int, ...]
    before: str = ""
    block: int = 1


def store(address: str) -> str:
    return f"mov.u64 %d2, {address}; st.u32 [%d2], %r1;"


ATTACKS = {
    "write to 0": Attack(store("0"), (700,)),
    "write to a host address": Attack(store("0x7fffffffe000"), (700,)),
    "write to the code of programs": Attack(store("0x400000"), (700,)),
    "write to a kernel address": Attack(store("0xffffffff80000000"), (700,)),
    "write at the end of the numbers": Attack(store("0xfffffffffffffffd"), (700,)),
    "write far behind the allocation": Attack("st.u32 [%d1+1048576], %r1;", (700,)),
    "write before the allocation": Attack("st.u32 [%d1+-4], %r1;", (700,)),
    "write all of it": Attack(
        "L: st.u32 [%d1], %r1; add.u64 %d1, %d1, 4096; bra L;", (700,)
    ),
    "shared memory that is not there": Attack("mov.u32 %r2, 65536; st.shared.u32 [%r2], %r1;", (700,)),
    "shared address below 0": Attack("mov.u64 %d2, -8; st.shared.u32 [%d2], %r1;", (700,)),
    "local memory that is not there": Attack("mov.u64 %d2, 1048576; st.local.u32 [%d2], %r1;", (700,)),
    "local memory of the thread beside": Attack(
        "mov.u64 %d2, 16; st.local.u32 [%d2], %r1;", (700,), ".local .b8 x[16];"
    ),
    "the last bytes of shared memory and those behind": Attack(
        "mov.u64 %d2, x; st.shared.v2.u64 [%d2+120], {%d1, %d1};", (700,), ".shared .align 16 .b8 x[16];"
    ),
    "the last bytes of local memory and those behind": Attack(
        "mov.u64 %d2, x; st.local.v2.u64 [%d2+8], {%d1, %d1};", (700,), ".local .align 16 .b8 x[16];"
    ),
    "an atomic on a wild address": Attack(
        "mov.u64 %d2, 24; atom.add.u64 %d3, [%d2], 1;", (700,)
    ),
    "division by zero": Attack(
        "ld.u64 %d2, [%d1]; div.s64 %d3, %d1, %d2; rem.s64 %d3, %d1, %d2; div.u32 %r2, %r1, %r3;"
        "mov.u64 %d4, 0x8000000000000000; mov.u64 %d5, -1; div.s64 %d4, %d4, %d5; st.u64 [%d1], %d4;",
        (0,),
    ),
    "trap": Attack("trap;", (719,)),
    "a barrier of which one thread stays away": Attack(
        "setp.eq.u32 %p1, %t1, 0; @%p1 bra L; bar.sync 1; L: bar.sync 2, 64;", (702,), block=64
    ),
    "a barrier that there is not": Attack(
        "add.u32 %r2, %t1, 0x7fffff0; bar.sync %r2, %r2;", (719,), block=64
    ),
    "a mask without the thread": Attack("bar.warp.sync 0;", (719,), block=32),
    "recursion without end": Attack(
        CALL,
        (719,),
        ".func G(.param .b64 a);\n"
        ".func F(.param .b64 a) { .reg .b64 %d<3>; ld.param.u64 %d1, [a];"
        " { .param .b64 b; st.param.b64 [b], %d1; call G, (b); } ret; }\n"
        ".func G(.param .b64 a) { .reg .b64 %d<3>; .local .b8 x[4096]; ld.param.u64 %d1, [a];"
        " { .param .b64 b; st.param.b64 [b], %d1; call F, (b); } ret; }\n",
    ),
    "recursion with wide frames": Attack(
        CALL,
        (719,),
        ".func F(.param .b64 a) { .reg .b64 %d<3>; .reg .pred %p; ld.param.u64 %d1, [a];"
        " { .param .b64 b; .param .align 8 .b8 w[30000]; st.param.b64 [b], %d1;"
        " st.param.b64 [w+8], %d1; call G, (b, w); } ret; }\n"
        ".func G(.param .b64 a, .param .align 8 .b8 w[30000]) { .reg .b64 %d<3>;"
        " ld.param.u64 %d1, [w+8]; { .param .b64 b; st.param.b64 [b], %d1; call F, (b); } ret; }\n",
    ),
    "a function pointer that is forged": Attack(
        "mov.u64 %d3, F; mov.u64 %d2, 0x7267000000000005; { .param .b64 a; st.param.b64 [a], %d1;"
        " P: .callprototype _ (.param .b64 _); call %d2, (a), P; }",
        (718,),
        ".func F(.param .b64 a) { ret; }",
    ),
    "a function pointer to host code": Attack(
        "mov.u64 %d3, F; mov.u64 %d2, 0x400000; { .param .b64 a; st.param.b64 [a], %d1;"
        " P: .callprototype _ (.param .b64 _); call %d2, (a), P; }",
        (718,),
        ".func F(.param .b64 a) { ret; }",
    ),
    "a function called by another signature": Attack(
        "mov.u64 %d2, F; { .param .b64 a; .param .b64 b; st.param.b64 [a], %d1;"
        " P: .callprototype _ (.param .b64 _, .param .b64 _); call %d2, (a, b), P; }",
        (719,),
        ".func F(.param .b64 a) { ret; }",
    ),
    "a function that returns although it said it never does": Attack(
        CALL + " st.u64 [%d1], %d1;", (719,), ".func .noreturn F(.param .b64 a) { ret; }"
    ),
    "such a function by pointer": Attack(
        "mov.u64 %d2, F; { .param .b64 a; st.param.b64 [a], %d1;"
        " P: .callprototype _ (.param .b64 _) .noreturn; call %d2, (a), P; } st.u64 [%d1], %d1;",
        (0, 719),
        ".func F(.param .b64 a) { ret; }",
    ),
    "parameters far behind the last": Attack(
        "mov.u64 %d2, p; add.u64 %d2, %d2, 100000; ld.param.u64 %d3, [%d2]; st.u64 [%d1], %d3;",
        (0,),
    ),
    "a jump table that ends earlier": Attack(
        "mov.u32 %r1, 77; T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret;", (719,)
    ),
    "an atomic on an odd address": Attack(
        "add.u64 %d2, %d1, 3; atom.add.u64 %d3, [%d2], 1;", (716,)
    ),
    "infinity as an offset": Attack(
        "mov.f64 %f1, 0d7FF0000000000000; cvt.rzi.u64.f64 %d2, %f1; add.u64 %d3, %d1, %d2;"
        " st.u64 [%d3], %d2;",
        (700,),
    ),
    "an address outside in a variable": Attack(
        "ld.u64 %d2, [t]; st.u64 [%d2], %d1;",
        (700,),
        ".visible .global .u64 x;\n.visible .global .u64 t[1] = {x-8589934592};",
    ),
    "printf of a wild format": Attack(
        "mov.u64 %d2, 0x500000; { .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %d2;"
        " st.param.b64 [b], %d2; call (c), vprintf, (a, b); }",
        (700,),
        ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);",
    ),
    "free of what malloc did not give": Attack(
        "{ .param .b64 a; st.param.b64 [a], %d1; call free, (a); }",
        (0,),
        ".extern .func free (.param .b64 a);",
    ),
}  # fmt: skip


def ptx(attack: Attack) -> str:
    outside, inside = attack.before, ""
    if attack.before.startswith((".local", ".shared")):
        outside, inside = "", attack.before
    return (
        f"{HEADER}{outside}\n.visible .entry k(.param .u64 p) {{\n"
        ".reg .b64 %d<6>; .reg .b32 %r<4>; .reg .b32 %t<2>; .reg .pred %p<2>;"
        " .reg .f64 %f<2>;\n"
        f"{inside}ld.param.u64 %d1, [p]; mov.u32 %t1, %tid.x;\n{attack.body}\nret; }}\n"
    )


@pytest.fixture(scope="module")
def bystander(server: Server) -> Iterator[subprocess.Popen[str]]:
    """A session that writes down whether all is well, a line for a line."""
    client = clients.start(
        server.tcp,
        """
        import sys
        cuda.open()
        address = cuda.alloc(1 << 20)
        cuda.upload(address, b"mine" * 1024)
        print("ready")
        for _ in sys.stdin:
            cuda.synchronize()
            print(cuda.download(address, 4096) == b"mine" * 1024)
        """,
        RGPU_MEMORY="64MiB",
        RGPU_LEASE="bystander",
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    yield client
    client.communicate(timeout=60)
    assert client.returncode == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_kernel_ends_alone(
    server: Server, bystander: subprocess.Popen[str], name: str
) -> None:
    attack = ATTACKS[name]
    code, output, errors = clients.run(
        server.tcp,
        f"""
        cuda.open()
        address = cuda.alloc(1 << 20)
        cuda.upload(address, bytes(1 << 20))
        kernel = cuda.function(cuda.load({ptx(attack)!r}.encode()), "k")
        cuda.launch(kernel, 1, {attack.block}, address)
        print(cuda.result("cuCtxSynchronize"))
        """,
        RGPU_MEMORY="64MiB",
        RGPU_LEASE="attacker",
    )
    assert code == 0, errors
    assert int(output) in attack.results, errors
    assert len([line for line in errors.splitlines() if line.startswith("rgpu")]) <= 2, errors
    assert bystander.stdin is not None
    assert bystander.stdout is not None
    bystander.stdin.write("?\n")
    bystander.stdin.flush()
    assert bystander.stdout.readline() == "True\n"
