"""The state of one PTX function body while it is emitted: register slots, local variables,
parameters and labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Body, Label, LabelRef, Reg, Variable

if TYPE_CHECKING:
    from rgpu_emu.lower.places import Places
    from rgpu_emu.ptx.module import Function


class Builder(Protocol):
    """The part of FunctionEmitter that a frame, the unit and the special registers use."""

    frame: Frame

    def op(self, text: str) -> str: ...

    def intrinsic(self, result: str, name: str, *arguments: str) -> str: ...

    def alloca(self, kind: str, *, align: int = 0, zero: bool = False) -> str: ...

    def reserve_local(self, size: int, align: int) -> int: ...

    def env(self, name: str) -> str: ...


class Frame:
    """One activation that is emitted into an LLVM function: the function's own or an inlined
    callee's.
    """

    def __init__(self, emitter: Builder, function: Function, number: int) -> None:
        self.emitter = emitter
        self.function = function
        self.body: Body = function.body()
        self.number = number
        self.exit = f"ret.f{number}"
        self.is_entry = function.kind == "entry"
        self.local_offsets: dict[int, int] = {}
        self.storage: dict[int, str] = {}
        self.param_offsets: dict[int, int] = {}
        self.param_copy = -1
        self.places: Places | None = None
        self._carry = ""
        self._slots: dict[int, str] = {}
        for variable in self.body.local:
            self.local_offsets[id(variable)] = emitter.reserve_local(variable.bytes, variable.align)
        self.params, self.param_bytes = function.prototype.params, 0
        places, self.param_bytes = layout(self.params)
        for variable, (offset, _) in zip(self.params, places, strict=True):
            self.param_offsets[id(variable)] = offset

    def slot(self, reg: Reg) -> str:
        """Returns the stack slot of a register."""
        name = self._slots.get(reg.index)
        if name is None:
            name = self._slots[reg.index] = self.emitter.alloca(reg.type.llvm, zero=True)
        return name

    def carry(self) -> str:
        """Returns the slot of the condition code register."""
        if not self._carry:
            self._carry = self.emitter.alloca("i1", zero=True)
        return self._carry

    def label(self, label: Label | LabelRef) -> str:
        target = label.target if isinstance(label, LabelRef) else label
        if target is None:
            raise PtxError("a branch without a target")
        return f"L{self.number}.{target.index}"

    def scratch(self, variable: Variable) -> str:
        """Returns the storage of a .param variable of a device function or a call sequence."""
        name = self.storage.get(id(variable))
        if name is None:
            kind = f"[{max(variable.bytes, 8)} x i8]"
            name = self.storage[id(variable)] = self.emitter.alloca(
                kind, align=max(variable.align, 8), zero=True
            )
        return name
