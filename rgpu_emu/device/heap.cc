// Not part of the driver API: the heap as a file, for a worker that shares it with its client.
#include <cstdint>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/hostile.h"

// Returns the descriptor, which the library owns; call after cuInit. Returns -1 in hostile timing,
// in which the host cannot reach device memory, as with most real devices.
extern "C" __attribute__((visibility("default"))) int rgpu_emu_heap(uint64_t* base,
                                                                    uint64_t* bytes);

int rgpu_emu_heap(uint64_t* base, uint64_t* bytes) {
  const rgpu::emu::Arena& arena = rgpu::emu::TheDevice().arena;
  if (rgpu::emu::Hostile()) return -1;
  *base = arena.base();
  *bytes = arena.windows_base() - arena.base();
  return arena.heap_fd();
}
