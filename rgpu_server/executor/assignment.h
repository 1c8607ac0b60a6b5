// What the daemon tells a worker about its one session (ASSIGN).
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

// Whether the session uses the ring in shared memory that a client may ask for (in OPENED).
enum class Ring : uint8_t {
  kNotWished = 0,
  kUsed = 1,
  // kNotLocal to kDeclined: the session stays on the socket, because
  kNotLocal = 2,  // the command lane is not a Unix socket;
  kNotMade = 3,   // this system gave no memory for the ring;
  kDeclined = 4,  // the client refused the ring.
};

struct Assignment {
  uint64_t session = 0;
  std::array<uint8_t, wire::kSecretBytes> secret{};
  uint32_t slot = 0;
  uint64_t memory_limit_bytes = 0;
  uint32_t stream_credits = 512;
  uint64_t stream_credit_bytes = 16U << 20;
  int32_t device = 0;         // device ordinal within the library
  bool whole_device = false;  // development mode: no lease; the limit is the whole device's memory
  std::string tenant;
  std::vector<std::string> environment;  // K=V
  std::vector<uint8_t> hello;            // the HELLO frame's head, as received
  // How long a lane of the session may have no connection; 0: the session cannot be resumed.
  uint32_t resume_grace_ms = 0;
  bool compression = false;  // the server allows compression if the client asks for it
  base::UniqueFd signal;     // the lease's eventfd, for the token loop; invalid in development mode
};

// Returns false if the message does not decode.
bool ReadAssignment(wire::Reader& reader, Assignment* assignment);

// Sends one message of `type`; `put(writer)` appends its body.
template <typename F>
bool Say(int socket, Message type, F&& put) {
  std::vector<uint8_t> bytes;
  wire::Writer writer(&bytes);
  writer.Put(type);
  put(writer);
  return base::SendMessage(socket, bytes.data(), bytes.size());
}

}  // namespace rgpu::exec
