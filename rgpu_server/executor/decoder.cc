#include "rgpu_server/executor/decoder.h"

#include <algorithm>
#include <cstdio>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/in_place.h"
#include "rgpu_server/executor/loads.h"
#include "rgpu_server/executor/notice.h"
#include "rgpu_server/executor/page_traffic.h"
#include "rgpu_server/executor/printed.h"

namespace rgpu::exec {

namespace {

// A client that pauses in the middle of a frame for this long is considered gone.
constexpr int kFrameTimeoutMs = 60'000;
// Only a safety net: the gate wakes the connection when held work may go.
constexpr int kHeldLookMs = 100;
constexpr int kRestMs = 1;
// How often a lane that waits for room in a stream's queue, or for its page allowance, looks again.
constexpr int kPauseMs = 2;

// A graph records the events of its nodes, which are not in the command. A held command may still
// change the graph, so each launch counts until it is known to record nothing.
bool MayRecordAnyEvent(Executor& executor, const OpcodeInfo& info, const Command& command) {
  if (info.opcode == Opcode::rgpuGraphUpdate || info.opcode == Opcode::rgpuGraphUpdateWith ||
      info.opcode == Opcode::rgpuGraphSetNodeLater) {
    return true;
  }
  if (info.opcode != Opcode::rgpuGraphLaunch) return false;
  const CommandWork work = WorkOf(info.opcode, command.head, 0);
  GraphExec* exec = nullptr;
  if (executor.objects().execs.Find(work.exec, &exec) != CUDA_SUCCESS) return true;
  return std::ranges::any_of(exec->built.nodes,
                             [](const ExecNode& node) { return node.records != nullptr; });
}

}  // namespace

void Decoder::Start() {
  executor_.role().Start([this] { ThreadMain(); });
}

void Decoder::ThreadMain() {
  Scratch scratch;
  while (executor_.role().Acquire()) {
    while (Step(scratch)) {
    }
    if (over_) return;
  }
}

transport::ReadState Decoder::Read(Scratch& scratch, wire::FrameHeader* header,
                                   wire::ByteView* head) {
  const bool wakeable = !held_.empty();
  transport::ReadState state = transport::ReadState::kTimeout;
  if (reader_.has_buffered() || acked_seq_ != last_seq_) state = reader_.Next(header, head, 0);
  if (state != transport::ReadState::kTimeout) return state;
  if (!more_follow_) Idle(scratch);
  if (rest_) {
    // With the device to itself, a session marks its work only when no command follows within
    // kRestMs: most programs soon make a waiting call, which sets a marker anyway.
    state = reader_.Next(header, head, kRestMs, wakeable);
    if (state != transport::ReadState::kTimeout) return state;
    rest_ = false;
    std::lock_guard lock(executor_.mutex());
    executor_.gate().MarkRest();
  }
  return reader_.Next(header, head, -1, wakeable);
}

bool Decoder::Step(Scratch& scratch) {
  bool go_on = true;
  const bool queue_full = QueueIsFull();
  if (!queue_full && !held_.empty() && TryHeld(scratch, &go_on)) return go_on;
  const bool pause = queue_full || PagesWait();
  if (pause || held_.full()) {
    // The client waits, as it would for a full launch queue. If the client dies, the control lane
    // shows it.
    Idle(scratch);
    reader_.connection()->Wait(transport::kWoken, pause ? kPauseMs : kHeldLookMs);
    return true;
  }
  wire::FrameHeader header;
  wire::ByteView head;
  switch (Read(scratch, &header, &head)) {
    case transport::ReadState::kFrame:
      return Handle(scratch, header, head);
    case transport::ReadState::kMalformed:
      Malformed({}, "the client sent bytes that are not a frame; update rgpu on the older side");
      return false;
    case transport::ReadState::kClosed:
      End("the client closed the command lane");
      return false;
    default:
      return true;
  }
}

bool Decoder::QueueIsFull() {
  if (!executor_.order().may_be_full()) return false;
  std::lock_guard lock(executor_.mutex());
  return executor_.order().QueueIsFull();
}

bool Decoder::PagesWait() {
  if (!executor_.pages().spent() && !pages_wait_) return false;
  std::lock_guard lock(executor_.mutex());
  pages_wait_ = PagesMustWait(executor_);
  executor_.gate().SetHolding(pages_wait_ || !held_.empty());
  return pages_wait_;
}

bool Decoder::Handle(Scratch& scratch, const wire::FrameHeader& header, wire::ByteView head) {
  const OpcodeInfo* info = FindOpcode(header.opcode);
  const bool wants_reply = (header.flags & wire::kWantsReply) != 0;
  char sentence[160];
  if (header.kind != wire::Kind::kCommand || info == nullptr) {
    std::snprintf(sentence, sizeof sentence,
                  "the client sent kind %u, opcode 0x%04x, which this server does not know",
                  static_cast<unsigned>(header.kind), unsigned{header.opcode});
  } else if (header.seq != last_seq_ + 1) {
    std::snprintf(sentence, sizeof sentence,
                  "command %llu of the client arrived where %llu was expected; the connection lost "
                  "commands",
                  static_cast<unsigned long long>(header.seq),
                  static_cast<unsigned long long>(last_seq_) + 1);
  } else if (wants_reply != info->is_call() || header.thread == 0 ||
             (header.bulk_bytes != 0 && info->bulk != BulkSide::kRequest)) {
    std::snprintf(sentence, sizeof sentence,
                  "the client sent %s with a header that does not match it", info->name);
  } else {
    last_seq_ = header.seq;
    more_follow_ = (header.flags & wire::kMore) != 0;
    Command command{header, head, {}, nullptr, &scratch.out};
    if (!ReceiveBulk(scratch, *info, &command)) return false;
    return ExecuteOrHold(scratch, *info, command);
  }
  Malformed(header, sentence);
  return false;
}

bool Decoder::ExecuteOrHold(Scratch& scratch, const OpcodeInfo& info, Command& command) {
  std::unique_lock lock(executor_.mutex());
  if (!MustHold(info, command)) return Execute(scratch, info, command, lock);
  held_.Add(info, command, &scratch.bulk, MayRecordAnyEvent(executor_, info, command));
  executor_.gate().SetHolding(true);
  return true;
}

bool Decoder::Execute(Scratch& scratch, const OpcodeInfo& info, Command& command, Lock& lock) {
  if (info.is_call()) return HandleCall(scratch, info, command, lock);
  HandlePosted(info, command, lock);
  return !over_;
}

bool Decoder::MustHold(const OpcodeInfo& info, const Command& command) {
  if (command.in_place) return false;  // its work is done already
  if (!held_.empty()) {
    return !held_.MayPass(info, command) && !IsPageTraffic(executor_, info, command);
  }
  Gate& gate = executor_.gate();
  if (!info.gated || gate.AdmitsAll() || (!gate.on() && !gate.suspended())) return false;
  return !IsPageTraffic(executor_, info, command) && !Admits(command);
}

bool Decoder::Admits(const Command& command) {
  LoadBeforeLaunch(executor_, command);
  return executor_.gate().Admits(executor_.Predict(command));
}

bool Decoder::TryHeld(Scratch& scratch, bool* go_on) {
  const OpcodeInfo& info = held_.front_info();
  Command command = held_.front();
  command.out = &scratch.out;
  std::unique_lock lock(executor_.mutex());
  if (info.gated && !Admits(command)) return false;
  const Held::Entry entry = held_.Take();  // owns what `command` points to
  if (held_.empty()) executor_.gate().SetHolding(false);
  *go_on = Execute(scratch, info, command, lock);
  return true;
}

bool Decoder::ReceiveBulk(Scratch& scratch, const OpcodeInfo& info, Command* command) {
  const uint32_t bytes = command->header.bulk_bytes;
  if (bytes == 0) return true;
  Piece piece;
  const bool copy = info.opcode == Opcode::rgpuCopyHtoD || info.opcode == Opcode::rgpuCopyBoxIn;
  if (copy) FindPlace(info, command, &piece);
  if (piece.data == nullptr) {
    scratch.bulk.resize(bytes);
    piece.data = scratch.bulk.data();
  }
  // The context, and so the device memory, may go while bytes are received into it.
  reader_.set_guarded(command->in_place);
  const transport::BulkState state = reader_.ReadBulk(piece.data, bytes, kFrameTimeoutMs);
  if (command->in_place) executor_.exports().EndArrival();
  if (state == transport::BulkState::kTimeout || state == transport::BulkState::kClosed) {
    End("the client went away in the middle of a frame");
    return false;
  }
  command->bulk = {piece.data, bytes};
  command->keep = std::move(piece.keep);
  return true;
}

// Finds where to receive the bulk of a copy to the device. If there is no place, the handler
// refuses the copy.
void Decoder::FindPlace(const OpcodeInfo& info, Command* command, Piece* piece) {
  std::lock_guard lock(executor_.mutex());
  std::shared_ptr<Context> context;
  if (executor_.sticky() != CUDA_SUCCESS) return;
  if (executor_.Enter(*command, &context) != CUDA_SUCCESS) return;
  // A ring cannot catch a fault on memory that goes while it is written, so it does not receive in
  // place.
  const bool linear = info.opcode == Opcode::rgpuCopyHtoD;
  if (linear && held_.empty() && reader_.connection()->checks_memory()) {
    piece->data = PlaceOfArrival(executor_, *command);
  }
  command->in_place = piece->data != nullptr;
  if (!command->in_place) context->staging->Take(command->header.bulk_bytes, piece);
}

void Decoder::HandlePosted(const OpcodeInfo& info, Command& command, Lock& lock) {
  if (executor_.sticky() != CUDA_SUCCESS) return;
  const CUresult result = Dispatch(executor_, command, nullptr);
  executor_.ledger().Settle();
  if (result == CUDA_SUCCESS || result == kDropped) return;
  if (result == kMalformed) {
    lock.unlock();
    Malformed(command.header,
              std::string("the client sent a ") + info.name + " that does not decode");
    return;
  }
  ForwardReason(executor_.driver(), executor_.outbox());
  if (IsSticky(result)) return executor_.Check(result, command.header.context);
  executor_.deferred().Keep(command.header.context, command.header.thread, result);
}

CUresult Decoder::Deferred(const OpcodeInfo& info, const Command& command) {
  if (!info.reports || executor_.deferred().empty()) return CUDA_SUCCESS;
  return info.drains ? executor_.deferred().TakeAll(command.header.context)
                     : executor_.deferred().Take(command.header.context, command.header.thread);
}

// Returns true if a thread is available for the call in case it waits.
bool Decoder::MayRun(const OpcodeInfo& info) const {
  return info.mode != CommandMode::kParked || executor_.role().MayWait();
}

CUresult Decoder::TooManyCalls() {
  std::string sentence = std::to_string(Role::kMaxWaiting);
  sentence +=
      " calls of this session wait for the device already, and one more is refused; wait in fewer "
      "threads at the same time";
  executor_.Tell(Executor::Told::kCalls, sentence);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Decoder::RunCall(const OpcodeInfo& info, const Command& command, wire::Writer* reply) {
  const CUresult deferred = Deferred(info, command);
  // After a deferred error, a call that creates or copies is not executed. One that destroys or
  // waits for everything is.
  const bool execute = deferred == CUDA_SUCCESS || info.destroys || info.drains;
  CUresult status = CUDA_SUCCESS;
  if (execute) status = MayRun(info) ? Dispatch(executor_, command, reply) : TooManyCalls();
  executor_.ledger().Settle();
  if (deferred != CUDA_SUCCESS && status != kMalformed) status = deferred;
  if (IsSticky(status)) executor_.Check(status, command.header.context);
  executor_.HandOverNotices();
  return status;
}

bool Decoder::HandleCall(Scratch& scratch, const OpcodeInfo& info, Command& command, Lock& lock) {
  // Another thread may read the next frame into the reader's buffer while this call waits.
  scratch.head.assign(command.head.data, command.head.data + command.head.size);
  command.head = wire::Bytes(scratch.head.data(), scratch.head.size());
  acked_seq_ = std::max(acked_seq_, command.header.seq);
  scratch.out.clear();
  scratch.reply.clear();
  uint64_t behind = transport::Outbox::kEverything;
  command.behind = &behind;
  wire::Writer writer(&scratch.reply);
  executor_.role().EnterCall();
  CUresult status = executor_.sticky();
  if (status == CUDA_SUCCESS) status = RunCall(info, command, &writer);
  lock.unlock();
  const bool held = executor_.role().LeaveCall();
  if (status == kMalformed) {
    Malformed(command.header,
              std::string("the client sent a ") + info.name + " that does not decode");
    return false;
  }
  if (status == kDropped) status = CUDA_ERROR_INVALID_HANDLE;
  if (info.mode == CommandMode::kParked) ForwardPrinted(executor_.outbox());
  if (status != CUDA_SUCCESS) {
    ForwardReason(executor_.driver(), executor_.outbox());
    behind = transport::Outbox::kEverything;
  }
  Reply(scratch, command, status, behind);
  return held && !over_;
}

// `behind`: how many delivery frames must precede the reply. A larger number would make the client
// wait for nothing.
void Decoder::Reply(Scratch& scratch, const Command& command, CUresult status, uint64_t behind) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kReply;
  header.opcode = command.header.opcode;
  header.status = static_cast<int32_t>(status);
  header.seq = command.header.seq;
  header.watermark = std::min(behind, executor_.deliveries_sent());
  header.thread = command.header.thread;
  header.context = command.header.context;
  scratch.out.Begin(header).PutRaw(scratch.reply.data(), scratch.reply.size());
  if (!scratch.out.End() || !executor_.outbox().Post(scratch.out, false, behind)) {
    End("the client sends commands and reads no replies");
  }
}

void Decoder::Idle(Scratch& scratch) {
  scratch.out.clear();
  {
    std::lock_guard lock(executor_.mutex());
    rest_ = executor_.gate().has_rest();
    if (rest_ && (!held_.empty() || !executor_.gate().alone())) {
      executor_.gate().MarkRest();
      rest_ = false;
    }
    executor_.HandOverNotices();
  }
  if (acked_seq_ != last_seq_ && executor_.outbox().queued_bytes() == 0) {
    acked_seq_ = last_seq_;
    wire::FrameHeader header = NoticeHeader(wire::Notice::kAck);
    header.seq = last_seq_;
    header.watermark = executor_.deliveries_sent();
    scratch.out.Begin(header);
    scratch.out.End();
  }
  if (scratch.out.empty()) {
    executor_.outbox().Flush();
  } else if (!executor_.outbox().Post(scratch.out)) {
    End("the client sends commands and reads no replies");
  }
}

void Decoder::Malformed(const wire::FrameHeader& header, const std::string& sentence) {
  executor_.SetSticky(CUDA_ERROR_EXTERNAL_DEVICE, header.context, sentence);
  End(sentence);
}

void Decoder::End(const std::string& reason) {
  over_ = true;
  ended_(reason);
}

}  // namespace rgpu::exec
