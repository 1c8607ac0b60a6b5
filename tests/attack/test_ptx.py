"""PTX texts made to harm the compiler or its output: each is refused or harmless, and quickly."""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.server import Server

# Of processor time, for each text: a busy machine takes longer for the same.
CONFIG = "[emulated]\ncompiler_seconds = 30\n"
HEADER = ".version 7.8\n.target sm_80\n.address_size 64\n"
ENTRY = ".visible .entry k(.param .u64 p) { ret; }\n"
BIG = 8589934592

# Text and the CUresults that may come of loading it and running its kernel.
TEXTS = {
    "braces without end": (HEADER + "{" * 100_000, (218,)),
    "nested blocks": (
        HEADER + ".visible .entry k(.param .u64 p) {" + "{" * 20_000 + "}" * 20_000 + "ret; }",
        (801,),
    ),
    "a comment that never ends": (HEADER + "/* " + "*" * 200_000 + ENTRY, (218,)),
    "a number of a million digits": (
        HEADER + f".visible .global .b64 x = {'9' * 1_000_000};\n" + ENTRY,
        (218,),
    ),
    "an array of arrays of arrays": (
        HEADER + ".visible .global .b8 x" + f"[{BIG}]" * 2_000 + ";\n" + ENTRY,
        (218,),
    ),
    "more global memory than there is": (
        HEADER
        + "".join(f".visible .global .align 65536 .b8 x{n}[{BIG}];\n" for n in range(50))
        + ENTRY,
        (2,),
    ),
    "more local memory than there is": (
        HEADER
        + f".visible .entry k(.param .u64 p) {{ .local .b8 x[{BIG}]; .reg .b32 %r<2>;"
        + " st.local.u32 [x+8], %r1; ret; }",
        (218,),
    ),
    "more shared memory than there is": (
        HEADER
        + f".visible .entry k(.param .u64 p) {{ .shared .b8 x[{BIG}]; .reg .b32 %r<2>;"
        + " st.shared.u32 [x+8], %r1; ret; }",
        (218,),
    ),
    "two thousand million registers": (
        HEADER
        + ".visible .entry k(.param .u64 p) { .reg .b64 %r<2000000000>;"
        + " mov.u64 %r1999999999, 1; ret; }",
        (0, 2, 218),
    ),
    "qualifiers without end": (HEADER + ".extern .visible " * 100_000 + ENTRY, (0, 218)),
    "attributes without end": (HEADER + ".func " + ".attribute (x) " * 50_000 + ENTRY, (218,)),
    "a chain of calls": (
        HEADER
        + "".join(f".func f{n}() {{ call f{n + 1}; ret; }}\n" for n in range(2_000))
        + ".func f2000() { ret; }\n.visible .entry k(.param .u64 p) { call f0; ret; }",
        (0,),
    ),
    "a name that ends the string of the IR": (
        HEADER + '.visible .entry k"\\0A}define void @x(.param .u64 p) { ret; }',
        (218,),
    ),
    "a file name that is IR": (
        HEADER + '.file 1 "a\\22\\n}\\n declare void @system(ptr)"\n' + ENTRY,
        (0,),
    ),
    "a debug section that is IR": (
        HEADER + ENTRY + '.section .debug_str { .b8 "}\\ndeclare void @system(ptr)" }',
        (0, 218),
    ),
    "names of the runtime": (
        HEADER
        + "".join(
            f".visible .func {name}() {{ ret; }}\n"
            for name in ("memset", "rgpu_block", "rgpu_thread", "rgpu_fn_0", "system", "main")
        )
        + ".visible .entry k(.param .u64 p) { call memset; call rgpu_block; call rgpu_fn_0;"
        + " call system; ret; }",
        (0,),
    ),
    "a function of the C library": (
        HEADER
        + ".extern .func (.param .b32 r) system(.param .b64 a);\n"
        + ".visible .entry k(.param .u64 p) { { .param .b64 a; .param .b32 r; call (r), system, (a);"
        + " } ret; }",
        (218, 801),
    ),
    "a variable of the C library": (
        HEADER
        + ".extern .global .b64 environ;\n.visible .entry k(.param .u64 p) { .reg .b64 %r<2>;"
        + " ld.global.u64 %r1, [environ]; ret; }",
        (218,),
    ),
    "an entry that calls another with more parameters": (
        HEADER
        + ".visible .entry b(.param .align 8 .b8 big[30000]) { .reg .b64 %r<2>;"
        + " ld.param.u64 %r1, [big+20000]; ret; }\n"
        + ".visible .entry k(.param .u64 p) { { .param .align 8 .b8 w[30000]; call b, (w); } ret; }",
        (218, 801),
    ),
    "a store to the parameters of an entry": (
        HEADER
        + ".visible .entry k(.param .u64 p) { .reg .b64 %r<2>; ld.param.u64 %r1, [p];"
        + " st.param.u64 [p], %r1; ret; }",
        (218, 801),
    ),
    "a relocation at the end of a short variable": (
        HEADER
        + ".visible .global .u64 x; .visible .global .align 8 .b8 t[4] = {0xFF(x)};\n"
        + ENTRY,
        (200, 218),
    ),
    "inline assembly of the host": (
        HEADER + '.visible .entry k(.param .u64 p) { asm volatile ("syscall"); ret; }',
        (218, 801),
    ),
    "bytes that are no text": (HEADER + "\x01\x02\x7f" * 1000 + ENTRY, (218,)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_refused_or_harmless(server: Server, tmp_path: object, name: str) -> None:
    text, results = TEXTS[name]
    path = f"{tmp_path}/hostile.ptx"
    with open(path, "w") as file:
        file.write(text)
    code, output, errors = clients.run(
        server.tcp,
        f"""
        cuda.open()
        address = cuda.alloc(4096)
        try:
            cuda.launch(cuda.function(cuda.load(open({path!r}, "rb").read()), "k"), 1, 1, address)
            cuda.synchronize()
            print(0)
        except CudaError as error:
            print(error.result)
        cuda.upload(address, b"x" * 4096)
        """,
        RGPU_MEMORY="64MiB",
    )
    assert code == 0, errors
    assert int(output) in results, errors
    if int(output) not in (0, 2):
        assert len([line for line in errors.splitlines() if line.startswith("rgpu")]) <= 1, errors
        assert len(errors) < 6000
