// Handlers: virtual memory management. Memory is charged before the driver creates it, and released
// when the client has released it and nothing is mapped to it any more.
#include <utility>
#include <vector>

#include "gen/dispatch.gen.h"
#include "rgpu_common/native/base/memory_props.h"
#include "rgpu_server/executor/allocations.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

// Addresses that a session may reserve. They take no memory, but the driver keeps tables for them.
constexpr uint64_t kMostReservedBytes = uint64_t{16} << 40;
constexpr uint64_t kPage = 4096;

CUmemAllocationProp Props(const Executor& executor, bool shareable = false) {
  return base::MemoryProps(executor.device(), shareable);
}

CUresult Granularity(const Executor& executor, uint32_t option, uint64_t* bytes) {
  const CUmemAllocationProp props = Props(executor);
  size_t granularity = 0;
  const CUresult result = executor.driver()->cuMemGetAllocationGranularity(
      &granularity, &props, static_cast<CUmemAllocationGranularity_flags>(option));
  *bytes = granularity;
  return result != CUDA_SUCCESS || granularity != 0 ? result : CUDA_ERROR_UNKNOWN;
}

// Checks that an address and a size are multiples of the granularity, and that the end is an
// address.
CUresult CheckGranular(const Executor& executor, uint64_t address, uint64_t bytes) {
  uint64_t granularity = 0;
  const CUresult result = Granularity(executor, CU_MEM_ALLOC_GRANULARITY_MINIMUM, &granularity);
  if (result != CUDA_SUCCESS) return result;
  const bool good = bytes != 0 && address + bytes >= address && address % granularity == 0 &&
                    bytes % granularity == 0;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Frees addresses in which the driver has nothing mapped any more.
void FreeAddresses(Executor& executor, uint64_t base, uint64_t bytes) {
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind(
      {}, nullptr, [&driver, base, bytes] { driver->cuMemAddressFree(base, bytes); }, {});
}

// Neither the client nor the driver has the memory any more.
void GiveUp(Executor& executor, const MappableMemory& memory) {
  if (memory.import) return executor.exports().Close(*memory.import);
  if (memory.exported == nullptr) return executor.ledger().Release(memory.bytes);
  executor.exports().Retire(memory.exported);
  executor.exports().Freed(memory.exported, memory.bytes);
}

// Releases memory behind the unmaps so far. The charge goes when nothing is mapped to it any more.
void ReleaseMemory(Executor& executor, const std::shared_ptr<MappableMemory>& memory) {
  const Driver& driver = executor.driver();
  Fences fences;
  if (memory->unmapped_behind != nullptr) fences = *std::exchange(memory->unmapped_behind, nullptr);
  executor.reaper().AddBehind(
      std::move(fences), nullptr, [&driver, memory] { driver->cuMemRelease(memory->handle); },
      [&executor, memory] {
        memory->released = true;
        if (memory->held == 0) GiveUp(executor, *memory);
      },
      memory->mapped == 0 && !memory->import ? memory->bytes : 0);
}

// The driver has taken a mapping away.
void LeaveMapping(Executor& executor, uint64_t base, const Mapping& mapping) {
  executor.objects().virtual_memory.RemoveLeaving(base);
  MappableMemory& memory = *mapping.memory;
  if (--memory.held == 0 && memory.released) GiveUp(executor, memory);
  if (--mapping.reservation->held == 0 && mapping.reservation->freed) {
    FreeAddresses(executor, mapping.reserved_at, mapping.reservation->bytes);
  }
}

// Waits until the driver has carried out the unmaps of these addresses.
void AwaitUnmaps(Executor& executor, uint64_t base, uint64_t bytes) {
  const auto gone = [&] {
    return !executor.objects().virtual_memory.IsLeaving(base, bytes) ||
           executor.sticky() != CUDA_SUCCESS;
  };
  if (gone()) return;
  executor.role().Yield();
  executor.poller().Hurry();
  std::unique_lock lock(executor.mutex(), std::adopt_lock);
  executor.changed().wait(lock, gone);
  lock.release();
}

CUresult Create(Executor& executor, uint64_t id, uint64_t bytes, bool shareable) {
  CUresult result = CheckGranular(executor, 0, bytes);
  if (result != CUDA_SUCCESS) return result;
  Table<MappableMemory>::Reservation place(executor.objects().memories, id);
  if (place.result() != CUDA_SUCCESS) return place.result();
  if (executor.memory().Charge(bytes) != CUDA_SUCCESS) return CUDA_ERROR_OUT_OF_MEMORY;
  auto memory = std::make_shared<MappableMemory>();
  memory->bytes = bytes;
  memory->shareable = shareable;
  const CUmemAllocationProp props = Props(executor, shareable);
  const Driver& driver = executor.driver();
  result = AllocateTwice(executor, bytes,
                         [&] { return driver->cuMemCreate(&memory->handle, bytes, &props, 0); });
  if (result == CUDA_SUCCESS) {
    place.Add(std::move(memory));
  } else {
    executor.ledger().Release(bytes);
  }
  return result;
}

// Any context, because memory of cuMemCreate is in none.
CUresult AwaitAllCopies(Executor& executor) {
  std::shared_ptr<Context> any;
  executor.objects().contexts.ForEach([&](const std::shared_ptr<Context>& context) {
    if (any == nullptr && !context->closing) any = context;
  });
  return any == nullptr ? CUDA_SUCCESS : AwaitCopies(executor, *any);
}

CUresult MakeExport(Executor& executor, MappableMemory* memory) {
  int fd = -1;
  const CUresult result = executor.driver()->cuMemExportToShareableHandle(
      &fd, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) return result;
  Export made;
  made.shared = Shared::kMappable;
  made.file = base::UniqueFd(fd);
  made.size = memory->bytes;
  made.charged = memory->bytes;
  memory->exported = executor.exports().Add(std::move(made));
  return memory->exported != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// What the client has released may still be open here, behind its work.
CUresult OpenExport(Executor& executor, wire::ByteView token, Exports::Opened* opened) {
  const CUresult result = executor.exports().Open(token, Shared::kMappable, 0, opened);
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  executor.reaper().WaitAll();
  return executor.exports().Open(token, Shared::kMappable, 0, opened);
}

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuAddressReserve_Request& request,
             rgpuAddressReserve_Reply* reply) {
  const uint64_t bytes = request.bytes;
  if (bytes == 0 || bytes % kPage != 0 || request.hint % kPage != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.alignment != 0 && !base::IsPowerOfTwo(request.alignment)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  VirtualMemory& memory = executor.objects().virtual_memory;
  if (Ranges::full() || bytes > kMostReservedBytes ||
      memory.reserved_bytes() > kMostReservedBytes - bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Driver& driver = executor.driver();
  CUdeviceptr dptr = 0;
  const CUresult result =
      driver->cuMemAddressReserve(&dptr, bytes, request.alignment, request.hint, 0);
  if (result == CUDA_SUCCESS) memory.Reserve(dptr, bytes);
  reply->dptr = dptr;
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuAddressFree_Request& request,
             rgpuAddressFree_Reply*) {
  const auto taken = executor.objects().virtual_memory.Take(request.dptr, request.bytes);
  if (taken == nullptr) return CUDA_ERROR_INVALID_VALUE;
  taken->freed = true;
  if (taken->held == 0) FreeAddresses(executor, request.dptr, request.bytes);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemCreate_Request& request,
             rgpuMemCreate_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return Create(executor, request.memory, request.bytes, false);
}

CUresult Run(Executor& executor, const Command&, const rgpuMemCreateShared_Request& request,
             rgpuMemCreateShared_Reply*) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (request.handles != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return Create(executor, request.memory, request.bytes, true);
}

// The reply refers to the bytes until it is sent, by this thread.
CUresult Run(Executor& executor, const Command&, const rgpuIpcExportMappable_Request& request,
             rgpuIpcExportMappable_Reply* reply) {
  executor.role().Yield();
  CUresult result = AwaitAllCopies(executor);
  std::shared_ptr<MappableMemory> memory;
  if (result == CUDA_SUCCESS) result = executor.objects().memories.Share(request.memory, &memory);
  if (result != CUDA_SUCCESS) return result;
  if (!memory->shareable || memory->import) return CUDA_ERROR_INVALID_VALUE;
  if (memory->exported == nullptr) result = MakeExport(executor, memory.get());
  if (result != CUDA_SUCCESS) return result;
  thread_local std::string token;
  token = executor.exports().Token(*memory->exported);
  reply->token = wire::Bytes(token);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuIpcImportMappable_Request& request,
             rgpuIpcImportMappable_Reply* reply) {
  Table<MappableMemory>::Reservation place(executor.objects().memories, request.memory);
  if (place.result() != CUDA_SUCCESS) return place.result();
  Exports::Opened opened;
  CUresult result = OpenExport(executor, request.token, &opened);
  if (result != CUDA_SUCCESS) return result;
  auto memory = std::make_shared<MappableMemory>();
  memory->shareable = true;
  memory->import = opened.import;
  memory->bytes = opened.size;
  void* file = reinterpret_cast<void*>(static_cast<intptr_t>(opened.file.get()));
  result =
      opened.file.valid() ? CheckGranular(executor, 0, opened.size) : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    result = executor.driver()->cuMemImportFromShareableHandle(
        &memory->handle, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  }
  if (result != CUDA_SUCCESS) {
    executor.exports().Close(opened.import);
    return result;
  }
  reply->bytes = memory->bytes;
  place.Add(std::move(memory));
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemRelease_Request& request,
             rgpuMemRelease_Reply*) {
  std::shared_ptr<MappableMemory> memory;
  const CUresult result = executor.objects().memories.Take(request.memory, &memory);
  if (result != CUDA_SUCCESS) return result;
  ReleaseMemory(executor, memory);
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemMap_Request& request,
             rgpuMemMap_Reply*) {
  CUresult result = CheckGranular(executor, request.dptr, request.bytes);
  if (result != CUDA_SUCCESS) return result;
  AwaitUnmaps(executor, request.dptr, request.bytes);
  if (executor.sticky() != CUDA_SUCCESS) return executor.sticky();
  std::shared_ptr<MappableMemory> memory;
  result = executor.objects().memories.Share(request.memory, &memory);
  if (result != CUDA_SUCCESS) return result;
  if (request.bytes > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (Ranges::full()) return CUDA_ERROR_OUT_OF_MEMORY;
  VirtualMemory& table = executor.objects().virtual_memory;
  if (!table.Map(request.dptr, request.bytes, memory)) return CUDA_ERROR_INVALID_VALUE;
  const Driver& driver = executor.driver();
  result = executor.Unlocked(
      [&] { return driver->cuMemMap(request.dptr, request.bytes, 0, memory->handle, 0); });
  if (result == CUDA_SUCCESS) {
    table.Find(request.dptr)->busy = false;
    return CUDA_SUCCESS;
  }
  table.Forget(request.dptr);
  if (memory->held == 0 && memory->released) GiveUp(executor, *memory);
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemUnmap_Request& request,
             rgpuMemUnmap_Reply*) {
  VirtualMemory& table = executor.objects().virtual_memory;
  const auto [first, end] = table.Tiling(request.dptr, request.bytes);
  if (first == end) return CUDA_ERROR_INVALID_VALUE;
  auto gone = std::make_shared<std::vector<std::pair<uint64_t, Mapping>>>(first, end);
  auto fences = std::make_shared<Fences>();
  executor.EverythingInAll(false, fences.get());
  for (const auto& [base, mapping] : *gone) {
    Range range;
    executor.objects().ranges.Take(base, &range);
    table.Remove(base);
    table.AddLeaving(base, mapping.bytes);
    mapping.memory->unmapped_behind = fences;
  }
  const Driver& driver = executor.driver();
  executor.reaper().AddBehind(
      *fences, nullptr,
      [&driver, gone] {
        for (const auto& [base, mapping] : *gone) driver->cuMemUnmap(base, mapping.bytes);
      },
      [&executor, gone] {
        for (const auto& [base, mapping] : *gone) LeaveMapping(executor, base, mapping);
      });
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemSetAccess_Request& request,
             rgpuMemSetAccess_Reply*) {
  const auto access = static_cast<int>(request.access);
  if (!base::IsMemoryAccess(access)) return CUDA_ERROR_INVALID_VALUE;
  VirtualMemory& table = executor.objects().virtual_memory;
  const auto [first, end] = table.Tiling(request.dptr, request.bytes);
  if (first == end) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (auto it = first; it != end; ++it) {
    it->second.busy = true;
    parts.emplace_back(it->first, it->second.bytes);
  }
  CUmemAccessDesc desc{};
  desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  desc.location.id = executor.device();
  desc.flags = static_cast<CUmemAccess_flags>(access);
  const Driver& driver = executor.driver();
  const CUresult result = executor.Unlocked(
      [&] { return driver->cuMemSetAccess(request.dptr, request.bytes, &desc, 1); });
  for (const auto& [base, bytes] : parts) {
    table.Find(base)->busy = false;
    if (result != CUDA_SUCCESS) continue;
    Range range;
    executor.objects().ranges.Take(base, &range);
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    executor.objects().ranges.Add(base, {bytes, Range::Kind::kMapped});
  }
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuMemGranularity_Request& request,
             rgpuMemGranularity_Reply* reply) {
  if (request.device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (request.option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return CUDA_ERROR_INVALID_VALUE;
  return Granularity(executor, request.option, &reply->bytes);
}

}  // namespace rgpu::exec
