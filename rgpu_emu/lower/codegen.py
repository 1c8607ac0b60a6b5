"""Compiles IR text to an object file with llvmlite."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import llvmlite.binding as llvm

from rgpu_emu.ptx.errors import CUDA_ERROR_NOT_SUPPORTED, PtxError, refusal_of

OPTIMISE_BELOW: Final = 8000  # instructions; larger entries are compiled without optimisation
_FRAME_MAGIC: Final = 0x7267_6672_616D_6531
_PROBE: Final = re.compile(r"store i64 (\d+), ptr @rgpu_frame_probe")


@dataclass(frozen=True)
class Host:
    """The machine for which objects are compiled."""

    triple: str
    cpu: str
    features: str

    def fingerprint(self) -> str:
        version = ".".join(map(str, llvm.llvm_version_info))
        return f"{self.triple} {self.cpu} {self.features} llvm-{version}"


@lru_cache(maxsize=1)
def host() -> Host:
    """Returns this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return Host(
        llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    )


def llvm_major() -> int:
    return int(llvm.llvm_version_info[0])


def _machine(level: int) -> llvm.TargetMachine:
    target = llvm.Target.from_triple(host().triple)
    return target.create_target_machine(
        cpu=host().cpu, features=host().features, opt=level, reloc="pic", codemodel="small"
    )


def compile_ir(text: str, instructions: int) -> bytes:
    """Returns a module as an ELF relocatable file.

    Raises:
        PtxError: LLVM refuses the text, which is a defect of the lowering.
    """
    level = 1 if instructions < OPTIMISE_BELOW else 0
    machine = _machine(level)
    if "@rgpu_frame_probe" in text:
        text += f"\n@rgpu_frame_bytes = constant i64 {_FRAME_MAGIC}, align 8\n"
    try:
        module = llvm.parse_assembly(
            f'target datalayout = "{machine.target_data}"\n'
            f'target triple = "{host().triple}"\n{text}'
        )
        module.verify()
    except RuntimeError as error:
        raise refusal_of(error, "the code") from None
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level > 0
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    image: bytes = machine.emit_object(module)
    return _patch_frame_size(image, module)


def _patch_frame_size(image: bytes, module: llvm.ModuleRef) -> bytes:
    """Writes the coroutine frame's size, which only the optimiser knows, into the object."""
    magic = struct.pack("<Q", _FRAME_MAGIC)
    if magic not in image:
        return image
    found = _PROBE.search(str(module.get_function("rgpu_thread")))
    if found is None or image.count(magic) != 1:
        raise PtxError("the coroutine's frame size was not found", result=CUDA_ERROR_NOT_SUPPORTED)
    size = (int(found.group(1)) + 15) // 16 * 16
    return image.replace(magic, struct.pack("<Q", size))
