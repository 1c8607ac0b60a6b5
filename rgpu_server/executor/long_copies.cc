#include "rgpu_server/executor/long_copies.h"

#include <algorithm>

#include "rgpu_server/executor/copies.h"

namespace rgpu::exec {

namespace {

constexpr uint64_t kMostCopySlots = 64;
// A copy takes at most this part of what is left, so that later copies get staging memory too.
constexpr uint64_t kPart = 4;

// The slots that the pieces of one copy use in turn.
class Turns : public std::enable_shared_from_this<Turns> {
 public:
  // Returns CUDA_ERROR_OUT_OF_MEMORY if not even one slot is available.
  CUresult Reserve(Staging& staging) {
    const uint64_t wanted = staging.Left() / kPart / wire::kPieceBytes;
    for (uint64_t i = 0; i < std::clamp<uint64_t>(wanted, 1, kMostCopySlots); ++i) {
      Piece slot;
      const CUresult result = staging.Take(wire::kPieceBytes, &slot);
      if (result != CUDA_SUCCESS) return slots_.empty() ? result : CUDA_SUCCESS;
      slots_.push_back(std::move(slot));
      free_.push_back(slots_.back().data);
    }
    return CUDA_SUCCESS;
  }

  // Waits for a free slot. The slot is free again when the piece is released.
  Piece Next(uint32_t bytes) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [this] { return !free_.empty(); });
    uint8_t* data = free_.back();
    free_.pop_back();
    return {
        data, bytes, {data, [self = shared_from_this()](uint8_t* slot) { self->Return(slot); }}};
  }

  size_t count() const { return slots_.size(); }

 private:
  void Return(uint8_t* slot) {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
    returned_.notify_one();
  }

  std::vector<Piece> slots_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<uint8_t*> free_;
};

class LongCopy : public std::enable_shared_from_this<LongCopy> {
 public:
  LongCopy(Executor& executor, const Target& target, const Rows& rows)
      : executor_(executor),
        context_(target.context),
        rows_(rows),
        total_(rows.width * rows.height * rows.depth) {}

  CUresult Start(const Target& target, const std::shared_ptr<Estimate>& kind,
                 std::function<CUresult(LongCopy&)> move);

  CUresult MoveOut(Delivery& delivery);
  CUresult MoveIn(const wire::FrameHeader& header);

 private:
  static void HoldStream(void* argument);
  void Hold();
  void Release();
  bool AwaitStream();
  void Run();
  CUresult Enter();
  CUresult PullPart(const wire::FrameHeader& header, uint64_t* offset);
  CUresult Await(const Point& point);

  Executor& executor_;
  std::shared_ptr<Context> context_;
  const Rows rows_;
  const uint64_t total_;
  uint64_t ns_ = 0;    // predicted
  Frontier frontier_;  // deliveries that precede the copy in its stream
  WaitPlace wait_place_;
  Stream own_;
  std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  std::function<CUresult(LongCopy&)> move_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;  // the stream's host function runs
  bool over_ = false;
};

// The executor's lock is held.
CUresult LongCopy::Start(const Target& target, const std::shared_ptr<Estimate>& kind,
                         std::function<CUresult(LongCopy&)> move) {
  const auto copy = shared_from_this();
  const Driver& driver = executor_.driver();
  move_ = std::move(move);
  ns_ = kind->Predict(total_);
  CUresult result = turns_->Reserve(*context_->staging);
  own_.context = context_.get();
  if (result == CUDA_SUCCESS) {
    // A blocking stream would be ordered with the legacy stream, which may be waiting for this
    // copy.
    result = driver->cuStreamCreate(&own_.handle, CU_STREAM_NON_BLOCKING);
  }
  if (result != CUDA_SUCCESS) return result;
  if (!StartThread("rgpu-copy", [copy] { copy->Run(); })) {
    driver->cuStreamDestroy_v2(own_.handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // Counts as staged bytes, so that a marker returns the credit.
  result = executor_.order().Issue(*target.stream, {total_, nullptr}, [&](CUstream) {
    frontier_ = target.stream->frontier;
    auto own = std::make_unique<std::shared_ptr<LongCopy>>(copy);
    const CUresult issued =
        executor_.order().LaunchWait(*target.stream, HoldStream, own.get(), &wait_place_);
    if (issued == CUDA_SUCCESS) (void)own.release();
    return issued;
  });
  if (result != CUDA_SUCCESS) Release();
  return result;
}

void LongCopy::HoldStream(void* argument) {
  const std::unique_ptr<std::shared_ptr<LongCopy>> own(
      static_cast<std::shared_ptr<LongCopy>*>(argument));
  (*own)->Hold();
}

void LongCopy::Hold() {
  executor_.gate().AwaitInStream(ns_);
  const Gate::ClientWait waits(executor_.gate(), wait_place_);
  executor_.AwaitInStream(&frontier_);
  std::unique_lock lock(mutex_);
  reached_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return over_; });
}

void LongCopy::Release() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

bool LongCopy::AwaitStream() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_ || over_; });
  return !over_;
}

void LongCopy::Run() {
  const CUresult result = AwaitStream() ? move_(*this) : CUDA_SUCCESS;
  {
    const std::lock_guard lock(executor_.mutex());
    const bool alive = Enter() == CUDA_SUCCESS;
    if (alive && result != CUDA_SUCCESS) {
      executor_.Check(result, context_->id);
      executor_.SetSticky(result, context_->id, "a long copy failed; start the program again");
    }
    if (alive) executor_.driver()->cuStreamDestroy_v2(own_.handle);
    // The stream's thread may hold the last reference, and must not call the driver. So release
    // these members here.
    turns_.reset();
    move_ = nullptr;
  }
  Release();
}

// The executor's lock is held.
CUresult LongCopy::Enter() {
  return context_->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : executor_.MakeCurrent(*context_);
}

CUresult LongCopy::Await(const Point& point) {
  return executor_.driver()->cuEventSynchronize(point.event);
}

CUresult LongCopy::MoveOut(Delivery& delivery) {
  std::shared_ptr<Point> last;
  for (uint64_t offset = 0; offset < total_;) {
    const Portion portion = PortionAt(rows_, offset);
    Delivery::Chunk chunk{nullptr, turns_->Next(portion.bytes()), offset};
    offset += portion.bytes();
    const std::lock_guard lock(executor_.mutex());
    CUresult result = Enter();
    if (result == CUDA_SUCCESS) {
      result = CopyOut(executor_.driver(), rows_, portion, chunk.piece.data, own_.handle);
    }
    if (result == CUDA_SUCCESS)
      result = executor_.order().Record(own_, kInternalEvent, &chunk.point);
    if (result != CUDA_SUCCESS) return result;
    last = chunk.point;
    delivery.chunks.push_back(std::move(chunk));
    delivery.to_come_bytes = total_ - offset;
    executor_.poller().Hurry();
  }
  return Await(*last);
}

CUresult LongCopy::MoveIn(const wire::FrameHeader& header) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t offset = 0; offset < total_ && result == CUDA_SUCCESS;) {
    result = PullPart(header, &offset);
  }
  return result;
}

// Fetches as many pieces as there are slots.
CUresult LongCopy::PullPart(const wire::FrameHeader& header, uint64_t* offset) {
  auto pull = std::make_shared<Pull>();
  pull->command = header;
  pull->from = *offset;
  std::vector<Portion> portions;
  while (*offset < total_ && portions.size() < turns_->count()) {
    portions.push_back(PortionAt(rows_, *offset));
    pull->pieces.push_back(turns_->Next(portions.back().bytes()));
    *offset += portions.back().bytes();
  }
  executor_.pulls().Add(pull);
  executor_.pulls().Fetch(pull.get());
  std::shared_ptr<Point> point;
  {
    const std::lock_guard lock(executor_.mutex());
    CUresult result = Enter();
    for (size_t i = 0; i < portions.size() && result == CUDA_SUCCESS; ++i) {
      const uint8_t* from = pull->pieces[i].data;
      result = CopyIn(executor_.driver(), rows_, portions[i], from, own_.handle);
    }
    if (result == CUDA_SUCCESS) result = executor_.order().Record(own_, kInternalEvent, &point);
    if (result != CUDA_SUCCESS) return result;
  }
  return Await(*point);
}

}  // namespace

bool IsLong(Staging& staging, uint64_t bytes) {
  return bytes > wire::kPieceBytes && bytes > staging.Left() / kPart;
}

CUresult StartLongOut(Executor& executor, const Target& target, const Rows& rows,
                      const std::shared_ptr<Delivery>& delivery) {
  delivery->to_come_bytes = rows.width * rows.height * rows.depth;
  const auto copy = std::make_shared<LongCopy>(executor, target, rows);
  return copy->Start(target, executor.copies().out,
                     [delivery](LongCopy& self) { return self.MoveOut(*delivery); });
}

CUresult StartLongIn(Executor& executor, const Command& command, const Target& target,
                     const Rows& rows) {
  const auto copy = std::make_shared<LongCopy>(executor, target, rows);
  return copy->Start(target, executor.copies().in,
                     [header = command.header](LongCopy& self) { return self.MoveIn(header); });
}

}  // namespace rgpu::exec
