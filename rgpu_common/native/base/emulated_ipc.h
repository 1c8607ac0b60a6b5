// The 64 bytes of the emulated device's own handles for other processes. They name a descriptor:
// the file of exported memory, or the page of an exported event. A process that gets such a handle
// as bytes opens the descriptor under /proc. A worker, which cannot, receives the descriptor from
// the daemon and writes its number into the handle.
#pragma once

#include <cstdint>
#include <cstring>

namespace rgpu::base {

struct EmulatedIpc {
  static constexpr uint32_t kMemory = 0x4d454d31;
  static constexpr uint32_t kEvent = 0x45564e31;

  uint32_t kind = 0;
  int32_t process = 0;  // whose descriptor `fd` is; 0: of the process that opens the handle
  int32_t fd = -1;
  uint32_t reserved = 0;
  uint64_t offset = 0;  // of the allocation in the file
  uint64_t bytes = 0;   // of the allocation
  uint64_t file_bytes = 0;
  uint8_t unused[24] = {};
};
static_assert(sizeof(EmulatedIpc) == 64);

// `handle` has 64 bytes.
inline EmulatedIpc ReadIpc(const void* handle) {
  EmulatedIpc ipc;
  std::memcpy(&ipc, handle, sizeof ipc);
  return ipc;
}

inline void WriteIpc(const EmulatedIpc& ipc, void* handle) {
  std::memcpy(handle, &ipc, sizeof ipc);
}

}  // namespace rgpu::base
