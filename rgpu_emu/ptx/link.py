"""A program: one or several modules, with `.extern` names resolved between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_common.wire.compiler import GlobalScope, Relocation, RelocationKind
from rgpu_emu.ptx.check import check_instructions
from rgpu_emu.ptx.errors import (
    CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_NOT_FOUND,
    PtxError,
    UndefinedError,
    unsupported,
)
from rgpu_emu.ptx.module import Function, Module, parse_module
from rgpu_emu.ptx.refusals import find_refusals, refuse_names, refuse_whole
from rgpu_emu.ptx.runtime import OWN_FUNCTIONS, OWN_TEXT, RUNTIME_FUNCTIONS

if TYPE_CHECKING:
    from rgpu_emu.ptx.operands import Variable


@dataclass(eq=False)
class Program:
    """Linked modules.

    Attributes:
        globals: module variables in .global and .const, by ordinal.
        tokens: device functions whose address is taken, by ordinal.
        refusals: entries that use something that the emulated device lacks -> the error; the other
            entries run.
    """

    modules: list[Module]
    globals: list[Variable] = field(default_factory=list)
    tokens: list[Function] = field(default_factory=list)
    refusals: dict[str, PtxError] = field(default_factory=dict)
    _visible_functions: dict[str, Function] = field(default_factory=dict)
    _visible_variables: dict[str, Variable] = field(default_factory=dict)
    _ordinals: dict[int, int] = field(default_factory=dict)
    _token_of: dict[Function, int] = field(default_factory=dict)
    _homes: dict[int, Module] = field(default_factory=dict)

    @property
    def entries(self) -> dict[str, Function]:
        """The entries by name, in the order of the text."""
        return {
            n: f
            for m in self.modules
            for n, f in m.functions.items()
            if f.kind == "entry" and f.defined
        }

    def entry(self, name: str) -> Function:
        """Returns the entry of that name; PtxError 500 if there is none."""
        found = self.entries.get(name)
        if found is None:
            raise PtxError(f"the module has no entry '{name}'", result=CUDA_ERROR_NOT_FOUND)
        return found

    def function(self, name: str, module: Module) -> Function | None:
        """Returns the defined function to which `name` refers inside `module`."""
        local = module.functions.get(name)
        if local is not None and local.defined:
            return local
        return self._visible_functions.get(name)

    def variable(self, name: str, module: Module) -> Variable | None:
        """Returns the variable to which `name` refers inside `module`."""
        local = module.variables.get(name)
        if local is not None and not local.extern and not local.weak:
            return local
        return self._visible_variables.get(name, local)

    def ordinal(self, variable: Variable) -> int:
        return self._ordinals[id(variable)]

    def scope(self, variable: Variable) -> GlobalScope:
        """Returns who may name a variable."""
        if variable.visible:
            return GlobalScope.PROGRAM
        local = self._homes[id(variable)].variables.get(variable.name)
        return GlobalScope.MODULE if local is variable else GlobalScope.FUNCTION

    def relocations(self, variable: Variable) -> list[Relocation]:
        """Returns the addresses in the initial value."""
        found = []
        module = self._homes.get(id(variable), self.modules[0])
        for offset, symbol, addend in variable.relocations:
            target = self.variable(symbol, module)
            if target is not None:
                if target.space not in ("global", "const"):
                    raise unsupported(
                        f"the address of '{symbol}'",
                        "in an initial value is neither .global nor .const",
                    )
                kind = RelocationKind.GLOBAL_ADDRESS
                found.append(Relocation(offset, kind, self.ordinal(target), addend))
                continue
            function = self.function(symbol, module)
            if function is None:
                raise PtxError(f"{symbol} is neither declared nor defined")
            kind = RelocationKind.FUNCTION_TOKEN
            found.append(Relocation(offset, kind, self.token(function), addend))
        return found

    def token(self, function: Function) -> int:
        """Returns the ordinal of a function whose address is taken."""
        found = self._token_of.get(function)
        if found is None:
            raise unsupported(
                f"the address of '{function.name}'",
                "cannot be taken in so large a module, in which nothing calls by pointer",
            )
        return found

    def take_address(self, function: Function) -> None:
        """Gives the function an ordinal if it has none."""
        if function not in self._token_of:
            self._token_of[function] = len(self.tokens)
            self.tokens.append(function)


def link(sources: list[str]) -> Program:
    """Parses and links modules.

    Raises:
        PtxError: 209 without any input; 218 for wrong PTX and for names that are not defined or
            defined twice; 801, with the instruction's name, if no entry is left that can run here.
    """
    if not any(source.strip("\0 \n\t\r") for source in sources):
        raise PtxError("the image holds no PTX text", result=CUDA_ERROR_NO_BINARY_FOR_GPU)
    program = Program([parse_module(source) for source in sources])
    for module in program.modules:
        check_instructions(module)
        _export(program, module)
    _add_runtime(program)
    for module in program.modules:
        refuse_names(program, module)
    _number_variables(program)
    lazy = any(module.large for module in program.modules)
    for module in program.modules:
        _take_addresses(program, module, lazy=lazy)
    program.refusals = find_refusals(program)
    refuse_whole(program, program.refusals)
    return program


def _add_runtime(program: Program) -> None:
    """Adds our functions of the device runtime if a module declares one that no module defines."""
    named = {name for module in program.modules for name in OWN_FUNCTIONS & set(module.functions)}
    if any(program.function(name, program.modules[0]) is None for name in named):
        module = parse_module(OWN_TEXT)
        for name in OWN_FUNCTIONS & set(program._visible_functions):
            del module.functions[name]
        program.modules.append(module)
        _export(program, module)


def _export(program: Program, module: Module) -> None:
    for name, function in module.functions.items():
        if function.defined and (function.visible or function.kind == "entry"):
            old = program._visible_functions.get(name)
            if old is not None and not (old.weak or function.weak):
                raise PtxError(f"the function {name} is defined in two inputs")
            if old is None or old.weak:
                program._visible_functions[name] = function
    for name, variable in module.variables.items():
        if not variable.extern and variable.visible:
            other = program._visible_variables.get(name)
            if other is not None and not (other.weak or variable.weak):
                raise PtxError(f"the variable {name} is defined in two inputs")
            if other is None or other.weak or variable.initial:
                program._visible_variables[name] = variable


def _number_variables(program: Program) -> None:
    homes = {id(v): m for m in reversed(program.modules) for v in m.variables.values()}

    def add(variable: Variable, module: Module) -> None:
        if id(variable) not in program._ordinals:
            program._homes[id(variable)] = homes.get(id(variable), module)
            program._ordinals[id(variable)] = len(program.globals)
            program.globals.append(variable)

    for module in program.modules:
        for name, own in module.variables.items():
            variable = program.variable(name, module)
            if variable is None or (variable.extern and variable.space != "shared"):
                said = f"the variable {own.name} is declared .extern and not defined"
                raise _undefined(program, module, own.name, said)
            if variable.space in ("global", "const"):
                add(variable, module)
        for function in module.functions.values():
            if _runs(function) and _worth_parsing(module, function):
                for variable in function.body().globals:
                    add(variable, module)


def _undefined(program: Program, module: Module, symbol: str, said: str) -> UndefinedError:
    return UndefinedError(said, symbol, program.modules.index(module))


def _runs(function: Function) -> bool:
    return function.defined and function.refused is None


def _worth_parsing(module: Module, function: Function) -> bool:
    """True if the body may declare variables. Bodies of very large modules are searched as text,
    not parsed.
    """
    if not module.large:
        return True
    text = function.text()
    return "\t.global" in text or "\t.const" in text or " .global " in text or " .const " in text


def _take_addresses(program: Program, module: Module, *, lazy: bool) -> None:
    """Fills program.tokens, and checks that every name is defined."""

    def take(name: str) -> None:
        function = program.function(name, module)
        if function is None and name in module.functions:
            said = f"the function {name}, whose address is taken, is not defined in any input"
            raise _undefined(program, module, name, said)
        if function is None:
            raise PtxError(f"{name} is neither declared nor defined")
        if function.kind == "entry":
            raise unsupported(
                f"the address of entry '{name}'",
                "cannot be taken: nothing launches from the emulated device",
            )
        program.take_address(function)

    by_pointer = lazy and ".callprototype" in module.text
    for variable in module.variables.values():
        for _, symbol, _ in variable.relocations:
            if program.variable(symbol, module) is None:
                take(symbol)
    for function in module.functions.values():
        if not function.defined or (function.refused and not lazy):
            continue
        if lazy:
            if by_pointer and function.kind == "func":
                take(function.name)
            continue
        for symbol in sorted(function.symbols()):
            if program.variable(symbol, module) is None:
                take(symbol)
        for callee in sorted(function.calls()):
            if program.function(callee, module) is None and callee not in RUNTIME_FUNCTIONS:
                said = f"{function.name} calls {callee}, which is not defined in any input"
                raise _undefined(program, module, callee, said)
