#include "rgpu_server/executor/executor.h"

#include <algorithm>
#include <utility>

#include "gen/codec.gen.h"
#include "gen/notices.gen.h"
#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/notice.h"
#include "rgpu_server/executor/printed.h"

namespace rgpu::exec {

namespace {

// Bounds a prediction, because the client may ask for any number of bytes.
constexpr uint64_t kMostPredictedBytes = 64U << 20;
constexpr size_t kFaultBytes = 1000;

// What the device says about the kernel that failed, as a part of a sentence.
std::string FaultOf(const Driver& driver) {
  char text[kFaultBytes];
  const size_t bytes = driver.fault == nullptr ? 0 : driver.fault(text, sizeof text);
  return bytes == 0 ? std::string() : ": " + std::string(text, bytes);
}

}  // namespace

Executor::Executor(const Driver& driver, Ledger& ledger, transport::Outbox& outbox, CUdevice device,
                   Lease lease)
    : driver_(driver),
      ledger_(ledger),
      outbox_(outbox),
      device_(device),
      host_calls_(*this),
      halt_watch_(std::make_shared<HaltWatch>(*this)),
      memory_(*this, ledger),
      order_(*this),
      poller_(*this),
      reaper_(*this),
      pulls_(*this),
      directs_(*this),
      exports_(*this),
      gate_(*this, lease.page, lease.slot, std::move(lease.signal)) {}

uint64_t Executor::Predict(const Command& command) const {
  const CommandWork work =
      WorkOf(static_cast<Opcode>(command.header.opcode), command.head, command.header.bulk_bytes);
  const uint64_t bytes = std::min(work.bytes, MostPredicted(work.bound));
  switch (work.kind) {
    case WorkKind::kNone:
      return 0;
    case WorkKind::kLaunch:
      return PredictLaunch(work);
    case WorkKind::kGraph:
      return PredictGraph(work);
    case WorkKind::kCopyIn:
      return copies_.in->Predict(bytes);
    case WorkKind::kCopyOut:
      return copies_.out->Predict(bytes);
    case WorkKind::kCopyWithin:
      return copies_.within->Predict(bytes);
    case WorkKind::kSet:
      return copies_.set->Predict(bytes);
  }
  return 0;
}

uint64_t Executor::PredictLaunch(const CommandWork& launch) const {
  Function* function = nullptr;
  const CUresult found = launch.function != 0 ? objects_.functions.Find(launch.function, &function)
                                              : objects_.kernels.Find(launch.kernel, &function);
  return found == CUDA_SUCCESS ? function->estimate->Predict(1)
                               : static_cast<uint64_t>(kFirstKernelNs);
}

uint64_t Executor::PredictGraph(const CommandWork& launch) const {
  GraphExec* exec = nullptr;
  const CUresult found = objects_.execs.Find(launch.exec, &exec);
  return found == CUDA_SUCCESS ? exec->estimate->Predict(1) : static_cast<uint64_t>(kFirstKernelNs);
}

uint64_t Executor::MostPredicted(WorkBound bound) const {
  switch (bound) {
    case WorkBound::kPiece:
      return wire::kPieceBytes;
    case WorkBound::kFixed:
      return kMostPredictedBytes;
    case WorkBound::kLease:
      break;
  }
  return std::max(ledger_.limit(), kMostPredictedBytes);
}

void Executor::SetSticky(CUresult error, uint32_t context, const std::string& sentence) {
  // A program may end as soon as it has the error, so what its kernels have printed goes first.
  ForwardPrinted(outbox_);
  CUresult none = CUDA_SUCCESS;
  if (!sticky_.compare_exchange_strong(none, error)) return;
  wire::FrameHeader header = NoticeHeader(wire::Notice::kSticky);
  header.status = static_cast<int32_t>(error);
  header.context = context;
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  Put(writer, wire::Sticky{context, wire::Bytes(sentence)});
  frame.End();
  outbox_.Post(frame);
  changed_.notify_all();
}

void Executor::Check(CUresult result, uint32_t context) {
  if (!IsSticky(result)) return;
  const char* name = nullptr;
  driver_->cuGetErrorName(result, &name);
  SetSticky(result, context,
            std::string("the device reported ") + (name ? name : "an error") +
                " in work submitted earlier" + FaultOf(driver_) +
                "; the session cannot go on, start the program again");
}

void Executor::Tell(Told kind, const std::string& sentence) {
  if ((told_ & static_cast<uint32_t>(kind)) != 0) return;
  told_ |= static_cast<uint32_t>(kind);
  constexpr uint32_t kError = 1;
  const wire::FrameHeader header = NoticeHeader(wire::Notice::kLog);
  wire::Writer writer = notices(0).Begin(header);
  Put(writer, wire::Log{kError, wire::Bytes(sentence)});
  notices_.End();
}

void Executor::FlushNotices() {
  memory_.credit().Tell();
  if (notices_.empty()) return;
  transport::FrameBuffer frames;
  frames.swap(notices_);
  const uint64_t behind = std::exchange(notices_behind_, 0);
  Unlocked([&] { return outbox_.Post(frames, false, behind); });
}

void Executor::HandOverNotices() {
  memory_.credit().Tell();
  if (notices_.empty()) return;
  outbox_.Post(notices_, true, std::exchange(notices_behind_, 0));
  notices_.clear();
}

}  // namespace rgpu::exec
