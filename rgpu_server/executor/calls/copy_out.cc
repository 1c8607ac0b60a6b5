// Copies to the host: parked ones answer with DATA frames, posted ones with DELIVERY frames later.
#include <deque>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr size_t kInFlight = 6;               // portions between the device and the connection
constexpr uint32_t kInlineBytes = 64U << 10;  // these go out in one write with the reply
constexpr int kPeerTimeoutMs = 30'000;

// One portion on its way.
struct Portioned {
  Portion portion;
  Piece piece;
  std::shared_ptr<Point> point;
};

CUresult Start(Executor& executor, const Target& target, const Rows& rows, uint64_t offset,
               Portioned* started) {
  started->portion = PortionAt(rows, offset);
  CUresult result = target.context->staging->Take(started->portion.bytes(), &started->piece);
  if (result != CUDA_SUCCESS) return result;
  result = executor.Issue(*target.stream, {0, started->piece.keep}, [&](CUstream stream) {
    return CopyOut(executor.driver(), started->portion, rows.pitch, started->piece.data, stream);
  });
  if (result != CUDA_SUCCESS) return result;
  return executor.EverythingIn(*target.stream, true, &started->point);
}

wire::FrameHeader DataHeader(const Command& command) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kData;
  header.opcode = command.header.opcode;
  header.seq = command.header.seq;
  header.thread = command.header.thread;
  header.context = command.header.context;
  return header;
}

// Sends one portion; the lock is let go of while the connection has no room.
bool SendData(Executor& executor, const Command& command, const Portioned& part, bool only) {
  wire::FrameHeader header = DataHeader(command);
  header.watermark = executor.deliveries_sent();
  const uint64_t offset = part.portion.offset;
  if (only && part.piece.size <= kInlineBytes) {
    command.out->Begin(header).Put(offset);
    return command.out->EndWithBulk(part.piece.data, part.piece.size);
  }
  return executor.Unlocked([&] {
    return executor.outbox().WaitRoom(kPeerTimeoutMs) &&
           executor.outbox().PostBulk(header, wire::Bytes(&offset, sizeof offset),
                                      {part.piece.data, part.piece.size}, part.piece.keep);
  });
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuCopyDtoH_Request& request,
             rgpuCopyDtoH_Reply*) {
  Target target;
  CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  uint64_t total = 0;
  const Rows rows{request.src, request.pitch, request.width, request.height};
  result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS || total == 0) return result;
  executor.ledger().CountCopy(total);
  std::deque<Portioned> parts;
  uint64_t started = 0;
  while (started < total || !parts.empty()) {
    while (started < total && parts.size() < kInFlight) {
      if (target.context->dead) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      parts.emplace_back();
      result = Start(executor, target, rows, started, &parts.back());
      if (result != CUDA_SUCCESS) return result;
      started += parts.back().portion.bytes();
    }
    result = executor.Wait(parts.front().point, target.context->id);
    if (result != CUDA_SUCCESS) return result;
    if (!SendData(executor, command, parts.front(), parts.front().piece.size == total)) {
      return CUDA_ERROR_EXTERNAL_DEVICE;  // the client reads no more
    }
    parts.pop_front();
  }
  if (!target.context->dead) executor.Advance(*target.stream);
  return CUDA_SUCCESS;
}

namespace {

CUresult StartDelivery(Executor& executor, const Target& target, const Rows& rows, uint64_t total,
                       Delivery* delivery) {
  for (uint64_t offset = 0; offset < total;) {
    Portioned part;
    const CUresult result = Start(executor, target, rows, offset, &part);
    if (result != CUDA_SUCCESS) return result;
    offset += part.portion.bytes();
    delivery->chunks.push_back({std::move(part.point), std::move(part.piece), part.portion.offset});
  }
  return CUDA_SUCCESS;
}

// The client waits for the delivery of this command; nothing comes but the error.
void FailDelivery(Executor& executor, const Command& command, CUresult result) {
  wire::FrameHeader header = DataHeader(command);
  header.kind = wire::Kind::kDelivery;
  header.flags = wire::kLast;
  header.status = static_cast<int32_t>(result == kDropped ? CUDA_ERROR_INVALID_HANDLE : result);
  executor.CountDelivery();
  header.watermark = executor.deliveries_sent();
  executor.notices().Begin(header).Put(uint64_t{0});
  executor.notices().End();
}

CUresult Deliver(Executor& executor, const Command& command,
                 const rgpuCopyDtoHLater_Request& request) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  uint64_t total = 0;
  const Rows rows{request.src, request.pitch, request.width, request.height};
  result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS) return result;
  executor.ledger().CountCopy(total);
  Stream& stream = *target.stream;
  auto delivery = std::make_shared<Delivery>();
  delivery->stream = &stream;
  delivery->seq = command.header.seq;
  delivery->thread = command.header.thread;
  delivery->context = command.header.context;
  result = StartDelivery(executor, target, rows, total, delivery.get());
  if (result != CUDA_SUCCESS) return result;
  if (total == 0) {
    FailDelivery(executor, command, CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  // Deliveries of one stream go out in order, so the last one stands for those before it.
  std::erase_if(stream.frontier,
                [&](const auto& other) { return other->done || other->stream == &stream; });
  stream.frontier.push_back(delivery);
  stream.deliveries.push_back(std::move(delivery));
  ++stream.issued;  // so that the next point in the stream comes behind the delivery
  ++target.context->deliveries;
  executor.poller().Add(target.stream, false);
  executor.poller().Hurry();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Run(Executor& executor, const Command& command, const rgpuCopyDtoHLater_Request& request,
             rgpuCopyDtoHLater_Reply*) {
  const CUresult result = Deliver(executor, command, request);
  if (result != CUDA_SUCCESS) FailDelivery(executor, command, result);
  return result;
}

}  // namespace rgpu::exec
