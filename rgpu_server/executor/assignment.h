// What a worker is told about its one session.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::exec {

inline constexpr char kRelease[] = "0.1.0";

// Types of messages on the control socket (rgpu_server/workers/DESIGN.md).
enum class Message : uint32_t {
  kAssign = 1,
  kAttach = 2,
  kEnd = 3,
  kResume = 4,
  kReady = 16,
  kOpened = 17,
  kRefused = 18,
  kEnded = 19,
  kResumed = 20,
};

// What became of the ring in shared memory that a client may wish, as OPENED says it.
enum class Ring : uint8_t {
  kNotWished = 0,
  kUsed = 1,
  // The session goes on over the socket, since
  kNotLocal = 2,  // its commands do not come over a Unix socket;
  kNotMade = 3,   // this system gave no memory for it;
  kDeclined = 4,  // the client could not take it.
};

struct Assignment {
  uint64_t session = 0;
  std::array<uint8_t, wire::kSecretBytes> secret{};
  uint32_t slot = 0;
  uint64_t memory_limit_bytes = 0;
  uint32_t stream_credits = 512;
  uint64_t stream_credit_bytes = 16U << 20;
  int32_t device = 0;         // ordinal of the library
  bool whole_device = false;  // development mode: no lease, all of the device's memory
  std::string tenant;
  std::vector<std::string> environment;  // K=V
  std::vector<uint8_t> hello;            // the head as received
  // How long the session may be without a connection; 0: not at all.
  uint32_t resume_grace_ms = 0;
  bool compression = false;  // may be granted
  base::UniqueFd signal;     // the lease's eventfd, for the token loop; invalid in development mode
};

// False: the message does not decode.
bool ReadAssignment(wire::Reader& reader, Assignment* assignment);

// Sends one message of `type` with what `put` appends.
template <typename F>
bool Say(int socket, Message type, F&& put) {
  std::vector<uint8_t> bytes;
  wire::Writer writer(&bytes);
  writer.Put(type);
  put(writer);
  return base::SendMessage(socket, bytes.data(), bytes.size());
}

}  // namespace rgpu::exec
