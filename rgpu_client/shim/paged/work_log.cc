#include "rgpu_client/shim/paged/work_log.h"

#include <algorithm>

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/session.h"

namespace rgpu::shim {

void WorkLog::Note(const Here& here) {
  const Stream& stream = *here.stream;
  const Entry entry{here.context_id(), stream.thread, stream.wire, stream.progress.version.load(),
                    0};
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

bool WorkLog::IsOutstanding(Session& session, Entry& entry) {
  const Context* context = session.handles().Find<Context>(entry.context);
  if (context == nullptr) return false;  // it was destroyed, with all its work
  const Stream* stream = session.FindStream(entry.context, entry.thread, entry.stream);
  const uint64_t all = context->synced_seq.load();
  if (stream == nullptr) {
    // Its work goes on when a stream is destroyed.
    if (entry.gone_at == 0) entry.gone_at = session.channel().last_posted();
    return all < entry.gone_at;
  }
  const uint64_t version = stream->progress.version.load();
  if (version == entry.version) return true;  // the command is not posted yet
  return version > std::max({all, stream->synced_seq.load(), stream->progress.completed.load()});
}

bool WorkLog::Outstanding(Session& session) {
  std::erase_if(entries_, [&](Entry& entry) { return !IsOutstanding(session, entry); });
  return !entries_.empty();
}

}  // namespace rgpu::shim
