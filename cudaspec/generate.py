"""The table of artefacts: file name -> generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec import load_messages, load_nvml
from cudaspec.gen import (
    abi,
    abi_check,
    channels_cc,
    codec,
    dispatch,
    docs,
    driver,
    errors,
    exports,
    forward,
    messages_cc,
    nvml,
    opcodes,
    procaddr,
    work,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cudaspec.rows import Spec

ARTEFACTS: Mapping[str, Callable[[Spec], str]] = {
    "opcodes.gen.h": opcodes.opcodes_h,
    "opcodes.gen.cc": opcodes.opcodes_cc,
    "codec.gen.h": codec.codec_h,
    "work.gen.h": work.work_h,
    "work.gen.cc": work.work_cc,
    "cuda_abi.gen.h": abi.cuda_abi_h,
    "driver_table.gen.h": driver.driver_table_h,
    "driver_table.gen.cc": driver.driver_table_cc,
    "dispatch.gen.h": dispatch.dispatch_h,
    "dispatch.gen.cc": dispatch.dispatch_cc,
    "exec_forwards.gen.cc": forward.exec_forwards_cc,
    "errors.gen.h": errors.errors_h,
    "errors.gen.cc": errors.errors_cc,
    "shim_calls.gen.h": lambda spec: exports.calls_h(spec, exports.shim(spec)),
    "shim_exports.gen.cc": lambda spec: exports.exports_cc(spec, exports.shim(spec)),
    "shim_procaddr.gen.cc": lambda spec: procaddr.procaddr_cc(spec, exports.shim(spec)),
    "shim_forwards.gen.cc": forward.shim_forwards_cc,
    "shim.map": lambda spec: exports.version_script(spec, exports.shim(spec)),
    "emu_calls.gen.h": lambda spec: exports.calls_h(spec, exports.emu(spec)),
    "emu_exports.gen.cc": lambda spec: exports.exports_cc(spec, exports.emu(spec)),
    "emu_procaddr.gen.cc": lambda spec: procaddr.procaddr_cc(spec, exports.emu(spec)),
    "coverage.md": docs.coverage_md,
    "opcodes.dict": docs.dictionary,
    "abi_check.gen.cc": abi_check.abi_check_cc,
    "emu.map": lambda spec: exports.version_script(spec, exports.emu(spec)),
    "message_numbers.gen.h": lambda _: messages_cc.message_numbers_h(load_messages.load()),
    "notices.gen.h": lambda _: messages_cc.notices_h(load_messages.load()),
    "handshake.gen.h": lambda _: messages_cc.handshake_h(load_messages.load()),
    "handshake.gen.cc": lambda _: messages_cc.handshake_cc(load_messages.load()),
    "worker.gen.h": lambda _: channels_cc.channel_h(load_messages.channels()["worker"]),
    "worker.gen.cc": lambda _: channels_cc.channel_cc(load_messages.channels()["worker"]),
    "compiler.gen.h": lambda _: channels_cc.channel_h(load_messages.channels()["compiler"]),
    "compiler.gen.cc": lambda _: channels_cc.channel_cc(load_messages.channels()["compiler"]),
    "nvml_abi.gen.h": lambda _: nvml.abi_h(load_nvml.load()),
    "nvml_calls.gen.h": lambda _: nvml.calls_h(load_nvml.load()),
    "nvml_exports.gen.cc": lambda _: nvml.exports_cc(load_nvml.load()),
    "nvml.map": lambda _: nvml.version_script(load_nvml.load()),
}


def write(spec: Spec, directory: Path) -> None:
    """Writes every artefact. An unchanged file keeps its time stamp, so that nothing is rebuilt."""
    for name, generator in ARTEFACTS.items():
        write_file(directory / name, generator(spec))


def write_file(path: Path, text: str) -> None:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
