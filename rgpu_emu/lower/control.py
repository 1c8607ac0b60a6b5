"""Branches, returns and ends of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_emu.lower.registry import LOWERINGS, lowers
from rgpu_emu.lower.sync import suspend
from rgpu_emu.ptx.errors import CUDA_ERROR_LAUNCH_FAILED, PtxError, refusal_of
from rgpu_emu.ptx.lex import line_of
from rgpu_emu.ptx.operands import Instr, Label, LabelRef

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter


def _jump(e: FunctionEmitter, label: LabelRef) -> None:
    """Emits a branch. A backward branch polls the stop word, and yields if the loop waits for
    another thread.
    """
    target = label.target
    if target is None:
        raise PtxError(f"the label {label.name} is not defined")
    if target.position <= e.position:
        e.poll()
        if e.position in e.unit.reach.spins.get(e.frame.function, ()):
            suspend(e, "yield", value="0")
    if e.frame.places is not None:
        e.frame.places.go(e.position, target.position)
    e.line(f"br label %{e.frame.label(target)}")


@lowers("branch")
def branch(e: FunctionEmitter, i: Instr) -> None:
    label = i.operands[0]
    if not isinstance(label, LabelRef):
        raise PtxError("bra needs a label")
    _jump(e, label)
    e.dead()


@lowers("branch_indexed")
def branch_indexed(e: FunctionEmitter, i: Instr) -> None:
    """Emits `brx.idx`. An index past the list is undefined on a GPU; here it ends the launch."""
    name = i.operands[1]
    listed = name.target if isinstance(name, LabelRef) else None
    targets = e.frame.body.targets.get(listed) if listed is not None else None
    if targets is None:
        raise PtxError("brx.idx names no .branchtargets list")
    index = e.read(i.operands[0], "i32")
    blocks = [e.block_name("case") for _ in targets]
    cases = " ".join(f"i32 {n}, label %{block}" for n, block in enumerate(blocks))
    e.line(f"switch i32 {index}, label %{e.trap_block(CUDA_ERROR_LAUNCH_FAILED)} [ {cases} ]")
    for block, target in zip(blocks, targets, strict=True):
        e.start(block)
        _jump(e, target)
    e.dead()


@lowers("ret")
def ret(e: FunctionEmitter, i: Instr) -> None:
    e.line(f"br label %{e.frame.exit}")
    e.dead()


@lowers("exit_thread")
def exit_thread(e: FunctionEmitter, i: Instr) -> None:
    """Emits the end of the thread. Functions that contain `exit` are always inlined into their
    entry.
    """
    e.line(f"br label %{e.thread_exit}")
    e.dead()


@lowers("trap")
def trap(e: FunctionEmitter, i: Instr) -> None:
    e.line(f"br label %{e.trap_block(CUDA_ERROR_LAUNCH_FAILED)}")
    e.dead()


def emit_body(e: FunctionEmitter) -> None:
    """Emits the frame's body, which ends with a branch to the frame's exit block. The caller
    defines that block.
    """
    frame = e.frame
    if frame.places is not None:
        frame.places.begin()
    for position, item in enumerate(frame.body.code):
        if isinstance(item, Label):
            if frame.places is not None and position:
                frame.places.go(position - 1, position)
            e.line(f"br label %{frame.label(item)}")
            e.start(frame.label(item))
            continue
        e.position = position
        if e.depth:
            e.unit.count_inlined()
        try:
            _emit(e, item)
        except Exception as error:  # a defect of a lowering refuses only this kernel
            name = f"instruction '{item.form.name}'"
            refusal = refusal_of(error, name).within(name)
            raise refusal.at(line_of(frame.function.module.text, item.pos)) from None
    e.line(f"br label %{frame.exit}")


def _emit(e: FunctionEmitter, item: Instr) -> None:
    lowering = LOWERINGS[item.form.row.lower]
    if item.guard is None:
        lowering(e, item)
        return
    condition = e.read(item.guard, "i1")
    do, after = e.block_name("do"), e.block_name("after")
    yes, no = (after, do) if item.negated else (do, after)
    e.line(f"br i1 {condition}, label %{yes}, label %{no}")
    e.start(do)
    lowering(e, item)
    e.line(f"br label %{after}")
    e.start(after)
