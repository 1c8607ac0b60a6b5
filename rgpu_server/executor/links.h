// The lanes of a session that can be resumed: wraps them, and gives them new connections after a
// cut.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"
#include "rgpu_server/executor/assignment.h"

namespace rgpu::exec {

class Links final : public transport::LaneWatcher {
 public:
  // What happened when a lane got a new connection; reported to the daemon.
  struct Report {
    wire::LaneName lane = wire::LaneName::kCommand;
    uint32_t epoch = 0;
    bool moved = false;
    uint64_t resent_bytes = 0;
  };

  // The session is resumable if the client asks for it and the server grants it. The same holds for
  // compression.
  explicit Links(const Assignment& assignment);

  // How long a lane may have no connection; 0: the session is not resumable.
  uint32_t grace_ms() const { return grace_ms_; }
  // Whether connections of the command lane may compress.
  bool compresses() const { return compresses_; }
  const transport::zip::Savings& savings() const { return savings_; }
  // Returns a lane around its first connection if the session is resumable, else the connection.
  // epoch: the number of that connection.
  std::unique_ptr<transport::Connection> Wrap(wire::LaneName name,
                                              std::unique_ptr<transport::Connection> link,
                                              uint32_t epoch = 0);
  // From here on the lane's bytes travel as records, if the session is resumable. Returns false if
  // the client has sent bytes too early.
  bool StartRecords(wire::LaneName name, const transport::FrameReader* reader);
  // `back` is called, without locks, whenever a lane has a connection again.
  void OnBack(std::function<void()> back) { back_ = std::move(back); }

  // Returns true if a lane has no connection: nothing new may go to the device. Any thread may call
  // it.
  bool suspended() const {
    for (const auto& lane : lanes_) {
      const transport::Lane* const here = lane.load(std::memory_order_acquire);
      if (here != nullptr && !here->linked()) return true;
    }
    return false;
  }
  // Returns the sentence why a lane was given up, or an empty string.
  std::string Reason() const;

  // Answers a RESUME of a control lane that has no connection yet: its ATTACH was lost on the way.
  // Returns true if the lane may begin on `link`, as link number resume.epoch.
  static bool Begin(const wire::Resume& resume, transport::Connection& link);
  // Gives an existing lane the new connection of a RESUME. Always answers the client.
  std::optional<Report> Resume(const wire::Resume& resume,
                               std::unique_ptr<transport::Connection> link);
  transport::Lane* lane(wire::LaneName name) const {
    return lanes_[static_cast<size_t>(name)].load();
  }
  // Checks that a RESUME names this session and knows its secret.
  bool Knows(const wire::Resume& resume) const;

  void OnCut() override;
  void OnLink() override;

 private:
  const uint64_t session_;
  const std::array<uint8_t, wire::kSecretBytes> secret_;
  uint32_t grace_ms_ = 0;
  bool compresses_ = false;
  transport::zip::Savings savings_;
  // The command lane's first connection, until compression starts.
  transport::zip::CompressedConnection* first_ = nullptr;
  std::atomic<transport::Lane*> lanes_[wire::kLanes] = {};
  std::function<void()> back_;
};

// Answers a RESUME that is refused. status: a CUresult, or wire::kTryAgain.
void RefuseResume(transport::Connection& link, int32_t status, const std::string& sentence);

}  // namespace rgpu::exec
