#include "rgpu_emu/device/function.h"

#include <algorithm>

#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

constexpr int kSharedGranule = 128;
constexpr int kRegisterGranule = 256;  // per warp
constexpr int kBinaryVersion = kComputeMajor * 10 + kComputeMinor;

int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

// Returns what is left of a maximum for dynamic shared memory, beside static shared memory.
int DynamicRoom(const EntryInfo& entry, int maximum) {
  return std::max(0, maximum - static_cast<int>(entry.static_shared_bytes));
}

}  // namespace

int SmCountFor(unsigned threads) { return static_cast<int>(std::clamp(threads, 1U, 108U)); }
int SmCount() { return SmCountFor(TheDevice().runner->threads()); }

int MaxThreads(const EntryInfo& entry) {
  const auto own = static_cast<int>(entry.max_threads);
  return own == 0 ? kMaxThreadsPerBlock : std::min(own, kMaxThreadsPerBlock);
}

bool IsRequiredBlock(const EntryInfo& entry, const uint32_t (&block)[3]) {
  return entry.required_x == 0 || (block[0] == entry.required_x && block[1] == entry.required_y &&
                                   block[2] == entry.required_z);
}

uint64_t MaxDynamicShared(const EntryInfo& entry, const FunctionState& state) {
  const int set = state.max_dynamic_shared.load();
  return static_cast<uint64_t>(set >= 0 ? set : DynamicRoom(entry, kSharedPerBlock));
}

CUresult ParamInfoOf(const EntryInfo& entry, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= entry.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = entry.params[index].offset;
  if (size != nullptr) *size = entry.params[index].size;
  return CUDA_SUCCESS;
}

CUresult GetAttribute(const EntryInfo& entry, const FunctionState& state,
                      CUfunction_attribute attribute, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = MaxThreads(entry);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(entry.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(entry.const_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(entry.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(entry.registers);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = static_cast<int>(entry.target);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = kBinaryVersion;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(MaxDynamicShared(entry, state));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = state.carveout.load();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = state.non_portable_cluster.load();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAttribute(const EntryInfo& entry, FunctionState* state, CUfunction_attribute attribute,
                      int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > DynamicRoom(entry, kSharedPerBlockOptIn))
        return CUDA_ERROR_INVALID_VALUE;
      state->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      state->carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      state->non_portable_cluster = value != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int BlocksPerSm(const EntryInfo& entry, int block_size, uint64_t dynamic_shared) {
  if (block_size > MaxThreads(entry)) return 0;
  const int warps = (block_size + kWarpSize - 1) / kWarpSize;
  int blocks = std::min(kBlocksPerSm, kThreadsPerSm / (warps * kWarpSize));
  const uint64_t shared = entry.static_shared_bytes + dynamic_shared;
  if (shared > static_cast<uint64_t>(kSharedPerBlockOptIn)) return 0;
  const int per_block = RoundUp(static_cast<int>(shared) + kSharedReserved, kSharedGranule);
  blocks = std::min(blocks, kSharedPerSm / per_block);
  const int registers =
      RoundUp(std::max(1, static_cast<int>(entry.registers)) * kWarpSize, kRegisterGranule) * warps;
  // The register count is an estimate of at most kRegistersPerSm / kMaxThreadsPerBlock, so a block
  // is never refused because of it.
  return std::min(blocks, std::max(1, kRegistersPerSm / registers));
}

CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function) {
  return FindFunctionIn(nullptr, handle, function);
}

CUresult FindFunctionIn(std::shared_ptr<Context> context, CUfunction handle,
                        std::shared_ptr<Function>* function) {
  Device& device = TheDevice();
  *function = device.functions.Find(Raw(handle));
  if (*function != nullptr) return CUDA_SUCCESS;
  const auto kernel = device.kernels.Find(Raw(handle));
  const auto library = kernel == nullptr ? nullptr : kernel->library();
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult found = context == nullptr ? CurrentContext(&context) : CUDA_SUCCESS;
  if (found != CUDA_SUCCESS) return found;
  std::shared_ptr<Module> module;
  const Outcome loaded = library->ModuleIn(context, &module);
  if (!loaded.ok()) return loaded.result;
  *function = module->FunctionOf(kernel->entry, kernel->state);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu

extern "C" __attribute__((visibility("default"))) void rgpu_emu_required_block(CUfunction function,
                                                                               uint32_t* block);

// Sets the block that .reqntid demands of every launch of a function or kernel; zeros: none.
void rgpu_emu_required_block(CUfunction function, uint32_t* block) {
  using rgpu::emu::Raw;
  const rgpu::emu::EntryInfo* entry = nullptr;
  rgpu::emu::Device& device = rgpu::emu::TheDevice();
  const auto found = device.functions.Find(Raw(function));
  const auto kernel = device.kernels.Find(Raw(function));
  const auto library = kernel == nullptr ? nullptr : kernel->library();
  if (found != nullptr) entry = &found->info();
  if (library != nullptr) entry = &library->code()->info().entries[kernel->entry];
  block[0] = entry == nullptr ? 0 : entry->required_x;
  block[1] = entry == nullptr ? 0 : entry->required_y;
  block[2] = entry == nullptr ? 0 : entry->required_z;
}
