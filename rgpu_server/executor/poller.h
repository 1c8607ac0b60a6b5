// Watches what completes without anybody waiting for it: markers (credits, staging), deliveries to
// the host, events that the client asked a notice for, fences of the reaper.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// An event or stream that the client asked a COMPLETED notice for.
struct Watched {
  uint64_t object = 0;
  uint64_t version = 0;
  uint32_t thread = 0;  // of a per-thread stream, else 0
  uint32_t context = 0;
  std::shared_ptr<Point> point;
};

class Poller {
 public:
  explicit Poller(Executor& executor) : executor_(executor) {}
  void Start();

  // All with the executor's lock held.
  // Something of `stream` is outstanding.  `quiet`: somebody waits for it, so it is not urgent
  // here.
  void Add(const std::shared_ptr<Stream>& stream, bool quiet);
  // A COMPLETED notice for the object's version once `point` is complete; replaces the object's
  // last.
  void Watch(const Watched& watched);
  // Something that somebody waits for is under way: look often.
  void Hurry();
  // Finds out what is complete in all streams that have something outstanding.
  void AdvanceAll();
  // All that have something outstanding, and perhaps others.
  const std::vector<std::shared_ptr<Stream>>& streams() const { return streams_; }
  // The context is gone.
  void Remove(const Context& context);

 private:
  void Run();
  bool Tick(std::unique_lock<std::mutex>& lock);
  bool TickWatches();
  // Sends what is ready of the stream's deliveries.  Lets go of the lock while it writes.
  bool SendDeliveries(Stream& stream, std::unique_lock<std::mutex>& lock);
  uint64_t Send(const Delivery& delivery, const Delivery::Chunk& chunk, bool last);

  Executor& executor_;
  std::condition_variable wakes_;
  bool asleep_ = false;
  bool slow_ = false;
  bool hurried_ = false;
  bool delivering_ = false;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<Watched> watched_;
};

}  // namespace rgpu::exec
