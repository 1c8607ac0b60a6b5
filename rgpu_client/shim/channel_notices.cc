// What each notice of the worker does in the client.
#include <vector>

#include "gen/notices.gen.h"
#include "rgpu_client/shim/channel.h"

namespace rgpu::shim {
namespace {

constexpr const char* kAskedWrong =
    "the server asked for bytes of a graph's copy twice, out of order or beyond their end";

}  // namespace

using wire::ByteView;
using wire::FrameHeader;

// Finds the copy or host function of the command `seq`, which a stream of the worker has reached.
// False: the command has none, or its transfer is complete.
bool Channel::FindAsked(uint64_t seq, Expected* asked) {
  const std::lock_guard lock(receive_mutex_);
  const auto it = expected_.find(seq);
  if (it == expected_.end() || !it->second.pulled) return false;
  *asked = it->second;
  return !asked->over || Wrong(kWentOn);
}

bool Channel::HandlePull(const FrameHeader& header, wire::Reader& reader) {
  wire::Pull pull;
  Expected asked;
  if (!Get(reader, &pull) || !FindAsked(header.seq, &asked) || asked.call || pull.bytes == 0) {
    return false;
  }
  if (asked.graph != nullptr) {
    const GraphSides::Side* side = asked.graph->Move(pull.offset, pull.bytes, true);
    if (side == nullptr) {
      return Wrong(kAskedWrong);
    }
    handler_->OnPull(pull, side->region, pull.offset - side->offset);
    return true;
  }
  const uint64_t total = asked.region.bytes();
  if (pull.offset > total || pull.bytes > total - pull.offset) return false;
  handler_->OnPull(pull, asked.region, pull.offset);
  Finish(header.seq, pull.bytes, false);
  return true;
}

bool Channel::HandleCallback(const FrameHeader& header, wire::Reader& reader) {
  wire::Callback callback;
  Expected asked;
  if (!Get(reader, &callback) || !FindAsked(header.seq, &asked) || !asked.call) return false;
  Finish(header.seq, 1, true);
  NoteCompletion();
  handler_->OnCallback(callback.callback, asked.call, CUDA_SUCCESS);
  return true;
}

bool Channel::HandleGraphCallback(const FrameHeader& header, wire::Reader& reader) {
  wire::GraphCallback callback;
  Expected asked;
  if (!Get(reader, &callback) || !FindAsked(header.seq, &asked) || asked.graph == nullptr) {
    return false;
  }
  const HostCall* call = asked.graph->Call(callback.node);
  if (call == nullptr) {
    return Wrong(
        "the server called a host function that the graph does not have, or called it "
        "twice in one launch");
  }
  NoteCompletion();
  handler_->OnCallback(callback.callback, *call, CUDA_SUCCESS);
  return true;
}

// The session has failed: the callbacks that wait for their streams are told so, in order, and host
// functions never run.
void Channel::FailCallbacks(CUresult status) {
  std::vector<HostCall> calls;
  {
    const std::lock_guard lock(receive_mutex_);
    for (auto it = expected_.begin(); it != expected_.end();) {
      if (it->second.call.hears_failures()) calls.push_back(it->second.call);
      if (it->second.call || it->second.graph != nullptr) {
        it = expected_.erase(it);
        expected_count_.fetch_sub(1);
      } else {
        ++it;
      }
    }
  }
  for (const HostCall& call : calls) handler_->OnCallback(0, call, status);
}

bool Channel::HandleNotice(const FrameHeader& header, ByteView head) {
  const auto notice = static_cast<wire::Notice>(header.opcode);
  wire::Reader reader(head.data, head.size);
  switch (notice) {
    case wire::Notice::kAck:
      Acknowledge(header.seq);
      return true;
    case wire::Notice::kPull:
      return HandlePull(header, reader);
    case wire::Notice::kCallback:
      return HandleCallback(header, reader);
    case wire::Notice::kGraphCallback:
      return HandleGraphCallback(header, reader);
    case wire::Notice::kCredit:
    case wire::Notice::kCompleted:
      return HandleProgress(header, reader);
    case wire::Notice::kSticky: {
      wire::Sticky sticky;
      if (!Get(reader, &sticky)) return false;
      SetSticky(static_cast<CUresult>(header.status), sticky.sentence.text());
      return true;
    }
    case wire::Notice::kMemoryCredit: {
      wire::MemoryCredit credit;
      if (!Get(reader, &credit)) return false;
      handler_->OnMemoryCredit(credit.granted, credit.freed, credit.wanted != 0);
      return true;
    }
    case wire::Notice::kLog: {
      wire::Log log;
      if (!Get(reader, &log)) return false;
      handler_->OnLog(log.level, log.text.text());
      return true;
    }
    case wire::Notice::kCompiled: {
      wire::Compiled compiled;
      if (!Get(reader, &compiled)) return false;
      handler_->OnCompiled(compiled.ns, compiled.name.text());
      return true;
    }
    default:
      return true;  // a later minor version added this notice
  }
}

// Handles CREDIT and COMPLETED, and wakes the threads that wait for progress.
bool Channel::HandleProgress(const FrameHeader& header, wire::Reader& reader) {
  if (header.opcode == static_cast<uint16_t>(wire::Notice::kCredit)) {
    wire::Credit credit;
    if (!Get(reader, &credit)) return false;
    handler_->OnCredit(header, credit.stream, credit.completed);
  } else {
    wire::Completed completed;
    if (!Get(reader, &completed)) return false;
    handler_->OnCompleted(header, completed.object, completed.version, completed.time_ns);
    NoteCompletion();
  }
  const std::lock_guard lock(receive_mutex_);
  if (watchers_ > 0) progress_.notify_all();
  return true;
}

}  // namespace rgpu::shim
