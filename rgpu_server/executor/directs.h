// Direct copies: the client itself copies, in memory that it shares with the device (ADR 0012). A
// host function holds the stream at the copy's place until the client says COPY_DONE. So work
// issued before the copy is complete when the client copies, and later work, frees included, waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "gen/cuda_abi.gen.h"
#include "rgpu_server/executor/gate/client_waits.h"

namespace rgpu::exec {

class Executor;
struct Context;

struct Direct {
  Executor* executor = nullptr;
  uint64_t ticket = 0;
  uint64_t address = 0;  // on the device
  uint64_t bytes = 0;
  uint64_t ns = 0;  // predicted; charged to the lease
  WaitPlace wait_place;
  bool reached = false;  // the stream's host function runs (or nothing precedes it)
  bool done = false;     // the client has finished the copy
};

class Directs {
 public:
  explicit Directs(Executor& executor) : executor_(executor) {}

  // Called if the client has the device's memory mapped.
  void Allow() { allowed_ = true; }
  bool allowed() const { return allowed_; }

  // `reached`: nothing precedes the copy in the context, so the client need not wait until the
  // stream's thread runs the host function.
  std::shared_ptr<Direct> Add(uint64_t address, uint64_t bytes, uint64_t ns, bool reached);
  // Waits, without the executor's lock, until the copies that have begun in the range are over.
  CUresult AwaitBegun(uint64_t address, uint64_t bytes, const Context& context);
  // The host function: runs in the stream's thread, announces that the stream is there, and waits
  // for COPY_DONE.
  void Hold(Direct& direct);
  // Waits, without the executor's lock, until the stream is at the copy. After an error the stream
  // no longer waits for the client.
  CUresult AwaitStream(const std::shared_ptr<Direct>& direct, const Context& context);
  // Handles COPY_DONE. Returns false if no copy waits for this ticket.
  bool Done(uint64_t ticket);

 private:
  bool WaitAWhile(Direct& direct, bool first);
  bool OverAWhile(uint64_t address, uint64_t bytes);

  Executor& executor_;
  bool allowed_ = false;  // set before the session serves commands
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<uint64_t, std::shared_ptr<Direct>> directs_;
  uint64_t last_ticket_ = 0;
};

}  // namespace rgpu::exec
