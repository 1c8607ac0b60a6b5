"""An unforeseen error in the compiler refuses only the kernel that causes it. The refusal says what
happened, and the other kernels, sessions and processes go on.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ptx.compiling import Accepting, kernels
from ptx.harness import HEADER

from rgpu_emu import compile_job
from rgpu_emu.compile_job import Work
from rgpu_emu.lower.emit import FunctionEmitter
from rgpu_emu.lower.registry import LOWERINGS
from rgpu_emu.ptx import body as ptx_body
from rgpu_emu.ptx.operands import Instr

GOOD = ".visible .entry good() { ret; }\n"
BAD = """.visible .entry bad(.param .u64 p)
{
  .reg .b32 %r<3>;
  popc.b32 %r1, %r2;
  ret;
}
"""
TEXT = HEADER + GOOD + BAD
SENTENCE = (
    "line 8: instruction 'popc.b32' met a defect of the emulated device's compiler "
    "(KeyError: 'i320', {file} line {line}); please report it to rgpu together with the PTX, "
    "so the kernel 'bad' is refused"
)
BROKEN = """
import sys
from rgpu_emu import compiler
from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.lower.registry import LOWERINGS
def broken(e, i):
    raise KeyError("i320")
LOWERINGS["int_count"] = broken
sys.exit(compiler.main(sys.argv[1:]))
"""


def broken(e: FunctionEmitter, i: Instr) -> None:
    raise KeyError("i320")


def answer(body: bytes) -> tuple[int, str]:
    """CUresult and log of a body."""
    result, size = struct.unpack_from("<iI", body)
    return result, body[8 : 8 + size].decode()


def test_a_broken_lowering_refuses_its_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWERINGS, "int_count", broken)
    work = Work([TEXT.encode()])
    assert answer(work.loaded(bytes(32))) == (0, "")
    line = broken.__code__.co_firstlineno + 1
    assert answer(work.lowered("bad")) == (801, SENTENCE.format(file="test_defects.py", line=line))
    assert answer(work.lowered("good")) == (0, "")


def test_the_process_that_met_it_goes_on_and_so_do_others(tmp_path: Path) -> None:
    with Accepting(tmp_path, program=("-c", BROKEN)) as compiler:
        mine, theirs = compiler.connect(), compiler.connect()
        key = mine.load(TEXT).key
        other = theirs.load(kernels(2)).key
        jobs = compiler.jobs()
        refused = mine.lower(key, "bad")
        assert (refused.result, refused.log) == (801, SENTENCE.format(file="<string>", line=7))
        assert mine.lower(key, "good").result == 0
        assert theirs.lower(other, "k1").result == 0
        assert compiler.jobs() == jobs


def test_a_defect_of_the_parser_refuses_its_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(ptx_body, "parse_variables", fail)
    bad = ".visible .entry bad()\n{\n  .local .b8 x[4];\n  ret;\n}\n"
    result, log = answer(Work([(HEADER + GOOD + bad).encode()]).loaded(bytes(32)))
    assert result == 0
    assert log.startswith("warning: line 7: this statement met a defect")
    assert log.endswith("so the kernel 'bad' is refused\n")


def test_a_defect_of_the_analysis_refuses_its_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = compile_job.shared_layout

    def fail(program: object, found: object) -> object:
        if found.entry.name == "bad":  # type: ignore[attr-defined]
            raise ZeroDivisionError
        return layout(program, found)  # type: ignore[arg-type]

    monkeypatch.setattr(compile_job, "shared_layout", fail)
    result, log = answer(Work([TEXT.encode()]).loaded(bytes(32)))
    assert result == 0
    assert "(ZeroDivisionError: , test_defects.py line" in log
    assert log.endswith("so the kernel 'bad' is refused\n")


def test_a_defect_between_kernels_refuses_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sources: list[str]) -> None:
        raise TypeError("no")

    monkeypatch.setattr(compile_job, "link", fail)
    for body in (Work([b"x"]).loaded(bytes(32)), Work([b"x"]).lowered("k"), Work([b"x"]).linked()):
        result, log = answer(body)
        assert result == 801
        assert "met a defect of the emulated device's compiler (TypeError: no" in log


def test_a_process_without_memory_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sources: list[str]) -> None:
        raise MemoryError

    monkeypatch.setattr(compile_job, "link", fail)
    with pytest.raises(MemoryError):
        Work([b"x"]).loaded(bytes(32))
