#include "rgpu_common/native/base/memory.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace rgpu::base {

bool GuardedCopy(void* to, const void* from, size_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  while (bytes > 0) {
    const iovec local{const_cast<uint8_t*>(source), bytes};
    const iovec remote{at, bytes};
    const ssize_t done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (done <= 0) {
      if (done < 0 && errno != EFAULT) {  // the call is forbidden here, so copy without a guard
        std::memcpy(at, source, bytes);
        return true;
      }
      return false;
    }
    at += done;
    source += done;
    bytes -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace rgpu::base
