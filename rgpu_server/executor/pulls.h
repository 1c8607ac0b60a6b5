// Host bytes for a copy that the worker requests from the client when the stream has reached the
// copy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_server/executor/points.h"
#include "rgpu_server/executor/staging.h"

namespace rgpu::exec {

class Executor;

struct Pull {
  Executor* executor = nullptr;
  uint64_t id = 0;
  wire::FrameHeader command;  // the header of the copy that needs the bytes
  std::vector<Piece> pieces;
  uint64_t from = 0;              // offset in the copy where the pieces begin
  std::vector<uint64_t> offsets;  // of each piece, in the copy
  std::vector<bool> received;     // for each piece
  uint64_t missing_bytes = 0;
  bool asked = false;
  Frontier frontier;     // deliveries that precede the copy in its stream
  WaitPlace wait_place;  // where the stream waits for the bytes
};

class Pulls {
 public:
  explicit Pulls(Executor& executor) : executor_(executor) {}

  std::shared_ptr<Pull> Add(const std::shared_ptr<Pull>& pull);
  // Runs in a host function: asks the client for the bytes and blocks the stream until they are
  // here.
  void Fetch(Pull* pull);
  // Handles a PULL_DATA frame of the control lane: reads its bulk into its piece. Returns false if
  // the worker did not ask for it.
  bool OnData(transport::FrameReader& reader, uint64_t id, uint64_t offset, uint32_t bytes);

 private:
  Executor& executor_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<uint64_t, std::shared_ptr<Pull>> pulls_;
  uint64_t last_id_ = 0;
};

}  // namespace rgpu::exec
