// Host bytes that the worker asks the client for when a stream has come to the copy.
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
  uint64_t seq = 0;
  uint32_t thread = 0;
  uint32_t context = 0;
  std::vector<Piece> pieces;
  uint64_t from = 0;              // where in the copy the pieces begin
  std::vector<uint64_t> offsets;  // of the pieces in the copy
  std::vector<bool> received;     // by piece
  uint64_t missing_bytes = 0;
  bool asked = false;
  Frontier frontier;  // deliveries that the stream comes behind
  Stall stall;        // where the stream waits for them
};

class Pulls {
 public:
  explicit Pulls(Executor& executor) : executor_(executor) {}

  std::shared_ptr<Pull> Add(const std::shared_ptr<Pull>& pull);
  // Blocks the calling thread of the driver, which stands for the stream, until the bytes are here.
  void Fetch(Pull* pull);
  // A PULL_DATA frame of the control lane: reads its bulk into place.  False: nobody asked for it.
  bool OnData(transport::FrameReader& reader, uint64_t id, uint64_t offset, uint32_t bytes);
  // Lets go of every stream that waits for bytes.
  void BreakAll();

 private:
  Executor& executor_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<uint64_t, std::shared_ptr<Pull>> pulls_;
  uint64_t last_id_ = 0;
  bool broken_ = false;
};

}  // namespace rgpu::exec
