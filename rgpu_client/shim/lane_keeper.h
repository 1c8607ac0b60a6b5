// Keeps the lanes of a session connected: a thread for each that finds another connection when the
// one there is has been cut.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/zip/block_sender.h"
#include "rgpu_common/native/wire/resume.h"
#include "rgpu_common/native/wire/welcome.h"

namespace rgpu::shim {

// The ways to the server.  Shared by the session's lanes.
class Paths {
 public:
  // `current` is the one that the session was opened on.
  void Set(const std::string& current, const std::vector<std::string>& others);
  // All of them, in the order in which to try.
  std::vector<std::string> InOrder() const;
  std::string current() const;
  // A lane goes this way now.
  void Took(const std::string& uri);

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
  std::string current_;
};

class LaneKeeper {
 public:
  // `lane`, `paths` and `savings` live for ever.  savings null: the lane's links do not compress.
  LaneKeeper(transport::Lane* lane, wire::LaneName name, const wire::Welcome& welcome, Paths* paths,
             transport::zip::Savings* savings = nullptr);
  // From now on a cut is mended, or else the lane fails when its grace is over.
  bool Start();
  // The process ends: a cut is not mended any more.
  void Stop() { stopped_ = true; }
  // Goes over to another path while the one there is still works.  False: it goes on as it was,
  // and `*why` says why.
  bool Move(const std::string& uri, std::string* why);

 private:
  enum class Outcome : uint8_t { kAttached, kFailed, kOver };
  static void Run(void* keeper);
  void Reconnect();
  Outcome TryAll(std::string* why);
  // Connects, says RESUME and hears the answer.
  Outcome TryOne(const std::string& uri, int timeout_ms, std::string* why);
  Outcome HearAnswer(transport::Connection& link, uint64_t* received, std::string* why);

  transport::Lane* const lane_;
  const wire::LaneName name_;
  const uint64_t session_;
  const std::array<uint8_t, wire::kSecretBytes> secret_;
  Paths* const paths_;
  transport::zip::Savings* const savings_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;    // one new connection at a time
  uint32_t epoch_ = 0;  // mutex_
};

}  // namespace rgpu::shim
