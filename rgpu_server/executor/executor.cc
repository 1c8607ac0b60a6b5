#include "rgpu_server/executor/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gen/codec.gen.h"
#include "gen/opcodes.gen.h"

namespace rgpu::exec {

namespace {

// Bounds a prediction, because the client may ask for any number of bytes.
constexpr uint64_t kMostPredictedBytes = 64U << 20;

// Returns the bytes of a copy or set, at most `most`.
template <typename Request>
uint64_t BytesOf(const Command& command, uint64_t most) {
  Request request;
  wire::Reader fields(command.head.data, command.head.size);
  if (!Get(fields, &request)) return 0;
  uint64_t bytes = 0;
  if constexpr (requires { request.bytes; }) {
    bytes = request.bytes;
  } else if (__builtin_mul_overflow(request.width, request.height, &bytes)) {
    return most;
  }
  if constexpr (requires { request.element_bytes; }) {
    if (__builtin_mul_overflow(bytes, uint64_t{request.element_bytes}, &bytes)) return most;
  }
  return std::min(bytes, most);
}

}  // namespace

Executor::Executor(const Driver& driver, Ledger& ledger, transport::Outbox& outbox, CUdevice device,
                   Lease lease)
    : driver_(driver),
      ledger_(ledger),
      outbox_(outbox),
      device_(device),
      memory_(*this, ledger),
      order_(*this),
      poller_(*this),
      reaper_(*this),
      pulls_(*this),
      directs_(*this),
      gate_(*this, lease.page, lease.slot, std::move(lease.signal)) {}

uint64_t Executor::PredictCopy(const Command& command, uint64_t most) const {
  switch (static_cast<Opcode>(command.header.opcode)) {
    case Opcode::rgpuCopyInDirect:
      return copies_.in->Predict(BytesOf<rgpuCopyInDirect_Request>(command, kMostPredictedBytes));
    case Opcode::rgpuCopyOutDirect:
      return copies_.out->Predict(BytesOf<rgpuCopyOutDirect_Request>(command, kMostPredictedBytes));
    case Opcode::rgpuCopyHtoDPull:
      return copies_.in->Predict(BytesOf<rgpuCopyHtoDPull_Request>(command, most));
    case Opcode::rgpuCopyDtoH:  // asks the gate again for each piece
      return copies_.out->Predict(BytesOf<rgpuCopyDtoH_Request>(command, wire::kPieceBytes));
    case Opcode::rgpuCopyDtoHLater:
      return copies_.out->Predict(BytesOf<rgpuCopyDtoHLater_Request>(command, most));
    case Opcode::rgpuCopyDtoD:
      return copies_.within->Predict(BytesOf<rgpuCopyDtoD_Request>(command, most));
    case Opcode::rgpuMemset:
      return copies_.set->Predict(BytesOf<rgpuMemset_Request>(command, most));
    default:
      return copies_.in->Predict(command.header.bulk_bytes);
  }
}

uint64_t Executor::Predict(const Command& command) const {
  // The client may ask for any number of bytes; a copy of more than the lease holds is refused
  // later.
  if (static_cast<Opcode>(command.header.opcode) != Opcode::rgpuLaunch) {
    return PredictCopy(command, std::max(ledger_.limit(), kMostPredictedBytes));
  }
  uint64_t ids[2] = {};  // function and kernel: the first two fields
  if (command.head.size >= sizeof ids) std::memcpy(ids, command.head.data, sizeof ids);
  Function* function = nullptr;
  const CUresult found = ids[0] != 0 ? objects_.functions.Find(ids[0], &function)
                                     : objects_.kernels.Find(ids[1], &function);
  return found == CUDA_SUCCESS ? function->estimate->Predict(1)
                               : static_cast<uint64_t>(kFirstKernelNs);
}

void Executor::SetSticky(CUresult error, uint32_t context, const std::string& sentence) {
  CUresult none = CUDA_SUCCESS;
  if (!sticky_.compare_exchange_strong(none, error)) return;
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(wire::Notice::kSticky);
  header.status = static_cast<int32_t>(error);
  header.context = context;
  transport::FrameBuffer frame;
  wire::Writer writer = frame.Begin(header);
  writer.Put(context);
  writer.Put(wire::Bytes(sentence));
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
                " in work submitted earlier; the session cannot go on, start the program again");
}

void Executor::Tell(Told kind, const std::string& sentence) {
  if ((told_ & static_cast<uint32_t>(kind)) != 0) return;
  told_ |= static_cast<uint32_t>(kind);
  constexpr uint32_t kError = 1;
  wire::FrameHeader header;
  header.kind = wire::Kind::kNotice;
  header.opcode = static_cast<uint16_t>(wire::Notice::kLog);
  wire::Writer writer = notices(0).Begin(header);
  writer.Put(kError);
  writer.Put(wire::Bytes(sentence));
  notices_.End();
}

void Executor::FlushNotices() {
  if (notices_.empty()) return;
  transport::FrameBuffer frames;
  frames.swap(notices_);
  const uint64_t behind = std::exchange(notices_behind_, 0);
  Unlocked([&] { return outbox_.Post(frames, false, behind); });
}

void Executor::HandOverNotices() {
  if (notices_.empty()) return;
  outbox_.Post(notices_, true, std::exchange(notices_behind_, 0));
  notices_.clear();
}

}  // namespace rgpu::exec
