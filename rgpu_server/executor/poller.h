// Watches what completes although no thread waits for it: markers (credits, staging memory),
// deliveries to the host, events that the client wants a notice for, fences of the reaper.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// An event or stream for which the client asked for a COMPLETED notice.
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

  // All of these: with the executor's lock held.
  // Puts a stream with outstanding work on the list. `quiet`: another thread waits for the work, so
  // the poller need not wake for it.
  void Add(const std::shared_ptr<Stream>& stream, bool quiet);
  // Sends a COMPLETED notice for the object's version once `point` is complete. Replaces the
  // object's earlier request.
  void Watch(const Watched& watched);
  // Polls, because there is something to watch.
  void Wake();
  // Polls often for a while, because a thread waits for something.
  void Hurry();
  // Finds completed work in all streams on the list.
  void AdvanceAll();
  // All streams with outstanding work, and perhaps others.
  const std::vector<std::shared_ptr<Stream>>& streams() const { return streams_; }
  // Called when the context is gone.
  void Remove(const Context& context);

 private:
  void Run();
  bool Tick(std::unique_lock<std::mutex>& lock);
  bool TickWatches();
  // Sends the stream's deliveries that are ready. Releases the lock while it writes.
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
