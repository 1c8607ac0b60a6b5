// The three ways to receive from a connection, as a value for code that passes them on to a link.
#pragma once

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

// kTry takes the bytes that have arrived. kGuarded does so into memory that may not be writable.
// kBlock waits for the first byte.
enum class How : uint8_t { kTry, kGuarded, kBlock };

inline IoResult Receive(Connection& link, void* to, size_t bytes, How how) {
  switch (how) {
    case How::kGuarded:
      return link.TryRecvGuarded(to, bytes);
    case How::kBlock:
      return link.Recv(to, bytes, -1);
    default:
      return link.TryRecv(to, bytes);
  }
}

}  // namespace rgpu::transport
