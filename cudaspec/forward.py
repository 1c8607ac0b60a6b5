"""Calls that need no thought: the parameters travel as they are, and so does the result.

The loader makes the command of such a call from its row. The generator writes the function of the
client and the handler of the worker (`gen/forward.py`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cudaspec import model
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudaspec.prototype import Parameter
    from cudaspec.rows import CallRow

DEVICE = "CUdevice"
_KINDS: Mapping[str, str] = {
    DEVICE: "i32",
    "int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "cuuint32_t": "u32",
    "size_t": "u64",
    "unsigned long long": "u64",
    "cuuint64_t": "u64",
    "CUdeviceptr": "address",
    "float": "f32",
}


def expand(
    calls: Mapping[str, CallRow], types: Iterable[model.Type]
) -> tuple[dict[str, CallRow], dict[str, list[model.Command]]]:
    """Returns the calls, with what each sends, and the commands made from them, by area."""
    kinds = _kinds(types)
    sent: dict[str, CallRow] = {}
    made: dict[str, list[model.Command]] = {}
    for name, call in calls.items():
        forward = call.row.forward
        if forward is not None:
            _check(call, forward)
            command = forward.command or command_name(call)
            sent[name] = replace(call, row=replace(call.row, sends=(command,)))
        if forward is not None and not forward.command:
            made.setdefault(call.area, []).append(_command(call, forward, kinds))
    return {**calls, **sent}, made


def command_name(call: CallRow) -> str:
    """Returns the name of the command that is made from a call."""
    return "rgpu" + call.name.removeprefix("cu")


def wire_name(parameter: str) -> str:
    """Returns the name of the field of a parameter: `numChannels` travels as `num_channels`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", parameter).lower()


def c_type(parameter: Parameter, arg: model.Arg | None) -> str:
    """Returns the C type of the value that travels: the parameter, or what it points to."""
    if not parameter.is_pointer:
        return parameter.type
    eight = isinstance(arg, (model.In, model.Out, model.InOut)) and arg.len == "8"
    return "cuuint64_t" if parameter.pointee == "void" and eight else parameter.pointee


def is_read(parameter: Parameter, arg: model.Arg | None) -> bool:
    """True if the value travels to the worker."""
    return not parameter.is_pointer or isinstance(arg, (model.In, model.InOut))


def is_written(arg: model.Arg | None) -> bool:
    """True if the value travels back."""
    return isinstance(arg, (model.Out, model.InOut))


def _check(call: CallRow, forward: model.Forward) -> None:
    sent = (model.Mode.CALL, model.Mode.PARKED, model.Mode.POSTED)
    sentence = ""
    if call.row.mode not in sent or call.row.twins:
        sentence = "only a call that sends one command and names no stream can be forwarded."
    elif bool(forward.opcode) == bool(forward.command):
        sentence = (
            "a forwarded call has the opcode of a new command, or the name of an existing one."
        )
    if sentence:
        raise SpecError(f"{call.name}: {sentence}")


def _kinds(types: Iterable[model.Type]) -> dict[str, str]:
    """Returns the kind of field of each C type that can travel as a number."""
    kinds = dict(_KINDS)
    for declared in types:
        if isinstance(declared, model.Enum):
            kinds[declared.name] = "i32"
        elif isinstance(declared, model.Alias) and declared.type in kinds:
            kinds.setdefault(declared.name, kinds[declared.type])
    return kinds


def _command(call: CallRow, forward: model.Forward, kinds: Mapping[str, str]) -> model.Command:
    request, reply = [], []
    for parameter in call.prototype.parameters:
        arg = call.row.args.get(parameter.name)
        kind = kinds.get(c_type(parameter, arg))
        if kind is None:
            raise SpecError(
                f"{call.name}: '{parameter.type} {parameter.name}' cannot travel as a number, "
                "so the call cannot be forwarded."
            )
        field = f"{kind} {wire_name(parameter.name)}"
        if is_read(parameter, arg):
            request.append(field)
        if is_written(arg):
            reply.append(field)
    return model.Command(
        forward.opcode,
        command_name(call),
        call.row.mode,
        request=tuple(request),
        reply=tuple(reply),
        charges=forward.charges,
    )
