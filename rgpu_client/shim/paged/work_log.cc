#include "rgpu_client/shim/paged/work_log.h"

#include <algorithm>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {

void WorkLog::Note(const Here& here) {
  const Stream& stream = *here.stream;
  const Entry entry{here.context_id(), stream.thread, stream.wire, stream.progress.version.load()};
  const auto same = [&](const Entry& other) {
    return other.context == entry.context && other.thread == entry.thread &&
           other.stream == entry.stream;
  };
  const auto known = std::ranges::find_if(entries_, same);
  if (known == entries_.end()) {
    entries_.push_back(entry);
  } else {
    *known = entry;
  }
}

WorkLog::State WorkLog::StateOf(Session& session, const Entry& entry) {
  const Context* context = session.handles().Find<Context>(entry.context);
  if (context == nullptr) return State::kComplete;  // it was destroyed, with all its work
  const Stream* stream = session.FindStream(entry.context, entry.thread, entry.stream);
  if (stream == nullptr) return State::kGone;
  const uint64_t version = stream->progress.version.load();
  if (version == entry.version) return State::kOutstanding;  // the command is not posted yet
  const uint64_t complete = std::max({context->synced_seq.load(), stream->synced_seq.load(),
                                      stream->progress.completed.load()});
  return version > complete ? State::kOutstanding : State::kComplete;
}

// The work of a stream goes on when the stream is destroyed.
void WorkLog::AddGone(Session& session, uint32_t context) {
  const uint64_t upto = session.channel().last_posted();
  const auto known = std::ranges::find(gone_, context, &Gone::context);
  if (known == gone_.end()) {
    gone_.push_back({context, upto});
  } else {
    known->upto = upto;
  }
}

bool WorkLog::Outstanding(Session& session) {
  std::erase_if(entries_, [&](const Entry& entry) {
    const State state = StateOf(session, entry);
    if (state == State::kGone) AddGone(session, entry.context);
    return state != State::kOutstanding;
  });
  std::erase_if(gone_, [&](const Gone& gone) {
    const Context* context = session.handles().Find<Context>(gone.context);
    return context == nullptr || context->synced_seq.load() >= gone.upto;
  });
  return !entries_.empty() || !gone_.empty();
}

}  // namespace rgpu::shim
