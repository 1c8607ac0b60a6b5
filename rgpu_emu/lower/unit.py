"""One LLVM module: an entry with all functions that it reaches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi, fplib, special
from rgpu_emu.lower.analyse import (
    MAX_LOCAL_BYTES,
    RECURSION_BYTES,
    STACK,
    Reach,
    callees,
    facts_of,
    reach,
    shared_layout,
)
from rgpu_emu.lower.callgraph import heaviest
from rgpu_emu.ptx.declare import opaque_refusal
from rgpu_emu.ptx.errors import PtxError, unsupported

if TYPE_CHECKING:
    from rgpu_emu.lower.frame import Builder
    from rgpu_emu.ptx.link import Program
    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.operands import Prototype, Sym, Variable

MAX_INLINED: Final = 200_000
_CALLED: Final = re.compile(r"@(rgpu\.[\w.]+)\(")
_DECLARED: Final = re.compile(r"@(llvm\.[\w.]+)\(")


_METADATA: Final = (
    "!0 = !{}",
    '!1 = !{!"branch_weights", i32 1, i32 1048576}',
    "!2 = distinct !{}",
    "!3 = distinct !{!3, !4}",
    '!4 = !{!"llvm.loop.parallel_accesses", !2}',
)


class Unit:
    """Collects functions, helpers and declarations while an entry is emitted."""

    def __init__(self, program: Program, entry: Function) -> None:
        self.program = program
        self.reach: Reach = reach(program, entry)
        self.shared, self.static_shared = shared_layout(program, self.reach)
        self.texts: list[str] = []
        self.queue: list[Function] = []
        self.coroutine = bool(self.reach.suspends & {entry})
        self.access = "" if self.coroutine or self.reach.shares else ", !llvm.access.group !2"
        self._declarations: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._helpers: dict[str, str] = {}
        self.local_frames: dict[Function, int] = {}
        self._signatures: dict[str, int] = {}
        self.inlined = 0

    @property
    def by_pointer(self) -> dict[int, Function]:
        """The functions that this object defines for calls by pointer, by ordinal."""
        if not self.reach.indirect:
            return {}
        tokens = enumerate(self.program.tokens)
        return {n: function for n, function in tokens if n not in self.reach.switched}

    def count_inlined(self, instructions: int = 1) -> None:
        """Counts the instructions that an inlined call adds to its caller. Functions that suspend
        may call each other twice each, so the number can grow exponentially.
        """
        self.inlined += instructions
        if self.inlined > MAX_INLINED:
            raise unsupported(
                f"the entry '{self.reach.entry.name}'",
                f"has more than {MAX_INLINED} instructions of functions that hold barriers, warp "
                "operations, exit or spin loops, each in the place of its call",
            )

    def allocates(self, function: Function) -> bool:
        """Returns True if a device function may allocate memory on the stack."""
        return function is not self.reach.entry and facts_of(function).holds(STACK)

    # --- names ------------------------------------------------------------------------------------
    def declare(self, result: str, name: str, types: list[str]) -> None:
        self._declarations[name] = f"declare {result} @{name}({', '.join(types)})"

    def library(self, name: str) -> str:
        """Adds an fplib helper and the helpers that it calls."""
        if name not in self._helpers:
            text = fplib.helper(name)
            self._helpers[name] = text
            for called in sorted(set(_CALLED.findall(text)) - {name}):
                self.library(called)
        return f"@{name}"

    def function_name(self, function: Function) -> str:
        """Returns the IR name of a device function, and queues the function to be emitted."""
        name = self._names.get(id(function))
        if name is None:
            name = self._names[id(function)] = f"@fn.{len(self._names)}"
            self.queue.append(function)
        return name

    def signature_number(self, prototype: Prototype) -> int:
        """Returns a number that differs between prototypes whose argument blocks differ.

        Tokens are only called from the object that defines their functions, so no other object
        needs to know the number.
        """
        return self._signatures.setdefault(prototype.signature(), len(self._signatures) + 1)

    # --- values -----------------------------------------------------------------------------------
    def special(self, e: Builder, name: str) -> tuple[str, str]:
        return special.special(e, name)

    def address_of(self, e: Builder, symbol: Sym) -> str:
        """Returns the symbol's address as an i64, in the symbol's own state space."""
        variable = symbol.variable or self.program.variable(symbol.name, e.frame.function.module)
        if variable is None:
            return self._token(e, symbol)
        if variable.space == "shared":
            return str(self.shared[id(variable)] + symbol.offset)
        if variable.space == "local":
            return e.op(f"add i64 %lsp, {e.frame.local_offsets[id(variable)] + symbol.offset}")
        if variable.space == "param":
            return self._param_address(e, variable, symbol.offset)
        base = self.global_base(e, variable)
        return e.op(f"add i64 {base}, {symbol.offset}") if symbol.offset else base

    def global_base(self, e: Builder, variable: Variable) -> str:
        """Returns the device address of a module variable."""
        place = e.op(
            f"getelementptr i64, ptr {e.env('globals')}, i64 {self.program.ordinal(variable)}"
        )
        return e.op(f"load i64, ptr {place}, !invariant.load !0")

    def const_test(self) -> str:
        """Returns the function that tests whether an address is in a .const variable. It is emitted
        once.
        """
        name = "rgpu.const"
        if name not in self._helpers:
            lines, found = [], "false"
            for n, variable in enumerate(self.program.globals):
                if variable.space == "const":
                    lines += [
                        f"%p{n} = getelementptr i64, ptr %globals, i64 {n}",
                        f"%b{n} = load i64, ptr %p{n}, !invariant.load !0",
                        f"%o{n} = sub i64 %address, %b{n}",
                        f"%i{n} = icmp ult i64 %o{n}, {variable.bytes}",
                        f"%r{n} = or i1 {found}, %i{n}",
                    ]
                    found = f"%r{n}"
            body = "\n".join([*lines, f"ret i1 {found}"])
            header = f"define internal i1 @{name}(ptr %globals, i64 %address) nounwind"
            self._helpers[name] = f"{header} {{\n{body}\n}}"
        return f"@{name}"

    def _token(self, e: Builder, symbol: Sym) -> str:
        module = e.frame.function.module
        if symbol.name in module.opaque:
            raise opaque_refusal(symbol.name, module.opaque[symbol.name])
        function = self.program.function(symbol.name, module)
        if function is None or symbol.offset:
            raise PtxError(f"{symbol.name} is neither declared nor defined")
        return str(abi.FUNCTION_TOKEN | self.program.token(function))

    def _param_address(self, e: Builder, variable: Variable, offset: int) -> str:
        if not e.frame.is_entry or id(variable) not in e.frame.param_offsets:
            raise unsupported(
                f"the address of '{variable.name}'",
                "cannot be taken: it is not a parameter of an entry",
            )
        return str(e.frame.param_offsets[id(variable)] + offset)

    # --- text -------------------------------------------------------------------------------------
    def local_bytes(self) -> int:
        """Returns how many bytes of the local window a thread of this entry needs."""
        edges = {f: callees(self.program, f) for f in self.reach.functions}
        need = heaviest(edges, self.local_frames, self.reach.entry)
        need += RECURSION_BYTES if self.reach.recursive else 0
        if need > MAX_LOCAL_BYTES:
            raise PtxError(
                f"the entry {self.reach.entry.name} uses {need} bytes of local memory, "
                f"more than {MAX_LOCAL_BYTES}"
            )
        return (need + 15) // 16 * 16

    def text(self) -> str:
        """Returns the whole module as IR text."""
        body = "\n".join([*self.texts, *self._helpers.values()])
        for name in sorted(set(_DECLARED.findall(body)) - self._declarations.keys()):
            if not name.startswith("llvm.coro."):
                self._declarations[name] = fplib.declaration(name)
        return "\n".join([body, *self._declarations.values(), *_METADATA, ""])
