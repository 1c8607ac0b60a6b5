// The lanes of a session that survive a cut: wrapping them, and giving them new connections.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"
#include "rgpu_common/native/wire/resume.h"
#include "rgpu_server/executor/assignment.h"

namespace rgpu::exec {

class Links final : public transport::LaneWatcher {
 public:
  // What a lane's new connection was, for the daemon.
  struct Report {
    wire::LaneName lane = wire::LaneName::kCommand;
    uint32_t epoch = 0;
    bool moved = false;
    uint64_t resent_bytes = 0;
  };

  // Resumable if the client wishes it and the server grants it; compressed if both as well.
  explicit Links(const Assignment& assignment);

  // How long a lane may be without a connection; 0: the session is not resumable.
  uint32_t grace_ms() const { return grace_ms_; }
  // The links of the command lane may compress.
  bool compresses() const { return compresses_; }
  const transport::zip::Savings& savings() const { return savings_; }
  // A resumable session's lane around its first connection; else the connection itself.
  std::unique_ptr<transport::Connection> Wrap(wire::LaneName name,
                                              std::unique_ptr<transport::Connection> link);
  // From here on the lane's bytes are records, if it is one.  False: the client spoke too early.
  bool StartRecords(wire::LaneName name, const transport::FrameReader* reader);
  // Called, without locks, when a lane has a connection again.
  void OnBack(std::function<void()> back) { back_ = std::move(back); }

  // A lane has no connection: nothing new goes to the device.  Callable by any thread.
  bool suspended() const {
    for (const auto& lane : lanes_) {
      const transport::Lane* const here = lane.load(std::memory_order_acquire);
      if (here != nullptr && !here->linked()) return true;
    }
    return false;
  }
  // Why a lane was given up: a sentence, or empty.
  std::string Reason() const;

  // A new connection with a RESUME, for a lane that is there.  It is answered in any case.
  std::optional<Report> Resume(const wire::Resume& resume,
                               std::unique_ptr<transport::Connection> link);
  transport::Lane* lane(wire::LaneName name) const {
    return lanes_[static_cast<size_t>(name)].load();
  }
  // Whether a RESUME is this session's.
  bool Knows(const wire::Resume& resume) const;

  void OnCut() override;
  void OnLink() override;

 private:
  const uint64_t session_;
  const std::array<uint8_t, wire::kSecretBytes> secret_;
  uint32_t grace_ms_ = 0;
  bool compresses_ = false;
  transport::zip::Savings savings_;
  transport::zip::CompressedConnection* first_ = nullptr;  // the command lane's, until it starts
  std::atomic<transport::Lane*> lanes_[wire::kLanes] = {};
  std::function<void()> back_;
};

// Answers a RESUME that is not granted.  status: CUresult, or wire::kTryAgain.
void RefuseResume(transport::Connection& link, int32_t status, const std::string& sentence);

}  // namespace rgpu::exec
