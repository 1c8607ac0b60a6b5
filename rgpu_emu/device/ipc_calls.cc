// Calls that share memory and events with other processes.
#include <unistd.h>

#include <mutex>

#include "rgpu_common/native/base/emulated_ipc.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/memory.h"
#include "rgpu_emu/device/shared_event.h"
#include "rgpu_emu/device/shared_file.h"

namespace rgpu::emu {
namespace {

using rgpu::base::EmulatedIpc;

// Memory that this process has opened, by its base, and how often.
struct Opened {
  std::mutex mutex;
  std::map<uint64_t, std::pair<EmulatedIpc, unsigned>> by_base;
};

Opened& TheOpened() {
  static Opened& opened = *new Opened;
  return opened;
}

bool SameMemory(const EmulatedIpc& one, const EmulatedIpc& two) {
  return one.process != 0 && one.process == two.process && one.fd == two.fd;
}

// Finds memory that was opened with the same handle and is still there.
AllocationRef Again(Opened& opened, const EmulatedIpc& ipc) {
  for (auto it = opened.by_base.begin(); it != opened.by_base.end();) {
    const AllocationRef allocation = TheDevice().arena.Find(it->first);
    const bool there = allocation != nullptr && allocation->kind == MemoryKind::kImported;
    if (there && SameMemory(it->second.first, ipc)) return allocation;
    it = there ? std::next(it) : opened.by_base.erase(it);
  }
  return nullptr;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  Arena& arena = TheDevice().arena;
  const AllocationRef allocation = arena.Find(dptr);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  EmulatedIpc ipc;
  ipc.kind = EmulatedIpc::kMemory;
  ipc.process = getpid();
  ipc.fd = arena.Export(allocation);
  if (ipc.fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ipc.offset = allocation->base - allocation->map_base;
  ipc.bytes = allocation->bytes;
  ipc.file_bytes = allocation->map_bytes;
  rgpu::base::WriteIpc(ipc, pHandle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  const EmulatedIpc ipc = rgpu::base::ReadIpc(&handle);
  if (ipc.kind != EmulatedIpc::kMemory) return CUDA_ERROR_INVALID_HANDLE;
  if (ipc.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  Opened& opened = TheOpened();
  const std::lock_guard lock(opened.mutex);
  AllocationRef allocation = Again(opened, ipc);
  if (allocation != nullptr && allocation->context != context->handle) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (allocation == nullptr) {
    const rgpu::base::UniqueFd file = OpenSharedFile(ipc);
    if (!file.valid()) return CUDA_ERROR_INVALID_HANDLE;
    TheDevice().limbo.Reap();
    allocation = TheDevice().arena.Import(file.get(), ipc.file_bytes, ipc.offset, ipc.bytes,
                                          context->handle);
    if (allocation == nullptr) return CUDA_ERROR_MAP_FAILED;
    opened.by_base[allocation->base] = {ipc, 0};
  }
  ++opened.by_base[allocation->base].second;
  *pdptr = allocation->base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  Opened& opened = TheOpened();
  const std::lock_guard lock(opened.mutex);
  const AllocationRef allocation = TheDevice().arena.Find(dptr);
  const auto found = opened.by_base.find(dptr);
  if (allocation == nullptr || allocation->base != dptr || found == opened.by_base.end() ||
      allocation->kind != MemoryKind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--found->second.second != 0) return CUDA_SUCCESS;
  opened.by_base.erase(found);
  return FreeAllocation(*context, allocation);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  const auto found = TheDevice().events.Find(Raw(event));
  EmulatedIpc ipc;
  if (found == nullptr || found->shared == nullptr || !found->shared->Export(&ipc)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  rgpu::base::WriteIpc(ipc, pHandle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  std::shared_ptr<Context> context;
  if (const CUresult bad = CurrentContext(&context); bad != CUDA_SUCCESS) return bad;
  const EmulatedIpc ipc = rgpu::base::ReadIpc(&handle);
  if (ipc.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<SharedEvent> shared = SharedEvent::Open(ipc);
  if (shared == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t made = NewHandle(HandleKind::kEvent);
  TheDevice().events.Add(
      made, std::make_shared<Event>(context, CU_EVENT_DISABLE_TIMING, std::move(shared)));
  *phEvent = As<CUevent>(made);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
