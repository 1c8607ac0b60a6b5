// Handlers: copies to the host. A parked copy answers with DATA frames, a posted one with DELIVERY
// frames later.
#include <algorithm>
#include <deque>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/copies.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/in_place.h"
#include "rgpu_server/executor/long_copies.h"
#include "rgpu_server/executor/page_traffic.h"

namespace rgpu::exec {

namespace {

constexpr size_t kInFlight = 6;  // portions that are between the device and the connection at most
// At least this many are under way even when the device has finished the first, so that the device
// works while the first is sent.
constexpr size_t kLeastInFlight = 2;
// Below this, waking the stream's thread costs more than it saves.
constexpr uint64_t kInPlaceBytes = 1U << 20;
// Portions up to this size are sent in one write with the reply.
constexpr uint32_t kInlineBytes = 64U << 10;

// One portion on its way from the device to the connection.
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
  const uint64_t bytes = started->portion.bytes();
  uint64_t all = 0;
  rows.Total(&all);
  const Work work{0, started->piece.keep,
                  CountedCopy(executor, *target.stream, executor.copies().out, bytes, all), bytes};
  result = executor.order().Issue(*target.stream, work, [&](CUstream stream) {
    return CopyOut(executor.driver(), rows, started->portion, started->piece.data, stream);
  });
  if (result != CUDA_SUCCESS) return result;
  return executor.order().EverythingIn(*target.stream, true, &started->point);
}

bool IsDone(Executor& executor, const Portioned& part) {
  return part.point == nullptr || executor.Query(*part.point) == CUDA_SUCCESS;
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

// Sends one portion. Releases the lock while the connection has no room.
bool SendData(Executor& executor, const Command& command, const Portioned& part, bool only) {
  wire::FrameHeader header = DataHeader(command);
  header.watermark = executor.deliveries_sent();
  const uint64_t offset = part.portion.offset;
  if (only && part.piece.size <= kInlineBytes) {
    command.out->Begin(header).Put(offset);
    return command.out->EndWithBulk(part.piece.data, part.piece.size);
  }
  return executor.Unlocked([&] {
    return executor.outbox().SendBulk(header, wire::Bytes(&offset, sizeof offset),
                                      {part.piece.data, part.piece.size});
  });
}

// A copy that is sent from where it lies in device memory.
struct InPlace {
  Executor* executor = nullptr;
  wire::FrameHeader header;
  const uint8_t* from = nullptr;
  uint64_t bytes = 0;
  Frontier frontier;  // deliveries that precede the copy in its stream
  WaitPlace wait_place;
  bool sent = false;
};

bool GoesInPlace(const Driver& driver, const Rows& rows, uint64_t total) {
  return rows.flat() && rows.height == 1 && total >= kInPlaceBytes &&
         HostReaches(driver, rows.address);
}

// Host function that holds the stream: later work of the stream waits until the connection has the
// bytes.
void SendInPlace(void* argument) {
  const std::unique_ptr<std::shared_ptr<InPlace>> own(
      static_cast<std::shared_ptr<InPlace>*>(argument));
  InPlace& copy = **own;
  copy.executor->AwaitInStream(&copy.frontier);
  // Where frames may be reordered, small pieces let other frames go in between.
  const uint64_t most =
      copy.executor->outbox().free_order() ? wire::kPieceBytes : wire::kMaxBulkBytes;
  for (uint64_t offset = 0; offset < copy.bytes;) {
    const uint64_t bytes = std::min(most, copy.bytes - offset);
    const wire::ByteView bulk = wire::Bytes(copy.from + offset, bytes);
    copy.executor->gate().AwaitInStream(copy.executor->copies().out->Predict(bytes));
    const bool last = offset + bytes == copy.bytes;
    const Gate::ClientWait waits(copy.executor->gate(), copy.wait_place, last);
    if (!copy.executor->outbox().SendBulk(copy.header, wire::Bytes(&offset, sizeof offset), bulk)) {
      return;
    }
    offset += bytes;
  }
  copy.sent = true;
}

CUresult CopyInPlace(Executor& executor, const Command& command, const Target& target,
                     const Rows& rows) {
  auto copy = std::make_shared<InPlace>();
  copy->executor = &executor;
  copy->header = DataHeader(command);
  copy->header.watermark = executor.deliveries_sent();
  copy->from = reinterpret_cast<const uint8_t*>(rows.address);
  copy->bytes = rows.width;
  CUresult result = executor.order().Issue(*target.stream, {}, [&](CUstream) {
    // The function has its own reference to the copy: if the context dies, no thread waits for the
    // function any more. A device that has failed never calls the function; then the session is
    // over anyway.
    copy->frontier = target.stream->frontier;
    auto own = std::make_unique<std::shared_ptr<InPlace>>(copy);
    const CUresult issued =
        executor.order().LaunchWait(*target.stream, SendInPlace, own.get(), &copy->wait_place);
    if (issued == CUDA_SUCCESS) (void)own.release();
    return issued;
  });
  std::shared_ptr<Point> point;
  if (result == CUDA_SUCCESS) result = executor.order().EverythingIn(*target.stream, true, &point);
  if (result == CUDA_SUCCESS) result = executor.Wait(point, target.context->id);
  if (result != CUDA_SUCCESS) return result;
  if (point != nullptr) executor.ComesBehind(command, &point->frontier);
  if (!target.context->dead) executor.order().Advance(*target.stream);
  return copy->sent ? CUDA_SUCCESS : CUDA_ERROR_EXTERNAL_DEVICE;  // the client no longer reads
}

CUresult CopyStaged(Executor& executor, const Command& command, const Target& target,
                    const Rows& rows, uint64_t total) {
  std::deque<Portioned> parts;
  uint64_t started = 0;
  while (started < total || !parts.empty()) {
    while (started < total && parts.size() < kInFlight) {
      if (parts.size() >= kLeastInFlight && IsDone(executor, parts.front())) break;
      // The first piece was admitted with the command itself.
      if (started > 0) {
        const uint64_t next_ns = executor.copies().out->Predict(wire::kPieceBytes);
        if (const CUresult gone = executor.gate().Await(next_ns); gone != CUDA_SUCCESS) return gone;
      }
      if (target.context->closing) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      parts.emplace_back();
      const CUresult result = Start(executor, target, rows, started, &parts.back());
      if (result != CUDA_SUCCESS) return result;
      started += parts.back().portion.bytes();
    }
    const CUresult result = executor.Wait(parts.front().point, target.context->id);
    if (result != CUDA_SUCCESS) return result;
    executor.order().Reclaim(*target.stream);
    if (parts.front().point != nullptr) {
      executor.ComesBehind(command, &parts.front().point->frontier);
    }
    if (!SendData(executor, command, parts.front(), parts.front().piece.size == total)) {
      return CUDA_ERROR_EXTERNAL_DEVICE;  // the client no longer reads
    }
    parts.pop_front();
  }
  if (!target.context->dead) executor.order().Advance(*target.stream);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CopyToClient(Executor& executor, const Command& command, const Target& target,
                      const Rows& rows) {
  uint64_t total = 0;
  CUresult result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS || total == 0) return result;
  executor.ledger().CountCopy(total);
  result = GoesInPlace(executor.driver(), rows, total)
               ? CopyInPlace(executor, command, target, rows)
               : CopyStaged(executor, command, target, rows, total);
  if (result == CUDA_SUCCESS) executor.memory().TrimAfterWait(nullptr);
  return result;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyDtoH_Request& request,
             rgpuCopyDtoH_Reply*) {
  Target target;
  const CUresult result = executor.Find(command, request.stream, &target);
  if (result != CUDA_SUCCESS) return result;
  return CopyToClient(executor, command, target,
                      {request.src, request.pitch, request.width, request.height});
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

}  // namespace

void AddDelivery(Executor& executor, const Target& target, std::shared_ptr<Delivery> delivery) {
  Stream& stream = *target.stream;
  // Deliveries of one stream are sent in order, so the last one stands for the earlier ones.
  stream.frontier.Settle();
  std::erase_if(stream.frontier.pending,
                [&](const auto& other) { return other->stream == &stream; });
  stream.frontier.pending.push_back(delivery);
  stream.deliveries.push_back(std::move(delivery));
  ++stream.issued;  // so that the next point in the stream includes the delivery
  ++target.context->deliveries;
  executor.poller().Add(target.stream, false);
  executor.poller().Hurry();
}

void FailDelivery(Executor& executor, const Command& command, CUresult result) {
  wire::FrameHeader header = DataHeader(command);
  header.kind = wire::Kind::kDelivery;
  header.flags = wire::kLast;
  header.status = static_cast<int32_t>(result == kDropped ? CUDA_ERROR_INVALID_HANDLE : result);
  header.watermark = executor.CountDelivery();
  transport::FrameBuffer& notices = executor.notices(transport::Outbox::kEverything);
  notices.Begin(header).Put(uint64_t{0});
  notices.End();
}

CUresult Deliver(Executor& executor, const Command& command, const Target& target,
                 const Rows& rows) {
  uint64_t total = 0;
  CUresult result = CheckRows(executor, rows, &total);
  if (result != CUDA_SUCCESS) return result;
  executor.ledger().CountCopy(total);
  Stream& stream = *target.stream;
  auto delivery = std::make_shared<Delivery>();
  delivery->stream = &stream;
  delivery->opcode = command.header.opcode;
  delivery->seq = command.header.seq;
  delivery->thread = command.header.thread;
  delivery->context = command.header.context;
  result = IsLong(*target.context->staging, total)
               ? StartLongOut(executor, target, rows, delivery)
               : StartDelivery(executor, target, rows, total, delivery.get());
  if (result != CUDA_SUCCESS) return result;
  if (total == 0) {
    FailDelivery(executor, command, CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  AddDelivery(executor, target, std::move(delivery));
  return CUDA_SUCCESS;
}

CUresult Run(Executor& executor, const Command& command, const rgpuCopyDtoHLater_Request& request,
             rgpuCopyDtoHLater_Reply*) {
  Target target;
  CUresult result = executor.FindCredited(command, request.stream, &target);
  if (result == CUDA_SUCCESS) {
    const Rows rows{request.src, request.pitch, request.width, request.height};
    result = Deliver(executor, command, target, rows);
  }
  if (result != CUDA_SUCCESS) FailDelivery(executor, command, result);
  return result;
}

}  // namespace rgpu::exec
