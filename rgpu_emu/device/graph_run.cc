#include "rgpu_emu/device/graph_run.h"

#include <algorithm>
#include <utility>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_memory.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

bool IsStopped(const Context& context) {
  return context.failed().load() != CUDA_SUCCESS || context.Status() != CUDA_SUCCESS ||
         context.cancelled();
}

}  // namespace

GraphLanes::GraphLanes(Context* context, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    streams_.push_back(context->NewStream(StreamKind::kNonBlocking, 0));
    streams_.back()->MakeLane();
  }
}

GraphLanes::~GraphLanes() {
  for (const auto& stream : streams_) stream->Close();
}

GraphRun::GraphRun(std::shared_ptr<const GraphProgram> program, std::shared_ptr<Context> context,
                   std::shared_ptr<GraphLanes> lanes)
    : program_(std::move(program)), context_(std::move(context)), lanes_(std::move(lanes)) {
  std::map<const Event*, Fences> own;  // what earlier steps of this launch record
  const auto& steps = program_->layout->steps;
  done_.resize(steps.size());
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const GraphOperation* operation = OperationOf(steps[i]);
    if (operation == nullptr) continue;
    if (operation->record != nullptr) {
      auto record = std::make_shared<EventRecord>();
      auto latch = std::make_shared<Latch>();
      record->places.push_back({nullptr, 0, latch});
      own[operation->record.get()] = record->places;
      records_[i] = {operation->record, std::move(record), std::move(latch)};
    } else if (operation->wait != nullptr) {
      const auto mine = own.find(operation->wait.get());
      const auto current = operation->wait->Current();
      if (mine != own.end()) {
        waits_[i] = mine->second;
      } else if (current != nullptr) {
        waits_[i] = current->places;
      }
    }
  }
}

GraphRun::~GraphRun() {
  for (auto& [step, record] : records_) record.latch->Open();
}

void GraphRun::PublishRecords() {
  for (auto& [step, record] : records_) record.event->Replace(record.record);
}

const GraphOperation* GraphRun::OperationOf(const Step& step) const {
  return step.node == kNoNode ? nullptr : program_->operations[step.node].get();
}

bool GraphRun::Stopped() const {
  return failed_.load(std::memory_order_acquire) || IsStopped(*context_);
}

CUresult GraphRun::AssignValues() const {
  for (const graph::ConditionalHandle& value : program_->values) {
    if (!value.assigns) continue;
    const CUresult written = WriteConditional(value.value, value.initial);
    if (written != CUDA_SUCCESS) return written;
  }
  return CUDA_SUCCESS;
}

CUresult GraphRun::Run() {
  if (const CUresult bad = AssignValues(); bad != CUDA_SUCCESS) return bad;
  const bool alone = program_->layout->lanes.size() == 1;
  RunLane(alone ? program_->layout->lanes[0] : StartLanes());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
  return result_;
}

// Gives every lane but the first to its stream. Returns the steps that are left for this thread:
// those of the first lane, and of lanes that cannot have a thread.
std::vector<uint32_t> GraphRun::StartLanes() {
  const auto& lanes = program_->layout->lanes;
  std::vector<uint32_t> mine = lanes[0];
  for (size_t lane = 1; lane < lanes.size(); ++lane) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    Command command;
    command.always = true;  // it must say that it has ended
    command.inside = true;
    command.run = [self = shared_from_this(), &steps = lanes[lane]] {
      self->RunLane(steps);
      const std::lock_guard lock(self->mutex_);
      --self->running_;
      self->changed_.notify_all();
      return CUDA_SUCCESS;
    };
    if (lanes_->streams()[lane - 1]->Push(std::move(command)) == CUDA_SUCCESS) continue;
    const std::lock_guard lock(mutex_);
    --running_;
    mine.insert(mine.end(), lanes[lane].begin(), lanes[lane].end());
  }
  std::sort(mine.begin(), mine.end());
  return mine;
}

void GraphRun::RunLane(const std::vector<uint32_t>& steps) {
  for (const uint32_t number : steps) {
    AwaitSteps(program_->layout->steps[number]);
    RunStep(number);
  }
}

void GraphRun::AwaitSteps(const Step& step) {
  if (step.after.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::all_of(step.after.begin(), step.after.end(),
                       [&](uint32_t earlier) { return done_[earlier]; });
  });
}

void GraphRun::RunStep(uint32_t number) {
  const Step& step = program_->layout->steps[number];
  const GraphOperation* operation = OperationOf(step);
  HostilePause();
  if (operation != nullptr && !Stopped()) {
    if (const auto wait = waits_.find(number); wait != waits_.end()) WaitAll(wait->second);
    if (const auto record = records_.find(number); record != records_.end()) {
      record->second.record->Stamp();
      record->second.latch->Open();
    }
    if (const CUresult result = RunNode(*operation, step); result != CUDA_SUCCESS)
      Fail(operation, result);
  }
  HostilePause();
  if (program_->layout->lanes.size() == 1) return;
  const std::lock_guard lock(mutex_);
  done_[number] = true;
  changed_.notify_all();
}

CUresult GraphRun::RunNode(const GraphOperation& operation, const Step& step) {
  if (operation.context != nullptr && IsStopped(*operation.context)) return CUDA_SUCCESS;
  if (operation.conditional) return RunConditional(operation, step);
  if (!operation.run) return CUDA_SUCCESS;
  const CUresult result = operation.run();
  TheDevice().values.MemoryChanged();
  return result;
}

CUresult GraphRun::RunBody(const GraphLayout& body) {
  for (const Step& step : body.steps) {
    const GraphOperation* operation = OperationOf(step);
    if (operation == nullptr) continue;
    if (Stopped()) return CUDA_SUCCESS;
    HostilePause();
    const CUresult result = RunNode(*operation, step);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult GraphRun::RunConditional(const GraphOperation& operation, const Step& step) {
  const bool loops = operation.type == CU_GRAPH_COND_TYPE_WHILE;
  do {
    uint32_t value = 0;
    const CUresult read = ReadConditional(operation.handle, &value);
    if (read != CUDA_SUCCESS) return read;
    // IF has its second body for 0. The bodies of SWITCH are numbered by the value.
    size_t body = value;
    if (operation.type == CU_GRAPH_COND_TYPE_IF) body = value != 0 ? 0 : 1;
    if (loops) body = value != 0 ? 0 : SIZE_MAX;
    if (body >= step.bodies.size()) return CUDA_SUCCESS;
    const CUresult result = RunBody(*step.bodies[body]);
    if (result != CUDA_SUCCESS) return result;
  } while (loops && !Stopped());
  return CUDA_SUCCESS;
}

// The context fails before the launch counts as done.
void GraphRun::Fail(const GraphOperation* operation, CUresult result) {
  {
    const std::lock_guard lock(mutex_);
    if (result_ == CUDA_SUCCESS) result_ = result;
  }
  failed_.store(true, std::memory_order_release);
  (operation->context != nullptr ? operation->context : context_)->Fail(result);
}

}  // namespace rgpu::emu
