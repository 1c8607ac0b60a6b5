#include "rgpu_common/native/transport/transport.h"

#include "rgpu_common/native/base/clock.h"

namespace rgpu::transport {

IoResult Connection::Recv(void* to, size_t bytes, int timeout_ms) {
  IoResult result = TryRecv(to, bytes);
  if (result.state != IoState::kWouldBlock || timeout_ms == 0) return result;
  const base::Deadline deadline(timeout_ms < 0 ? kRecvSliceMs : timeout_ms);
  while (result.state == IoState::kWouldBlock) {
    if (Wait(kReadable, deadline.left_ms()) == 0) break;
    result = TryRecv(to, bytes);
  }
  return result;
}

}  // namespace rgpu::transport
