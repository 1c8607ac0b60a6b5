// Messages to the daemon.
#pragma once

#include <vector>

#include "gen/worker.gen.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::exec {

// Sends one message. Any thread may call it: a message is one packet.
template <typename T>
bool SayToDaemon(int socket, const T& message, const std::vector<int>& fds = {}) {
  std::vector<uint8_t> bytes;
  wire::Writer writer(&bytes);
  writer.Put(T::kType);
  wire::worker::Put(writer, message);
  return base::SendMessage(socket, bytes.data(), bytes.size(), fds);
}

}  // namespace rgpu::exec
