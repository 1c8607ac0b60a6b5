"""The two shapes of an entry: a loop over the block's threads, or a coroutine per thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rgpu_emu.lower import abi, stack
from rgpu_emu.lower.calls import block_layout, passed, returned
from rgpu_emu.lower.control import emit_body
from rgpu_emu.lower.emit import FunctionEmitter
from rgpu_emu.ptx.errors import CUDA_ERROR_LAUNCH_FAILED

if TYPE_CHECKING:
    from rgpu_emu.lower.unit import Unit
    from rgpu_emu.ptx.module import Function

ATTRIBUTES: Final = 'nounwind "probe-stack"="inline-asm"'
_ENV: Final = ", ".join(f"{t} {n}" for t, n in zip(abi.ENV_TYPES, abi.ENV_NAMES, strict=True))
RECURSIVE_FRAME: Final = 32

_BLOCK: Final = f"""
define void @rgpu_block(ptr %bi) {ATTRIBUTES} {{
%launch = load ptr, ptr %bi, !invariant.load !0
%px = getelementptr i8, ptr %launch, i64 {abi.LAUNCH["block.x"][0]}
%py = getelementptr i8, ptr %launch, i64 {abi.LAUNCH["block.y"][0]}
%pz = getelementptr i8, ptr %launch, i64 {abi.LAUNCH["block.z"][0]}
%nx = load i32, ptr %px, !invariant.load !0
%ny = load i32, ptr %py, !invariant.load !0
%nz = load i32, ptr %pz, !invariant.load !0
OUTSIDE
br label %loop.z
loop.z:
%z = phi i32 [ 0, %0 ], [ %z.next, %next.z ]
br label %loop.y
loop.y:
%y = phi i32 [ 0, %loop.z ], [ %y.next, %next.y ]
br label %loop.x
loop.x:
%x = phi i32 [ 0, %loop.y ], [ %x.next, %loop.x ]
call void @thread(ptr %bi, i32 %x, i32 %y, i32 %z, i64 0PASSED)
%x.next = add nuw nsw i32 %x, 1
%x.more = icmp ult i32 %x.next, %nx
br i1 %x.more, label %loop.x, label %next.y PARALLEL
next.y:
%y.next = add nuw nsw i32 %y, 1
%y.more = icmp ult i32 %y.next, %ny
br i1 %y.more, label %loop.y, label %next.z
next.z:
%z.next = add nuw nsw i32 %z, 1
%z.more = icmp ult i32 %z.next, %nz
br i1 %z.more, label %loop.z, label %done
done:
ret void
}}
"""

_COROUTINE_HEAD: Final = f"""
@rgpu_frame_probe = global i64 0
define ptr @rgpu_thread(ptr %bi, i32 %tid, ptr %frame) presplitcoroutine {ATTRIBUTES} {{
%id = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)
%asked = icmp eq ptr %frame, null
br i1 %asked, label %probe, label %begin, !prof !1
probe:
%size = call i64 @llvm.coro.size.i64()
store i64 %size, ptr @rgpu_frame_probe
ret ptr null
begin:
%handle = call ptr @llvm.coro.begin(token %id, ptr %frame)
%lsp = add i64 0, 0
%launch.c = load ptr, ptr %bi, !invariant.load !0
%px = getelementptr i8, ptr %launch.c, i64 {abi.LAUNCH["block.x"][0]}
%py = getelementptr i8, ptr %launch.c, i64 {abi.LAUNCH["block.y"][0]}
%nx = load i32, ptr %px, !invariant.load !0
%ny = load i32, ptr %py, !invariant.load !0
%tx = urem i32 %tid, %nx
%row = udiv i32 %tid, %nx
%ty = urem i32 %row, %ny
%tz = udiv i32 %row, %ny
"""

_COROUTINE_TAIL: Final = """
thread.exit:
%final = call i8 @llvm.coro.suspend(token none, i1 true)
switch i8 %final, label %coro.end [ i8 0, label %coro.never i8 1, label %coro.cleanup ]
coro.never:
unreachable
coro.cleanup:
%memory = call ptr @llvm.coro.free(token %id, ptr %handle)
br label %coro.end
coro.end:
CORO_END
ret ptr %handle
}
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
CORO_DECLARE
"""


def emit_entry(unit: Unit, *, llvm_major: int) -> None:
    """Emits the entry in its shape and every device function that it needs."""
    if unit.coroutine:
        _coroutine(unit, llvm_major)
    else:
        _loop(unit)
    for ordinal, function in unit.by_pointer.items():
        _by_pointer(unit, function, ordinal)
    while unit.queue:
        _device_function(unit, unit.queue.pop())


def _loop(unit: Unit) -> None:
    e = FunctionEmitter(unit, hoist=True)
    stack.begin(e)
    e.frame = e.new_frame(unit.reach.entry)
    e.thread_exit = e.frame.exit
    stack.start(e)
    emit_body(e)
    e.start(e.frame.exit)
    e.line("ret void")
    unit.local_frames[unit.reach.entry] = e.frame_bytes()
    body = e.finish()
    passed_in = "".join(f", {kind} {name}" for name, kind in e.outside_types.items())
    unit.texts.append(
        f"define internal void @thread({_ENV}{passed_in}) alwaysinline {ATTRIBUTES} {{\n{body}\n}}"
    )
    block = _BLOCK.replace("PARALLEL", ", !llvm.loop !3" if unit.access else "")
    unit.texts.append(block.replace("OUTSIDE", "\n".join(e.outside)).replace("PASSED", passed_in))


def _coroutine(unit: Unit, llvm_major: int) -> None:
    e = FunctionEmitter(unit, coroutine=True)
    stack.begin(e)
    e.frame = e.new_frame(unit.reach.entry)
    e.thread_exit = "thread.exit"
    stack.start(e)
    emit_body(e)
    e.start(e.frame.exit)
    e.line("br label %thread.exit")
    unit.local_frames[unit.reach.entry] = e.frame_bytes()
    returns_bool = llvm_major < 21
    end = "call {} @llvm.coro.end(ptr %handle, i1 false, token none)"
    end = "%ended = " + end.format("i1") if returns_bool else end.format("void")
    declare = f"declare {'i1' if returns_bool else 'void'} @llvm.coro.end(ptr, i1, token)"
    tail = _COROUTINE_TAIL.replace("CORO_END", end).replace("CORO_DECLARE", declare)
    unit.texts.append(f"{_COROUTINE_HEAD}{e.finish()}{tail}")


def _parameters(function: Function) -> str:
    kinds = [f"{passed(v)} %p{n}" for n, v in enumerate(function.prototype.params)]
    if function.prototype.results and returned(function.prototype) == "void":
        kinds.append("ptr %result")
    return ", ".join([_ENV, *kinds])


def _device_function(unit: Unit, function: Function) -> None:
    e = FunctionEmitter(unit)
    frame = e.frame = e.new_frame(function)
    for n, variable in enumerate(function.prototype.params):
        kind = passed(variable)
        if kind == "ptr":
            e.copy(frame.scratch(variable), f"%p{n}", variable.bytes)
        else:
            e.line(f"store {kind} %p{n}, ptr {frame.scratch(variable)}")
    if unit.reach.recursive:
        end = e.op(f"add i64 %lsp, {_frame_size(unit, e, function)}")
        e.trap_if(e.op(f"icmp ugt i64 {end}, {e.env('local.bytes')}"), abi.TRAP_STACK_FULL)
    if function in unit.reach.recursive:
        e.poll()
    top = stack.saved(e)
    emit_body(e)
    e.start(frame.exit)
    stack.restore(e, top)
    result = returned(function.prototype)
    results = function.prototype.results
    if result != "void":
        e.line(f"ret {result} {e.op(f'load {result}, ptr {frame.scratch(results[0])}')}")
    else:
        if results:
            e.copy("%result", frame.scratch(results[0]), results[0].bytes)
        e.line("ret void")
    unit.local_frames[function] = e.frame_bytes()
    name = unit.function_name(function)
    unit.texts.append(
        f"define internal {result} {name}({_parameters(function)}) {ATTRIBUTES} "
        f"{{\n{e.finish()}\n}}"
    )


def _frame_size(unit: Unit, e: FunctionEmitter, function: Function) -> int:
    """Returns the size of the function's own local frame. For a recursive function it is never 0,
    so that the local window bounds the depth of the recursion.
    """
    if function in unit.reach.recursive:
        e.local_top = max(e.local_top, RECURSIVE_FRAME)
    return e.frame_bytes()


def _by_pointer(unit: Unit, function: Function, ordinal: int) -> None:
    """Emits the form of a function for calls by pointer: it takes one block of arguments and checks
    the caller's signature.
    """
    prototype = function.prototype
    offsets, _ = block_layout(prototype)
    lines = [
        f"%fits = icmp eq i64 %signature, {unit.signature_number(prototype)}",
        "br i1 %fits, label %good, label %bad",
        "bad:",
        "%launch = load ptr, ptr %bi",
        f"%rp = getelementptr i8, ptr %launch, i64 {abi.LAUNCH['runtime'][0]}",
        "%runtime = load ptr, ptr %rp",
        "%trap = load ptr, ptr %runtime",
        f"call void %trap(ptr %bi, i32 {CUDA_ERROR_LAUNCH_FAILED})",
        "unreachable",
        "good:",
    ]
    arguments = [f"{t} {n}" for t, n in zip(abi.ENV_TYPES, abi.ENV_NAMES, strict=True)]
    for n, (variable, at) in enumerate(
        zip((*prototype.params, *prototype.results), offsets, strict=True)
    ):
        lines.append(f"%q{n} = getelementptr i8, ptr %block, i64 {at}")
        if n < len(prototype.params):
            kind = passed(variable)
            if kind != "ptr":
                lines.append(f"%v{n} = load {kind}, ptr %q{n}")
            arguments.append(f"{kind} %{'q' if kind == 'ptr' else 'v'}{n}")
    result, last = returned(prototype), len(prototype.params)
    if prototype.results and result == "void":
        arguments.append(f"ptr %q{last}")
    call = f"call {result} {unit.function_name(function)}({', '.join(arguments)})"
    lines += (
        [call] if result == "void" else [f"%out = {call}", f"store {result} %out, ptr %q{last}"]
    )
    header = f"define void @rgpu_fn_{ordinal}({_ENV}, ptr %block, i64 %signature) {ATTRIBUTES}"
    unit.texts.append(f"{header} {{\n" + "\n".join([*lines, "ret void", "}"]))
