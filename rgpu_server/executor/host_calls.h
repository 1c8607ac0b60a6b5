// Host functions. Their code is in the client: a host function of the worker's own holds the stream
// at that place until the client has run them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "rgpu_common/native/wire/frame.h"
#include "rgpu_server/executor/gate/client_waits.h"
#include "rgpu_server/executor/points.h"

namespace rgpu::exec {

class Executor;

// It lives as long as the stream's work after it, or as it runs. So one that the driver never runs,
// because its context has failed or is gone, leaves nothing behind.
struct HostCall : std::enable_shared_from_this<HostCall> {
  explicit HostCall(Executor& owner) : executor(owner) {}
  ~HostCall();
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

  Executor& executor;
  uint64_t id = 0;
  wire::FrameHeader command;     // the header of rgpuHostFunction or rgpuGraphLaunch
  std::optional<uint32_t> node;  // the graph's node
  Frontier frontier;             // deliveries that precede it in its stream
  WaitPlace wait_place;          // where the stream waits for the client
  bool last = true;              // the stream then passes that place
  bool asked = false;            // the client was told to run it
  bool done = false;
  std::condition_variable answered;
};

class HostCalls {
 public:
  explicit HostCalls(Executor& executor) : executor_(executor) {}

  void Add(HostCall& call);
  void Remove(const HostCall& call);
  // Runs in the stream's thread: tells the client to run the function, and waits until it has.
  void Run(HostCall& call);
  // Handles CALLBACK_DONE. Returns false if the client was not told to run this function, or has
  // answered already.
  bool Done(uint64_t id);

 private:
  Executor& executor_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, HostCall*> calls_;
  uint64_t last_id_ = 0;
};

}  // namespace rgpu::exec
