"""Generates both ends of the calls that need no thought: shim_forwards.gen.cc for the client, and
exec_forwards.gen.cc for the worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudaspec import model
from cudaspec.forward import DEVICE, c_type, is_read, is_written, wire_name
from cudaspec.gen.source import source

if TYPE_CHECKING:
    from cudaspec.rows import CallRow, CommandRow, Spec

_FAILED = "if (status != CUDA_SUCCESS) return status;"


def shim_forwards_cc(spec: Spec) -> str:
    body = ["namespace rgpu::shim {", ""]
    for call in _forwarded(spec):
        body += [*_function(call, spec.commands[call.row.sends[0]]), ""]
    return source(
        [*body, "}  // namespace rgpu::shim"],
        ['"gen/codec.gen.h"', '"gen/shim_calls.gen.h"', '"rgpu_client/shim/calls/here.h"'],
    )


def exec_forwards_cc(spec: Spec) -> str:
    body = ["namespace rgpu::exec {", ""]
    for call in _forwarded(spec):
        if call.makes_command:
            body += [*_handler(call), ""]
    return source(
        [*body, "}  // namespace rgpu::exec"],
        ['"gen/dispatch.gen.h"', '"rgpu_server/executor/executor.h"'],
    )


def _forwarded(spec: Spec) -> list[CallRow]:
    return [call for call in spec.calls.values() if call.row.forward]


def _function(call: CallRow, command: CommandRow) -> list[str]:
    name = command.name
    needs_context = call.row.forward is not None and call.row.forward.context
    here = [
        "  Here here;",
        "  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;",
    ]
    sent, received = [], []
    for parameter in call.prototype.parameters:
        arg = call.row.args.get(parameter.name)
        kind = c_type(parameter, arg)
        at = f"*{parameter.name}"
        if parameter.pointee == "void":
            at = f"*static_cast<{kind}*>({parameter.name})"
        if is_read(parameter, arg):
            value = _travels(parameter.name, kind) if not parameter.is_pointer else at
            sent.append(f"  request.{wire_name(parameter.name)} = {value};")
        if is_written(arg):
            written = f"{at} = static_cast<{kind}>(reply.{wire_name(parameter.name)});"
            null_is_legal = isinstance(arg, model.Out) and arg.nullable
            received.append(
                f"  if ({parameter.name} != nullptr) {written}" if null_is_legal else f"  {written}"
            )
    send = f"here.channel().Call<op_{name}>(here.issuer(), request, &reply)"
    if not command.is_call:
        send = f"here.channel().Post<op_{name}>(here.issuer(), request)"
    answer = [f"  return {send};"]
    if received:
        answer = [f"  const CUresult status = {send};", f"  {_FAILED}", *received]
        answer.append("  return CUDA_SUCCESS;")
    return [
        f"{call.prototype.declaration} {{",
        *(here if needs_context else [f"  const Here here = {_without_context(call)};"]),
        f"  {name}_Request request;",
        *sent,
        *([f"  {name}_Reply reply;"] if command.is_call else []),
        *answer,
        "}",
    ]


def _without_context(call: CallRow) -> str:
    """Returns the expression for the surroundings of a call that needs no context."""
    for parameter in call.prototype.parameters:
        if c_type(parameter, call.row.args.get(parameter.name)) == DEVICE:
            return f"DeviceHere({parameter.name})"
    return "AnyHere()"


def _travels(name: str, kind: str) -> str:
    """Returns the number that travels: the server numbers its devices by itself."""
    if kind == DEVICE:
        return f"here.session->devices().Find({name})->server_ordinal"
    return f"static_cast<decltype(request.{wire_name(name)})>({name})"


@dataclass
class _Driven:
    """The parts of a handler that depend on the parameters."""

    arguments: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)


def _driven(call: CallRow) -> _Driven:
    parts = _Driven()
    for parameter in call.prototype.parameters:
        arg = call.row.args.get(parameter.name)
        kind, name = c_type(parameter, arg), wire_name(parameter.name)
        number = f"static_cast<{kind}>(request.{name})"
        if parameter.is_pointer:
            start = f" = {number}" if is_read(parameter, arg) else "{}"
            parts.variables.append(f"  {kind} {parameter.name}{start};")
            parts.arguments.append(f"&{parameter.name}")
        elif kind == DEVICE:
            # A session has one device, and the driver may know it by another number.
            parts.checks.append(f"  if (request.{name} != 0) return CUDA_ERROR_INVALID_DEVICE;")
            parts.arguments.append("executor.device()")
        else:
            parts.arguments.append(number)
        if is_written(arg):
            value = f"static_cast<decltype(reply->{name})>({parameter.name})"
            parts.received.append(f"  reply->{name} = {value};")
    return parts


def _handler(call: CallRow) -> list[str]:
    name = call.row.sends[0]
    enter = [
        "  std::shared_ptr<Context> context;",
        "  if (const CUresult status = executor.Enter(command, &context);",
        "      status != CUDA_SUCCESS) {",
        "    return status;",
        "  }",
    ]
    needs_context = call.row.forward is not None and call.row.forward.context
    function, parts = f"executor.driver()->{call.name}", _driven(call)
    return [
        f"CUresult Run(Executor& executor, [[maybe_unused]] const Command& command, "
        f"[[maybe_unused]] const {name}_Request& request, "
        f"[[maybe_unused]] {name}_Reply* reply) {{",
        f"  if ({function} == nullptr) return CUDA_ERROR_NOT_SUPPORTED;",
        *(enter if needs_context else []),
        *parts.checks,
        *parts.variables,
        f"  const CUresult result = {function}({', '.join(parts.arguments)});",
        *parts.received,
        "  return result;",
        "}",
    ]
