"""Where control goes in a body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.operands import LabelRef

if TYPE_CHECKING:
    from rgpu_emu.ptx.operands import Body, Instr, Label

# Lowerings after which control does not go on to the next instruction, unless they have a guard.
ENDS: Final = frozenset(("branch", "branch_indexed", "ret", "exit_thread", "trap"))


def targets_of(instr: Instr, body: Body) -> list[Label]:
    """Returns the labels to which a branch may go; none if it is no branch."""
    named = instr.operands[-1] if instr.operands else None
    if not isinstance(named, LabelRef) or named.target is None:
        return []
    if instr.form.row.lower != "branch_indexed":
        return [named.target]
    return [ref.target for ref in body.targets.get(named.target, []) if ref.target is not None]
