"""Calls: direct, inlined, by pointer, and to the runtime (vprintf, malloc, free, __assertfail)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi, stack
from rgpu_emu.lower.emit import FRAME_SIZE
from rgpu_emu.lower.registry import lowers
from rgpu_emu.ptx.errors import (
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_LAUNCH_FAILED,
    PtxError,
    unsupported,
)
from rgpu_emu.ptx.operands import Call, Operand, Reg, Sink, Sym, Variable

if TYPE_CHECKING:
    from rgpu_emu.lower.emit import FunctionEmitter
    from rgpu_emu.ptx.module import Function
    from rgpu_emu.ptx.operands import Instr, LabelRef, Prototype

SCALARS: Final = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
# name: (result type, parameter types)
RUNTIME: Final = {
    "vprintf": ("i32", ("i64", "i64")),
    "malloc": ("i64", ("i64",)),
    "free": ("", ("i64",)),
    "assertfail": ("", ("i64", "i64", "i32", "i64", "i64")),
}
INLINE_DEPTH: Final = 64
_LARGE: Final = "a large argument or result must be a .param variable"


def passed(variable: Variable) -> str:
    """Returns the IR type in which a parameter is passed: an integer for scalars, `ptr` for
    anything larger.
    """
    return SCALARS.get(variable.bytes, "ptr")


def returned(prototype: Prototype) -> str:
    """Returns the IR result type: an integer or void. Larger results are written through a
    pointer.
    """
    if len(prototype.results) > 1:
        raise unsupported(
            "a function with several results", "is not supported by the emulated device"
        )
    return SCALARS.get(prototype.results[0].bytes, "void") if prototype.results else "void"


@lowers("call")
def call(e: FunctionEmitter, i: Instr) -> None:
    found = i.operands[0]
    if not isinstance(found, Call):
        raise PtxError("call has no operands")
    if isinstance(found.callee, Reg):
        _indirect(e, found, found.callee)
        return
    function = e.unit.program.function(found.callee, e.frame.function.module)
    if function is None:
        _runtime(e, found)
        return
    _check_fit(found, function.prototype, found.callee, by_name=True)
    if function in e.unit.reach.inline:
        _inline(e, found, function)
        return
    arguments = [
        _argument(e, o, v) for o, v in zip(found.arguments, function.prototype.params, strict=True)
    ]
    _finish(e, found, function.prototype, e.unit.function_name(function), arguments)


def _check_fit(found: Call, prototype: Prototype, name: str, *, by_name: bool) -> None:
    """Checks that the operands of a call fit the function's parameters and results.

    In a call by name only one side may have a result: one input may declare the function with a
    result while another defines it without, or the reverse. NVIDIA's linker accepts both.
    """
    for have, want in ((found.arguments, prototype.params), (found.results, prototype.results)):
        if len(have) != len(want):
            if by_name and have is found.results and not (have and want):
                continue
            raise PtxError(f"the call of {name} does not fit its parameters")
        for operand, variable in zip(have, want, strict=True):
            size = _size(operand)
            if size and size != variable.bytes:
                raise PtxError(
                    f"the call of {name} passes {size} bytes where {variable.bytes} are declared"
                )


def _size(operand: Operand) -> int:
    if isinstance(operand, Sym):
        if operand.variable is None or operand.variable.space != "param" or operand.offset:
            raise PtxError(
                f"{operand.name} cannot be passed to a function: it is not a .param variable"
            )
        return operand.variable.bytes
    return max(operand.type.bits // 8, 1) if isinstance(operand, Reg) else 0


def _scalar(variable: Variable) -> str:
    """Returns `passed` for a parameter whose argument is a register or literal."""
    kind = passed(variable)
    if kind == "ptr":
        raise PtxError(_LARGE)
    return kind


def _storage(e: FunctionEmitter, operand: Operand) -> str:
    if not isinstance(operand, Sym) or operand.variable is None:
        raise PtxError(_LARGE)
    return e.frame.scratch(operand.variable)


def _argument(e: FunctionEmitter, operand: Operand, variable: Variable) -> str:
    """Returns `type value` of one argument."""
    kind = passed(variable)
    if kind == "ptr":
        return f"ptr {_storage(e, operand)}"
    if isinstance(operand, Sym):
        return f"{kind} {e.op(f'load {kind}, ptr {_storage(e, operand)}')}"
    return f"{kind} {e.read(operand, kind)}"


def _finish(
    e: FunctionEmitter, found: Call, prototype: Prototype, callee: str, arguments: list[str]
) -> None:
    """Emits the call and stores its result."""
    result = returned(prototype)
    local = e.op(f"add i64 %lsp, {FRAME_SIZE}")
    env = ["ptr %bi", "i32 %tx", "i32 %ty", "i32 %tz", f"i64 {local}"]
    if prototype.results and result == "void":
        arguments = [*arguments, f"ptr {_result_place(e, found, prototype)}"]
    text = f"call {result} {callee}({', '.join(env + arguments)})"
    if result == "void":
        e.line(text)
    elif found.results:
        store_result(e, found.results[0], e.op(text), result)
    else:
        e.op(text)
    if not prototype.results:
        _clear_results(e, found)
    if prototype.noreturn:
        # The callee may return in spite of .noreturn.
        e.line(f"br label %{e.trap_block(CUDA_ERROR_LAUNCH_FAILED)}")
        e.dead()


def _result_place(e: FunctionEmitter, found: Call, prototype: Prototype) -> str:
    if found.results and not isinstance(found.results[0], Sink):
        return _storage(e, found.results[0])
    return e.alloca(f"[{prototype.results[0].bytes} x i8]", align=16)


def _clear_results(e: FunctionEmitter, found: Call) -> None:
    """Writes zero to the results that a caller expects from a function without a result."""
    for target in found.results:
        if isinstance(target, Sym) and target.variable is not None:
            e.clear(_storage(e, target), target.variable.bytes)
        elif isinstance(target, Reg):
            e.write(target, "0", f"i{max(target.type.bits, 8)}")


def store_result(e: FunctionEmitter, target: Operand, value: str, kind: str) -> None:
    if isinstance(target, Sink):
        return
    if isinstance(target, Sym):
        e.line(f"store {kind} {value}, ptr {_storage(e, target)}")
    else:
        e.write(target, value, kind)


def _runtime(e: FunctionEmitter, found: Call) -> None:
    name = str(found.callee).lstrip("_")
    if name not in RUNTIME:
        raise unsupported(
            f"the function '{found.callee}'",
            "is not defined in the module and not known to the emulated device",
        )
    result, kinds = RUNTIME[name]
    if len(kinds) != len(found.arguments):
        raise PtxError(f"{found.callee} takes {len(kinds)} arguments")
    values = ["ptr %bi"]
    for operand, kind in zip(found.arguments, kinds, strict=True):
        if isinstance(operand, Sym):
            values.append(f"{kind} {e.op(f'load {kind}, ptr {_storage(e, operand)}')}")
        else:
            values.append(f"{kind} {e.read(operand, kind)}")
    if name == "assertfail":
        values += ["i32 %tx", "i32 %ty", "i32 %tz"]
    text = f"call {result or 'void'} {e.env(f'runtime.{name}')}({', '.join(values)})"
    if name == "assertfail":
        # Other threads go on, so that each thread whose condition fails gets its line. A function
        # that is not inlined cannot end its thread alone.
        e.line(text)
        e.line(f"br label %{e.thread_exit or e.trap_block(CUDA_ERROR_ASSERT)}")
        e.dead()
    elif result:
        value = e.op(text)
        if found.results:
            store_result(e, found.results[0], value, result)
    else:
        e.line(text)


def _inline(e: FunctionEmitter, found: Call, function: Function, choice: int = -1) -> None:
    """Emits the callee's body here, because its suspend points belong to this coroutine."""
    from rgpu_emu.lower.control import emit_body

    caller, position = e.frame, e.position
    frame = e.new_frame(function, choice)
    if e.depth > INLINE_DEPTH:
        raise unsupported(
            f"the function '{function.name}'",
            "is nested too deeply for functions that hold barriers",
        )
    for operand, variable in zip(found.arguments, function.prototype.params, strict=True):
        target = frame.scratch(variable)
        if isinstance(operand, Sym):
            e.copy(target, _storage(e, operand), variable.bytes)
        else:
            kind = _scalar(variable)
            e.line(f"store {kind} {e.read(operand, kind)}, ptr {target}")
    e.frame, e.depth = frame, e.depth + 1
    top = stack.saved(e)
    emit_body(e)
    e.start(frame.exit)
    stack.restore(e, top)
    e.frame, e.depth, e.position = caller, e.depth - 1, position
    if not function.prototype.results:
        _clear_results(e, found)
    for operand, variable in zip(found.results, function.prototype.results, strict=False):
        if isinstance(operand, Sym):
            e.copy(_storage(e, operand), frame.scratch(variable), variable.bytes)
        elif not isinstance(operand, Sink):
            kind = _scalar(variable)
            e.write(operand, e.op(f"load {kind}, ptr {frame.scratch(variable)}"), kind)


def _prototype(e: FunctionEmitter, named: LabelRef | None) -> Prototype:
    body, module = e.frame.body, e.frame.function.module
    if named is None or named.target is None:
        raise PtxError("an indirect call names no prototype or target list")
    if named.target in body.prototypes:
        return body.prototypes[named.target]
    targets = body.call_targets.get(named.target, ())
    function = e.unit.program.function(targets[0], module) if targets else None
    if function is None:
        raise PtxError(f"{named.name} is not a call prototype")
    return function.prototype


def block_layout(prototype: Prototype) -> tuple[list[int], int]:
    """Returns the offsets of parameters, then results, in the argument block of a call by pointer,
    and the size of the block.
    """
    at, offsets = 0, []
    for variable in (*prototype.params, *prototype.results):
        at = (at + 15) // 16 * 16
        offsets.append(at)
        at += variable.bytes
    return offsets, max(at, 16)


def _indirect(e: FunctionEmitter, found: Call, callee: Reg) -> None:
    prototype = _prototype(e, found.prototype)
    _check_fit(found, prototype, callee.name, by_name=False)
    token = e.read(callee, "i64")
    done = e.block_name("called")
    for ordinal, function in e.unit.reach.switched.items():
        if function.prototype.signature() != prototype.signature():
            continue
        here, other = e.block_name("switched"), e.block_name("other")
        same = e.op(f"icmp eq i64 {token}, {abi.FUNCTION_TOKEN | ordinal}")
        e.line(f"br i1 {same}, label %{here}, label %{other}")
        e.start(here)
        _inline(e, found, function, ordinal)
        e.line(f"br label %{done}")
        e.start(other)
    _through_table(e, found, prototype, token)
    if e.unit.reach.switched:
        e.line(f"br label %{done}")
        e.start(done)


def _through_table(e: FunctionEmitter, found: Call, prototype: Prototype, token: str) -> None:
    """Calls the function of a token that this object defines."""
    offsets, size = block_layout(prototype)
    block = e.alloca(f"[{size} x i8]", align=16, zero=True)
    places = [e.op(f"getelementptr i8, ptr {block}, i64 {at}") for at in offsets]
    count = len(prototype.params)
    for operand, variable, place in zip(
        found.arguments, prototype.params, places[:count], strict=True
    ):
        if isinstance(operand, Sym):
            e.copy(place, _storage(e, operand), variable.bytes)
        else:
            kind = _scalar(variable)
            e.line(f"store {kind} {e.read(operand, kind)}, ptr {place}")
    address = e.op(f"call i64 {e.env('runtime.function_address')}(ptr %bi, i64 {token})")
    local = e.op(f"add i64 %lsp, {FRAME_SIZE}")
    e.line(
        f"call void {e.op(f'inttoptr i64 {address} to ptr')}"
        f"(ptr %bi, i32 %tx, i32 %ty, i32 %tz, i64 {local}, ptr {block}, "
        f"i64 {e.unit.signature_number(prototype)})"
    )
    for operand, variable, place in zip(
        found.results, prototype.results, places[count:], strict=True
    ):
        if isinstance(operand, Sym):
            e.copy(_storage(e, operand), place, variable.bytes)
        elif not isinstance(operand, Sink):
            kind = _scalar(variable)
            e.write(operand, e.op(f"load {kind}, ptr {place}"), kind)
