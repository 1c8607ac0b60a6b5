// The way to the daemon, which is passed one end of a pair of sockets for each client.
#pragma once

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/fd.h"

namespace rgpu::gateway {

inline constexpr int kInnerTimeoutMs = 5000;

// Thread-safe. A gateway that connected to a socket of the daemon would need the daemon's user.
class Door {
 public:
  // fd: a SOCK_SEQPACKET socket. The Door owns it.
  explicit Door(int fd);
  // True if Enter would block until the daemon takes earlier clients.
  bool full() const;
  // Returns a connection to the daemon that begins with `preface`. Invalid if the daemon takes
  // none: errno and the log have the reason.
  base::UniqueFd Enter(const wire::Preface& preface) const;

 private:
  const base::UniqueFd fd_;
};

}  // namespace rgpu::gateway
