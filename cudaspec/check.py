"""The rules of the specification. Each failure is a sentence that names the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec import check_command, datacheck, length, lock, model
from cudaspec.forward import wire_name
from cudaspec.model import Mode
from cudaspec.prototype import Parameter, field_names, type_names
from cudaspec.rows import CallRow, Spec, SpecError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

_NOT_IMPLEMENTED = (Mode.UNSUPPORTED, Mode.PLANNED)


def check(spec: Spec, locked: Mapping[int, tuple[str, int]] | None = None) -> None:
    """Raises SpecError for the first rule that the specification breaks.

    locked: the result of lock.read; None: do not check the lock.
    """
    check_types(spec)
    for command in spec.commands.values():
        check_command.check(command)
    for call in spec.calls.values():
        check_call(spec, call)
    check_lists(spec)
    if locked is not None:
        lock.check(spec, locked)


def check_package(spec: Spec) -> None:
    """Checks the specification of this package: `check`, its data modules and its lock."""
    datacheck.check_package()
    check(spec, lock.read())


# Calls.


def check_call(spec: Spec, call: CallRow) -> None:
    known = {t.name for t in spec.types} | {"CUresult"}
    for parameter in call.prototype.parameters:
        if sentence := _parameter(call, parameter, known, spec.named_numbers):
            raise SpecError(f"{call.name}: {sentence}")
    for sentence in (
        _arguments(call),
        _class(spec, call),
        _forward(spec, call),
        _sends(spec, call),
        _alias(spec, call),
        _symbol(spec, call),
    ):
        if sentence:
            raise SpecError(f"{call.name}: {sentence}")


def _parameter(
    call: CallRow, parameter: Parameter, known: set[str], numbers: Container[str]
) -> str:
    for name in type_names(parameter.type):
        if name not in known:
            return f"the type '{name}' of '{parameter.name}' is not in types/."
    arg = call.row.args.get(parameter.name)
    if not parameter.is_pointer:
        return _number(parameter, arg, numbers)
    if isinstance(arg, model.Number):
        return f"'{parameter.name}' is a pointer, so it has a direction and not limits."
    if arg is None:
        return (
            f"the pointer '{parameter.name}' has no direction: "
            "say In, Out, InOut, Value, Image or Layout."
        )
    constant = parameter.type.startswith("const ") and parameter.type.count("*") == 1
    if constant and isinstance(arg, (model.Out, model.InOut)):
        return f"'{parameter.name}' points to const, so it cannot be written."
    return _length(call, parameter, arg)


def _number(parameter: Parameter, arg: model.Arg | None, numbers: Container[str]) -> str:
    if arg is not None and not isinstance(arg, model.Number):
        return f"'{parameter.name}' is not a pointer, so it must have no direction."
    named: tuple[int | str | None, ...] = ()
    if isinstance(arg, model.Flags):
        named = arg.bits
    if isinstance(arg, model.Range):
        named = (arg.least, arg.most)
        if named == (None, None):
            return f"the range of '{parameter.name}' has no limit."
    for name in named:
        if isinstance(name, str) and name not in numbers:
            return f"the limit '{name}' of '{parameter.name}' is not in types/."
    return ""


def _length(call: CallRow, parameter: Parameter, arg: model.Arg) -> str:
    if not isinstance(arg, (model.In, model.Out, model.InOut)):
        return ""
    text = not isinstance(arg, model.InOut) and arg.text
    if isinstance(arg, model.In) and arg.empty and not (arg.len or arg.count):
        return f"'{parameter.name}' may be empty, so it needs a length."
    if parameter.pointee == "void" and arg.len is None and not text:
        return f"the void pointer '{parameter.name}' needs a length in bytes."
    others = {p.name: p for p in call.prototype.parameters}
    for expression in (arg.len, arg.count):
        if expression is None:
            continue
        try:
            names = length.names(expression)
        except ValueError as error:
            return str(error)
        for name in sorted(names):
            reads = f"the length '{expression}' of '{parameter.name}' reads '{name}', which is"
            if name not in others:
                return f"{reads} not a parameter."
            if others[name].is_pointer:
                return f"{reads} a pointer."
    return ""


def _arguments(call: CallRow) -> str:
    names = {p.name for p in call.prototype.parameters}
    for name in call.row.args:
        if name not in names:
            return f"'{name}' has a direction but is not a parameter."
    return ""


def _class(spec: Spec, call: CallRow) -> str:
    row = call.row
    if not isinstance(row.mode, Mode):
        return f"its class is one of Mode, not {row.mode!r}."
    if row.mode in _NOT_IMPLEMENTED:
        if not row.reason:
            return "a call that is not implemented must say why (reason)."
        if row.error not in {e.name for e in spec.errors}:
            return f"its error '{row.error}' is not a CUresult."
        return "a call that is not implemented must send nothing." if row.sends else ""
    if row.reason or row.explains:
        return "only a call that is not implemented has a reason."
    if row.mode is Mode.LOCAL:
        if row.sends:
            return f"a local call sends nothing, not '{row.sends[0]}'."
        return "" if row.state else "a local call must say which table answers it (state)."
    return (
        "" if row.sends or row.state else "it is not local, so it must say which commands it sends."
    )


def _forward(spec: Spec, call: CallRow) -> str:
    if call.row.forward is None:
        return ""
    for name, arg in call.row.args.items():
        # The generated code writes through an output only if it is not null.
        unchecked = getattr(arg, "nullable", False) and not isinstance(arg, model.Out)
        if getattr(arg, "late", "") or unchecked:
            return f"it is forwarded, so the guard must check '{name}': not late, not nullable."
    command = spec.commands.get(call.row.sends[0])
    if command is None:
        return ""  # _sends says it
    names = {wire_name(p.name) for p in call.prototype.parameters}
    for field in (*command.request, *command.reply):
        if field.name not in names:
            return f"the field '{field.name}' of {command.name} is not a parameter."
    return ""


def _sends(spec: Spec, call: CallRow) -> str:
    for name in call.row.sends:
        command = spec.commands.get(name)
        if command is None:
            return f"it sends '{name}', which is not a command."
        if call.row.mode is Mode.POSTED and command.is_call:
            return f"it is posted, but '{name}' waits for a reply."
    reporting = any(spec.commands[name].row.reports for name in call.row.sends)
    if call.row.reports and not reporting:
        return "it cannot report an earlier error: none of the commands that it sends does."
    return ""


def _alias(spec: Spec, call: CallRow) -> str:
    if not call.row.alias:
        return ""
    body = spec.calls.get(call.row.alias)
    if body is None or body.row.alias or not body.implemented:
        return f"its alias '{call.row.alias}' is not an implemented call."
    if [p.type for p in body.prototype.parameters] != [p.type for p in call.prototype.parameters]:
        return f"its alias '{call.row.alias}' has other parameters."
    return ""


def _symbol(spec: Spec, call: CallRow) -> str:
    if not spec.symbols:
        return ""
    if call.name not in spec.exported:
        return "types/symbols.py has no such symbol."
    twins = [s for s in ("_ptds", "_ptsz") if call.name + s in spec.exported]
    if twins != ([call.row.twins] if call.row.twins else []):
        return f"types/symbols.py has the twins {twins}, the row has '{call.row.twins}'."
    return ""


# Types and lists.


def check_types(spec: Spec) -> None:
    seen: set[str] = {"CUresult"}
    for declared in spec.types:
        if declared.name in seen:
            raise SpecError(f"{declared.name}: there are two types of this name.")
        seen.add(declared.name)
        if isinstance(declared, model.Struct):
            for text in declared.fields:
                field_names(text)
    values: dict[int, str] = {}
    for error in spec.errors:
        if error.value in values:
            raise SpecError(f"{error.name}: the value {error.value} is {values[error.value]}'s.")
        values[error.value] = error.name
    for name, times in spec.enumerators.items():
        if times > 1:
            raise SpecError(f"{name}: there are two enumerators of this name.")


def _must_not_be_null(arg: model.Arg | None) -> bool:
    match arg:
        case model.In(nullable=False, late="") | model.Out(nullable=False, late=""):
            return True
        case model.InOut(nullable=False) | model.Layout(nullable=False, late=""):
            return True
        case _:
            return False


def check_lists(spec: Spec) -> None:
    declared = {c.name for c in spec.declared}
    lists = {"types/driver.py": spec.driver, "types/emulated.py": sorted(spec.emulated)}
    for source, functions in lists.items():
        for name in functions:
            if name not in spec.calls:
                raise SpecError(f"{source}: '{name}' is not a call of this specification.")
            if name not in declared:
                raise SpecError(f"{source}: '{name}' has a type that is only named (Opaque).")
    for name, pointers in spec.emulated_nullable.items():
        args = spec.calls[name].row.args if name in spec.emulated else {}
        for pointer in pointers:
            if not _must_not_be_null(args.get(pointer)):
                raise SpecError(
                    f"types/emulated.py: '{name}' has no pointer '{pointer}' that must not be null."
                )
    for name in sorted(spec.driver_optional - set(spec.driver)):
        raise SpecError(f"types/driver.py: '{name}' is optional but not a function of the table.")
    for call in spec.calls.values():
        if call.implemented and call.name not in declared:
            raise SpecError(f"{call.name}: one of its types is only named (Opaque).")
    bases = {symbol for names in spec.symbols for _, symbol in names.versions}
    for names in spec.symbols:
        for twin in names.twins:
            if twin[:-5] not in bases:
                raise SpecError(f"types/symbols.py: '{twin}' is not the twin of any symbol.")
