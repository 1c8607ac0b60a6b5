"""Facts of the specification of this release that others rely on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cudaspec import errors, model, rows
from cudaspec.model import Mode

# The functions that numba-cuda, cuda.core and Taichi call.
CALLED = (
    "cuCtxGetCurrent cuCtxGetDevice cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCurrent "
    "cuCtxSynchronize cuDeviceGetAttribute cuDeviceGetCount cuDeviceGetMemPool "
    "cuDeviceGetName cuDeviceGetUuid_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain "
    "cuDriverGetVersion cuEventCreate cuEventElapsedTime_v2 cuEventRecord cuGetProcAddress_v2 "
    "cuInit cuKernelGetAttribute cuLaunchKernelEx cuLibraryGetKernel cuLibraryLoadData "
    "cuMemAllocFromPoolAsync cuMemAlloc_v2 cuMemFreeAsync cuMemGetInfo_v2 cuMemHostAlloc "
    "cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2 "
    "cuMemcpyHtoD_v2 cuOccupancyMaxActiveBlocksPerMultiprocessor cuStreamCreate "
    "cuStreamGetCtx cuStreamIsCapturing cuStreamSynchronize cuLinkCreate_v2 cuLinkAddData_v2 "
    "cuLinkComplete cuLinkDestroy cuCtxGetDevice_v2 cuCtxGetStreamPriorityRange "
    "cuCtxSynchronize_v2 cuDeviceGet cuDeviceGetUuid cuDeviceTotalMem_v2 "
    "cuModuleGetLoadingMode cuStreamCreateWithPriority cuStreamDestroy_v2 cuEventDestroy_v2 "
    "cuDeviceGetDefaultMemPool cuLaunchKernel cuMemAllocAsync cuMemFree_v2 cuMemsetD8_v2 "
    "cuModuleGetFunction cuModuleLoadDataEx cuPointerGetAttribute cuFuncSetAttribute cuMemcpy "
    "cuModuleUnload cuOccupancyMaxPotentialBlockSize cuCtxCreate_v4 cuCtxDestroy_v2 "
    "cuCtxSetCacheConfig cuDeviceCanAccessPeer cuEventSynchronize cuFuncGetAttribute "
    "cuGetErrorName cuMemFreeHost cuMemHostGetDevicePointer_v2 cuMemcpyAsync "
    "cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuModuleLoad cuProfilerStop cuStreamWaitEvent "
)


@pytest.mark.parametrize("name", CALLED.split())
def test_what_programs_call_is_implemented(spec: rows.Spec, name: str) -> None:
    assert spec.calls[name].implemented


def test_no_call_waits_for_a_later_release(spec: rows.Spec) -> None:
    planned = [name for name, call in spec.calls.items() if call.row.mode is Mode.PLANNED]
    assert planned == []


def test_every_documented_function_has_a_row(spec: rows.Spec) -> None:
    """The newest symbol of each name of cuda.h and cudaProfiler.h; OpenGL has no rows."""
    assert spec.symbols
    for names in spec.symbols:
        newest = names.versions[-1][1]
        if "GL" not in names.name and names.name != "cuGraphInstantiate":
            assert newest in spec.calls, newest


def test_private_tables_are_refused(spec: rows.Spec) -> None:
    row = spec.calls["cuGetExportTable"].row
    assert (row.mode, row.error) == (Mode.UNSUPPORTED, "CUDA_ERROR_NOT_FOUND")
    # Found by name all the same: its body says on stderr why, once.
    assert row.explains


def test_batches_of_prefetches_are_refused(spec: rows.Spec) -> None:
    """CUDA allows them for devices with CONCURRENT_MANAGED_ACCESS only."""
    for name in ("cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync"):
        assert spec.calls[name].row.mode is Mode.UNSUPPORTED


def test_old_symbols_answer_as_the_new_ones(spec: rows.Spec) -> None:
    assert spec.calls["cuCtxDestroy"].body == "cuCtxDestroy_v2"
    assert spec.calls["cuStreamDestroy_v2"].body == "cuStreamDestroy_v2"


@pytest.mark.parametrize(
    ("name", "versions", "twins"),
    [
        ("cuMemAlloc", ((2000, "cuMemAlloc"), (3020, "cuMemAlloc_v2")), ()),
        ("cuInit", ((2000, "cuInit"),), ()),
        ("cuLaunchKernel", ((4000, "cuLaunchKernel"),), ("cuLaunchKernel_ptsz",)),
        (
            "cuMemcpyHtoD",
            ((2000, "cuMemcpyHtoD"), (3020, "cuMemcpyHtoD_v2")),
            ("cuMemcpyHtoD_v2_ptds",),
        ),
        (
            "cuCtxCreate",
            (
                (2000, "cuCtxCreate"),
                (3020, "cuCtxCreate_v2"),
                (11040, "cuCtxCreate_v3"),
                (12050, "cuCtxCreate_v4"),
            ),
            (),
        ),
        ("cuCtxSynchronize", ((2000, "cuCtxSynchronize"), (13000, "cuCtxSynchronize_v2")), ()),
        ("cuGetProcAddress", ((11030, "cuGetProcAddress"), (12000, "cuGetProcAddress_v2")), ()),
    ],
)
def test_symbols(
    symbols: Mapping[str, model.Symbols],
    name: str,
    versions: tuple[tuple[int, str], ...],
    twins: tuple[str, ...],
) -> None:
    assert (symbols[name].versions, symbols[name].twins) == (versions, twins)


def test_the_list_of_symbols_is_whole(spec: rows.Spec) -> None:
    assert len(spec.exported) == 655
    assert (
        "cuGraphicsGLRegisterBuffer" in spec.exported
    )  # programs that look every name up at start


def test_errors_by_value() -> None:
    assert errors.name(700) == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert errors.STRINGS[2] == "out of memory"
    assert errors.name(12345) == "CUresult 12345"


def test_fields_for_the_python_view(spec: rows.Spec) -> None:
    command = spec.commands["rgpuCopyHtoD"]
    assert command.opcode == 0x0401
    assert [(f.kind, f.name, f.size) for f in command.request[:2]] == [
        ("address", "dst", 8),
        ("u64", "pitch", 8),
    ]
    assert spec.opcodes[0x0401] is command
    assert not command.is_call
    assert spec.commands["rgpuMemAlloc"].is_call
    assert len({c.layout_hash for c in spec.commands.values()}) == len(spec.commands)


def test_every_command_is_sent_by_a_call_or_by_the_session(spec: rows.Spec) -> None:
    session = {"rgpuThreadGone", "rgpuPing"}
    sent = {name for call in spec.calls.values() for name in call.row.sends}
    assert set(spec.commands) - sent == session


def test_emulated_device_answers_what_the_executor_calls(spec: rows.Spec) -> None:
    assert set(spec.driver) <= spec.emulated


def test_rows_are_frozen(spec: rows.Spec) -> None:
    with pytest.raises(AttributeError):
        spec.calls["cuInit"].row.mode = Mode.LOCAL  # type: ignore[misc]
    assert isinstance(spec.calls["cuInit"].row, model.Call)
