// Keeps the lanes of a session connected. Each lane has a thread that opens another connection when
// the lane's connection has been cut.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/zip/block_sender.h"

namespace rgpu::shim {

// The paths to the server. The session's lanes share them.
class Paths {
 public:
  // `current` is the path on which the session was opened.
  void Set(const std::string& current, const std::vector<std::string>& others);
  // All paths in the order in which to try them: the current one first.
  std::vector<std::string> InOrder() const;
  std::string current() const;
  // Makes `uri` the current path, because a lane has connected over it.
  void Took(const std::string& uri);

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
  std::string current_;
};

class LaneKeeper {
 public:
  // `lane`, `paths` and `savings` are never deleted. If `savings` is null, the lane's connections
  // do not compress.
  LaneKeeper(transport::Lane* lane, wire::LaneName name, const wire::Welcome& welcome, Paths* paths,
             transport::zip::Savings* savings = nullptr);
  // Set before Start: when no connection comes for this lane in time, `other` fails with it. Nobody
  // reads the control lane, so its failure alone would reach no caller.
  void FailWith(transport::Lane* other) { other_ = other; }
  // Starts the thread. After a cut it reconnects the lane, or fails the lane when its grace is
  // over.
  bool Start();
  // Called when the process ends: later cuts are not repaired.
  void Stop() { stopped_ = true; }
  // Moves the lane to another path while its connection still works. False: the lane stays on its
  // connection, and `*why` says why.
  bool Move(const std::string& uri, std::string* why);

 private:
  enum class Outcome : uint8_t { kAttached, kFailed, kOver };
  static void Run(void* keeper);
  void Reconnect();
  Outcome TryAll(std::string* why);
  // Connects, sends RESUME and reads the answer.
  Outcome TryOne(const std::string& uri, int timeout_ms, std::string* why);
  Outcome HearAnswer(transport::Connection& link, uint64_t* received, std::string* why);

  transport::Lane* const lane_;
  const wire::LaneName name_;
  const uint64_t session_;
  const std::array<uint8_t, wire::kSecretBytes> secret_;
  Paths* const paths_;
  transport::zip::Savings* const savings_;
  transport::Lane* other_ = nullptr;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;    // allows one new connection at a time
  uint32_t epoch_ = 0;  // mutex_
};

}  // namespace rgpu::shim
