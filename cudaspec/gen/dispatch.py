"""Generates dispatch.gen.h and .cc: from an opcode to its handler in the executor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.source import header, source

if TYPE_CHECKING:
    from cudaspec.rows import Spec

_DISPATCH = """
// Decodes the head, runs the handler and appends the reply's fields.  kMalformed: the head does not
// decode or the opcode is unknown; then nothing has happened.
CUresult Dispatch(Executor& executor, const Command& command, wire::Writer* reply);
"""
_HANDLE = """
namespace {

template <typename Op>
CUresult Handle(Executor& executor, const Command& command, wire::Writer* out) {
  typename Op::Request request;
  wire::Reader reader(command.head.data, command.head.size);
  if (!Get(reader, &request)) return kMalformed;
  typename Op::Reply reply;
  const CUresult result = Run(executor, command, request, &reply);
  if constexpr (Op::kIsCall) Put(*out, reply);
  return result;
}

}  // namespace
"""


def dispatch_h(spec: Spec) -> str:
    return header(
        [
            "namespace rgpu::exec {",
            "",
            "// The handlers, written by hand in rgpu_server/executor/calls.",
            *(
                f"CUresult Run(Executor& executor, const Command& command, "
                f"const {name}_Request& request, {name}_Reply* reply);"
                for name in spec.commands
            ),
            *_DISPATCH.splitlines(),
            "",
            "}  // namespace rgpu::exec",
        ],
        ['"gen/codec.gen.h"', '"gen/cuda_abi.gen.h"', '"rgpu_server/executor/command.h"'],
    )


def dispatch_cc(spec: Spec) -> str:
    cases = (
        line
        for name in spec.commands
        for line in (
            f"    case Opcode::{name}:",
            f"      return Handle<op_{name}>(executor, command, reply);",
        )
    )
    return source(
        [
            "namespace rgpu::exec {",
            *_HANDLE.splitlines()[1:],
            "",
            "CUresult Dispatch(Executor& executor, const Command& command, wire::Writer* reply) {",
            "  switch (static_cast<Opcode>(command.header.opcode)) {",
            *cases,
            "  }",
            "  return kMalformed;",
            "}",
            "",
            "}  // namespace rgpu::exec",
        ],
        ['"gen/dispatch.gen.h"'],
    )
