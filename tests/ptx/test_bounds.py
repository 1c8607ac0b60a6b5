"""Texts that once cost more than in proportion to their size.  Processor time is compared for a text and one four
times as long; a text of the full length would have taken from minutes to for ever."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest
from ptx.harness import HEADER
from ptx.program import source

from rgpu_emu.compile_job import Work
from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link
from rgpu_emu.ptx.module import EAGER_BYTES

ENTRY = ".visible .entry k() { ret; }\n"
# For the longer text. It takes less than 2 s on any machine; it took more than 30 s before.
SECONDS = 20
Text = Callable[[int], str]


def header(n: int) -> str:
    return HEADER + ".func f" + " " * n + "#"


def entry(text: str) -> Text:
    """An entry with a line that is repeated or made longer: N counts up, BLANKS are n of them."""
    return lambda n: source("".join(text.replace("N", str(k)) for k in range(n)))


def loading(n: int, text: str) -> str:
    return HEADER + "".join(text.replace("N", str(k)) for k in range(n)) + ENTRY


def chain(n: int) -> str:
    calls = "".join(f".func f{k}() {{ call f{k + 1}; ret; }}\n" for k in range(n))
    return HEADER + calls + f".func f{n}() {{ ret; }}\n"


# Unclosed and half-written text; a pattern that may take its characters in many ways tries them all.
UNREADABLE: dict[str, Text] = {
    "a name in the place of a statement": lambda n: HEADER + ".entry k() {" + "a" * n + "}",
    "blanks behind a guard": lambda n: HEADER + ".entry k() { @" + " " * n + "#; }",
    "blanks in the header of a function": header,
    "a name without a header": lambda n: HEADER + ".func " + "f" * n + "#",
    "blanks in an initial value": lambda n: HEADER + ".global .u64 x = y" + " " * n + "#;\n",
    "brackets in an initial value": lambda n: HEADER + ".global .u64 x = y" + ")" * n + "#;\n",
    "blanks in an address": lambda n: source("ld.u32 %r1, [%rd1" + " " * n + "#];"),
    "a name in an address": lambda n: source("ld.u32 %r1, [" + "a" * n + "#];"),
    "open brackets": lambda n: source("mov.b32 %r1, {%r2," + "[" * n + "};"),
    "blanks in a register's name": lambda n: source(".reg .b32 a" + " " * n + "#;"),
    "comments that are not closed": lambda n: HEADER + ENTRY + "/* " * n,
    "a string that is not closed": lambda n: HEADER + ENTRY + '"' + '\\"' * n,
    "blanks in an array's size": lambda n: HEADER + ".global .b8 x[" + " " * n + "#];",
    "an array of arrays": lambda n: HEADER + ".global .b8 x" + "[9]" * n + ";" + ENTRY,
    "a number of many digits": lambda n: HEADER.replace("sm_80", "sm_" + "9" * n) + ENTRY,
    "as many threads": lambda n: HEADER + ".entry k() .maxntid " + "9" * n + " { ret; }",
    "so many registers": lambda n: source(".reg .b32 q<" + "9" * n + ">;"),
    "so large an alignment": lambda n: HEADER + ".global .align " + "9" * n + " .b32 x;",
    "words of a very large module": lambda n: (
        HEADER + ".entry k() { " + "a.b:" * n + "# ; }" + " " * EAGER_BYTES
    ),
    "blocks in blocks": lambda n: source("{" * n + "}" * n),
    "jump tables": lambda n: source(
        "T: .branchtargets " + ",".join(f"L{k}" for k in range(n)) + ";\n"
        + "".join(f"L{k}: brx.idx %r1, T;\n" for k in range(n))
    ),
}  # fmt: skip
READABLE: dict[str, Text] = {
    "instructions": entry("add.u32 %r1, %r2, %r3;\n"),
    "labels": entry("LN: add.u32 %r1, %r2, %r3;\n"),
    "loops side by side": entry("LN: activemask.b32 %r1; @%p1 bra LN;\n"),
    "back-edges of one loop": lambda n: source(
        "L: ld.volatile.u32 %r1, [%rd1];" + "add.u32 %r2, %r1, 1; @%p1 bra L;\n" * n
    ),
    "a loop that waits for a long sum": lambda n: source(
        f".reg .b32 a<{n + 1}>; L: " + "".join(f"add.u32 a{k}, a{k + 1}, 1;" for k in range(n))
        + f"ld.volatile.u32 a{n}, [%rd1]; setp.eq.u32 %p1, a0, 0; @%p1 bra L;"
    ),
    "names of an inner block": lambda n: source(
        "{" + "".join(f".reg .b32 a{k}x; mov.u32 %r1, {k};" for k in range(n)) + "}"
    ),
    "variables": lambda n: loading(n, ".global .u32 gN;\n"),
    "a table of functions": lambda n: (
        loading(n, ".func fN() { ret; }\n")
        + f".global .u64 t[{n}] = {{" + ",".join(f"f{k}" for k in range(n)) + "};\n"
    ),
    "a chain of calls": lambda n: chain(n) + ".entry k() { call f0; ret; }",
    "kernels that call a chain": lambda n: (
        chain(n) + "".join(f".entry k{k}() {{ call f0; ret; }}\n" for k in range(n)) + ENTRY
    ),
    "kernels that call one large function": lambda n: (
        HEADER + ".func f() { .reg .b32 %r<4>;" + "add.u32 %r1, %r2, %r3;\n" * n + "ret; }\n"
        + "".join(f".entry k{k}() {{ call f; ret; }}\n" for k in range(n)) + ENTRY
    ),
    "constants, and who asks whether an address is one": lambda n: (
        HEADER + "".join(f".const .u32 c{k};\n" for k in range(n))
        + source("isspacep.const %p1, %rd1;" * n).removeprefix(HEADER)
    ),
}  # fmt: skip


def seconds(work: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    work(text)
    return time.process_time() - started


def compile_all(text: str) -> None:
    assert Work([text.encode()]).loaded(bytes(32))[:4] == bytes(4)
    emit_ir(link([text]), "k")


@pytest.mark.parametrize("name", UNREADABLE)
def test_text_that_cannot_be_read_is_refused_in_time(name: str) -> None:
    text = UNREADABLE[name](1_000 if "jump" in name or "arrays" in name else 200_000)
    started = time.process_time()
    (result,) = struct.unpack_from("<i", Work([text.encode()]).loaded(bytes(32)))
    assert result in (218, 801)
    assert time.process_time() - started < SECONDS


@pytest.mark.full
@pytest.mark.parametrize("name", READABLE)
def test_a_text_that_is_longer_takes_as_much_longer(name: str) -> None:
    text = READABLE[name]
    seconds(compile_all, text(50))
    short, long = (seconds(compile_all, text(n)) for n in (1_000, 4_000))
    assert long < SECONDS
    assert long < 1 + 10 * short


def test_functions_that_call_each_other_twice_are_counted_with_their_calls() -> None:
    calls = "".join(f".func f{k}() {{ call f{k + 1}; call f{k + 1}; ret; }}\n" for k in range(40))
    text = HEADER + calls + ".func f40() { bar.sync 0; ret; }\n.entry k() { call f0; ret; }"
    with pytest.raises(
        PtxError, match="more than 200000 instructions of functions that hold"
    ) as caught:
        emit_ir(link([text]), "k")
    assert caught.value.result == 801


def test_a_barrier_in_so_many_nested_loops_is_compiled_and_an_activemask_refused() -> None:
    def nested(first: str, n: int) -> str:
        loops = "".join(f"L{k}: add.u32 %r1, %r2, %r3;" for k in range(n))
        return source(first + loops + "".join(f"@%p1 bra L{k};" for k in reversed(range(n))))

    emit_ir(link([nested("bar.sync 0;", 2_000)]), "k")
    emit_ir(link([nested("activemask.b32 %r1;", 200)]), "k")
    with pytest.raises(PtxError, match="too many nested loops"):
        emit_ir(link([nested("activemask.b32 %r1;", 4_000)]), "k")
