#include "rgpu_server/executor/ceiling.h"

#include <sys/resource.h>

#include <algorithm>

namespace rgpu::exec {

namespace {

// Mostly thread stacks, which count in full although little of them is touched: at worst 2,048
// streams with 2 MiB each. Beyond this a new stream gets CUDA_ERROR_OUT_OF_MEMORY.
constexpr uint64_t kOverheadBytes = uint64_t{4} << 30;
// NVIDIA's driver maps as much as it likes, including the program's pinned memory.
constexpr uint64_t kDriverOverheadBytes = uint64_t{32} << 30;

}  // namespace

uint64_t CeilingBytes(uint64_t lease_bytes, bool emulated) {
  const uint64_t overhead = emulated ? kOverheadBytes : kDriverOverheadBytes;
  return lease_bytes > UINT64_MAX - overhead ? UINT64_MAX : lease_bytes + overhead;
}

bool SetCeiling(uint64_t bytes) {
#ifdef RGPU_SANITIZED
  return bytes == 0;
#else
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return false;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, bytes);
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_DATA, &limit) == 0;
#endif
}

}  // namespace rgpu::exec
