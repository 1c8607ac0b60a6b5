#include "rgpu_server/executor/graphs/steps.h"

#include <algorithm>
#include <atomic>

#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kMostSlots = 16;
// For all graphs of the session: a graph keeps its staging memory as long as it exists, and copies
// outside graphs need some too.
constexpr uint64_t kMaxGraphStagingBytes = kMaxStagingBytes / 2;
// A worker process serves one session.
std::atomic<uint64_t> g_reserved_bytes{0};

}  // namespace

GraphSteps::~GraphSteps() { g_reserved_bytes -= reserved_bytes_; }

CUresult GraphSteps::Reserve(Staging& staging, uint64_t most) {
  if (most == 0) return CUDA_SUCCESS;
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(most, wire::kPieceBytes));
  const uint64_t wanted = std::min(kMostSlots, (most + bytes - 1) / bytes);
  while (slots_.size() < wanted) {
    Piece slot;
    const bool room = g_reserved_bytes + bytes <= kMaxGraphStagingBytes;
    const CUresult result = room ? staging.Take(bytes, &slot) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) return slots_.empty() ? result : CUDA_SUCCESS;
    slots_.push_back(std::move(slot));
    reserved_bytes_ += bytes;
    g_reserved_bytes += bytes;
  }
  return CUDA_SUCCESS;
}

GraphStep* GraphSteps::Add(GraphStep::Kind kind, uint32_t node) {
  GraphStep& step = steps_.emplace_back();
  step.kind = kind;
  step.node = node;
  step.steps = this;
  step.place = steps_.size() - 1;
  using enum GraphStep::Kind;
  asks_client_ = asks_client_ || (kind != kValueBegin && kind != kValueEnd);
  return &step;
}

void GraphSteps::Close() {
  if (steps_.empty()) return;
  steps_.front().first = true;
  steps_.back().last = true;
}

void GraphSteps::Enter(const std::shared_ptr<GraphLaunch>& launch) {
  const std::lock_guard lock(mutex_);
  coming_.push_back(launch);
  if (launches_++ == 0) Expect(steps_.front());
}

void GraphSteps::Cancel() {
  const std::lock_guard lock(mutex_);
  if (!coming_.empty()) coming_.pop_back();
  const GraphStep& first = steps_.front();
  if (--launches_ == 0 && first.halt != nullptr) executor_.halt_watch()->Forget(*first.halt);
}

void GraphSteps::Expect(const GraphStep& step) {
  if (step.halt != nullptr) executor_.halt_watch()->Expect(step.halt);
}

// The graph is still at the halt of `step`.
void GraphSteps::ExpectNext(const GraphStep& step) {
  const std::lock_guard lock(mutex_);
  if (!step.last) {
    Expect(steps_[step.place + 1]);
  } else if (--launches_ > 0) {
    Expect(steps_.front());
  }
}

void GraphSteps::Run(void* step) {
  const auto* own = static_cast<GraphStep*>(step);
  own->steps->RunStep(*own);
}

std::shared_ptr<GraphLaunch> GraphSteps::LaunchOf(const GraphStep& step) {
  const std::lock_guard lock(mutex_);
  if (step.first && !coming_.empty()) {
    current_ = std::move(coming_.front());
    coming_.pop_front();
  }
  return step.last ? std::move(current_) : current_;
}

void GraphSteps::RunStep(const GraphStep& step) {
  Do(step);
  ExpectNext(step);
}

void GraphSteps::Do(const GraphStep& step) {
  // The launch keeps this object.
  const std::shared_ptr<GraphLaunch> launch = LaunchOf(step);
  if (launch == nullptr) return;  // the driver runs a launch that the worker does not know of
  const std::vector<bool>& enabled = *launch->enabled;
  if (step.node < enabled.size() && !enabled[step.node]) {
    // The client is not asked, but the stream passes the place.
    const Gate::ClientWait waits(executor_.gate(), launch->wait_place, step.last);
    return;
  }
  switch (step.kind) {
    case GraphStep::Kind::kCall:
      return Call(step, *launch);
    case GraphStep::Kind::kPull:
      return Pull(step, *launch);
    case GraphStep::Kind::kDeliver:
      return Deliver(step, *launch);
    case GraphStep::Kind::kValueBegin:
      return executor_.gate().BeginValueWait(launch->wait_place);
    case GraphStep::Kind::kValueEnd:
      return executor_.gate().GoOn(launch->wait_place, step.last);
  }
}

void GraphSteps::Call(const GraphStep& step, GraphLaunch& launch) {
  const auto call = std::make_shared<HostCall>(executor_);
  call->command = launch.command;
  call->node = step.node;
  call->frontier = launch.frontier;
  call->wait_place = launch.wait_place;
  call->last = step.last;
  executor_.host_calls().Add(*call);
  executor_.host_calls().Run(*call);
}

void GraphSteps::Pull(const GraphStep& step, GraphLaunch& launch) {
  const auto pull = std::make_shared<exec::Pull>();
  pull->command = launch.command;
  pull->from = step.parts.front().offset;
  for (const GraphStep::Part& part : step.parts) {
    pull->pieces.push_back({part.data, part.bytes, nullptr});
  }
  const Gate::ClientWait waits(executor_.gate(), launch.wait_place, step.last);
  executor_.AwaitInStream(&launch.frontier);
  executor_.pulls().Add(pull);
  executor_.pulls().Fetch(pull.get());
}

void GraphSteps::Deliver(const GraphStep& step, GraphLaunch& launch) {
  const Gate::ClientWait waits(executor_.gate(), launch.wait_place, step.last);
  executor_.AwaitInStream(&launch.frontier);
  for (const GraphStep::Part& part : step.parts) {
    wire::FrameHeader header;
    header.kind = wire::Kind::kDelivery;
    header.opcode = static_cast<uint16_t>(Opcode::rgpuGraphLaunch);
    header.seq = launch.command.seq;
    header.thread = launch.command.thread;
    header.context = launch.command.context;
    header.watermark = executor_.CountDelivery();
    // Blocks until the connection has the bytes: the next step uses the same staging memory.
    if (!executor_.outbox().SendBulk(header, wire::Bytes(&part.offset, sizeof part.offset),
                                     {part.data, part.bytes})) {
      return;
    }
  }
}

}  // namespace rgpu::exec
