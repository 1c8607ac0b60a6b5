// Copies that the client makes by itself, in memory that it shares with the device.  The stream
// stands still at its place for the copy until the client says that it is done; so what was issued
// before is complete, and what comes behind, frees included, waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "gen/cuda_abi.gen.h"
#include "rgpu_server/executor/stalls.h"

namespace rgpu::exec {

class Executor;
struct Context;

struct Direct {
  Executor* executor = nullptr;
  uint64_t ticket = 0;
  uint64_t ns = 0;  // predicted, and charged
  Stall stall;
  bool reached = false;  // the stream is there
  bool done = false;     // the client is
};

class Directs {
 public:
  explicit Directs(Executor& executor) : executor_(executor) {}

  // The client has the device's memory.
  void Allow() { allowed_ = true; }
  bool allowed() const { return allowed_; }

  // `reached`: nothing is before it, so the client need not wait for the stream's thread.
  std::shared_ptr<Direct> Add(uint64_t ns, bool reached);
  // In the stream's thread: tells that it is there, waits for the client.
  void Hold(Direct& direct);
  // Waits, without the executor's lock, until the stream is there.  On an error the stream does not
  // wait any more.
  CUresult AwaitStream(const std::shared_ptr<Direct>& direct, const Context& context);
  // COPY_DONE.  False: nobody waits for it.
  bool Done(uint64_t ticket);

 private:
  bool WaitAWhile(Direct& direct, bool first);

  Executor& executor_;
  bool allowed_ = false;  // before the session is served
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint64_t, std::shared_ptr<Direct>> directs_;
  uint64_t last_ticket_ = 0;
};

}  // namespace rgpu::exec
