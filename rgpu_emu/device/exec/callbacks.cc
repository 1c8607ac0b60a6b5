// Functions that kernels may call. All run inside RunGuarded, so they must read device memory
// before they take locks.
#include <time.h>

#include <cstdio>

#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/exec/grid_state.h"
#include "rgpu_emu/device/exec/printf_format.h"
#include "rgpu_emu/device/exec/texture_ops.h"

namespace rgpu::emu {
namespace {

constexpr size_t kFormatBytes = 4096;
constexpr size_t kRecordBytes = 16384;

DeviceReader Reader(const BlockInfo* block) {
  return {block->launch->band_base, block->launch->band_bytes};
}

void Trap(BlockInfo*, uint32_t result) {
  LeaveGuarded(result == 0 ? int{CUDA_ERROR_LAUNCH_FAILED} : static_cast<int>(result));
}

int32_t Vprintf(BlockInfo* block, uint64_t format, uint64_t arguments) {
  if (format == 0) return -1;
  char text[kFormatBytes];
  char record[kRecordBytes];
  const DeviceReader reader = Reader(block);
  reader.String(format, text, sizeof(text));
  const FormattedText formatted = FormatDevice(reader, text, arguments, record, sizeof(record));
  Grid::Of(block)->printf()->Push({record, formatted.bytes});
  return formatted.arguments;
}

// The thread ends, and the others go on: CUDA prints a line for each thread that fails.
void AssertFail(BlockInfo* block, uint64_t message, uint64_t file, uint32_t line, uint64_t function,
                uint64_t, uint32_t x, uint32_t y, uint32_t z) {
  char text[3][512] = {"", "", ""};
  const uint64_t addresses[3] = {message, file, function};
  const DeviceReader reader = Reader(block);
  for (int i = 0; i < 3; ++i) {
    if (addresses[i] != 0) reader.String(addresses[i], text[i], sizeof(text[i]));
  }
  char record[2048];
  const uint32_t* at = block->ctaid;
  std::snprintf(record, sizeof(record),
                "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                text[1], line, text[2], at[0], at[1], at[2], x, y, z, text[0]);
  Grid::Of(block)->asserts()->Push(record);
  const uint32_t thread[3] = {x, y, z};
  Grid::Of(block)->FailAssert(block->ctaid, thread);
}

uint64_t Malloc(BlockInfo* block, uint64_t bytes) {
  DeviceServices* services = Grid::Of(block)->options().services;
  return services == nullptr ? 0 : services->DeviceMalloc(bytes);
}

void Free(BlockInfo* block, uint64_t address) {
  DeviceServices* services = Grid::Of(block)->options().services;
  if (services != nullptr && address != 0) services->DeviceFree(address);
}

uint64_t GlobalTimer() {
  struct timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t FunctionAddress(BlockInfo* block, uint64_t token) {
  const std::vector<uint64_t>& functions = Grid::Of(block)->kernel().functions();
  const uint64_t ordinal = token - kFunctionToken;
  if (ordinal >= functions.size() || functions[ordinal] == 0) LeaveGuarded(CUDA_ERROR_INVALID_PC);
  return functions[ordinal];
}

void Texture(BlockInfo*, TextureCall* call) {
  const TextureFault fault = RunTexture(call);
  if (fault != TextureFault::kNone) LeaveGuarded(static_cast<int>(fault));
}

}  // namespace

const KernelRuntime* Callbacks() {
  static const KernelRuntime table = {Trap, AssertFail,  Vprintf,         Malloc,
                                      Free, GlobalTimer, FunctionAddress, Texture};
  return &table;
}

}  // namespace rgpu::emu
