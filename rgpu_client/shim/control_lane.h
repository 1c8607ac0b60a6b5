// The control lane: the session's second connection, which the worker reads independently of the
// command stream.  BYE and the answers to PULL go this way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "rgpu_client/shim/host_region.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/wire/welcome.h"

namespace rgpu::shim {

class ControlLane {
 public:
  // Connects and says which session it belongs to, without waiting for the answer.
  // A server that grants a grace makes it a lane that survives cuts.
  bool Attach(const std::string& uri, const wire::Welcome& welcome);
  // That lane, or null.
  transport::Lane* lane() const { return lane_; }

  // `bytes` of `source` from `offset` on, as the answer to pull `pull`.
  bool SendPulled(uint64_t pull, uint64_t offset, uint64_t bytes, const HostRegion& source);
  // The bytes of a direct copy are in place.
  bool SendCopyDone(uint64_t ticket);
  // The session ends in good order.  Waits at most `timeout_ms` for the connection to take it.
  void Bye(int timeout_ms);
  // In a forked child.
  void Abandon();

 private:
  bool Send(transport::FrameBuffer& frame, const HostRegion* bulk, uint64_t offset, uint64_t bytes);

  std::mutex mutex_;
  std::unique_ptr<transport::Connection> connection_;
  transport::Lane* lane_ = nullptr;  // connection_, if it is one
};

}  // namespace rgpu::shim
