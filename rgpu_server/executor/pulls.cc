#include "rgpu_server/executor/pulls.h"

#include <algorithm>

#include "gen/notices.gen.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

std::shared_ptr<Pull> Pulls::Add(const std::shared_ptr<Pull>& pull) {
  std::lock_guard lock(mutex_);
  pull->executor = &executor_;
  pull->id = ++last_id_;
  pull->received.resize(pull->pieces.size());
  for (const Piece& piece : pull->pieces) {
    pull->offsets.push_back(pull->from + pull->missing_bytes);
    pull->missing_bytes += piece.size;
  }
  pulls_[pull->id] = pull;
  return pull;
}

void Pulls::Fetch(Pull* pull) {
  const wire::FrameHeader header =
      NoticeAbout(pull->command, wire::Notice::kPull, executor_.deliveries_sent());
  transport::FrameBuffer frames;
  for (size_t i = 0; i < pull->pieces.size(); ++i) {
    wire::Writer writer = frames.Begin(header);
    Put(writer, wire::Pull{pull->id, pull->offsets[i], pull->pieces[i].size});
    frames.End();
  }
  {
    std::lock_guard lock(mutex_);
    pull->asked = true;
  }
  executor_.outbox().Post(frames);
  std::unique_lock lock(mutex_);
  // If the session ends first, this process ends, and the wait with it.
  arrived_.wait(lock, [&] { return pull->missing_bytes == 0; });
  pulls_.erase(pull->id);
}

// One PULL_DATA answers one PULL, with the same offset and length, and only once.
bool Pulls::OnData(transport::FrameReader& reader, uint64_t id, uint64_t offset, uint32_t bytes) {
  std::shared_ptr<Pull> pull;
  size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    const auto found = pulls_.find(id);
    if (found == pulls_.end() || !found->second->asked) return false;
    pull = found->second;
    const auto at = std::ranges::lower_bound(pull->offsets, offset);
    if (at == pull->offsets.end() || *at != offset) return false;
    index = static_cast<size_t>(at - pull->offsets.begin());
    if (pull->pieces[index].size != bytes || pull->received[index]) return false;
    pull->received[index] = true;
  }
  // No lock needed: only this thread, the control lane's, writes into pieces.
  if (reader.ReadBulk(pull->pieces[index].data, bytes, -1) != transport::BulkState::kDone) {
    return false;
  }
  std::lock_guard lock(mutex_);
  pull->missing_bytes -= bytes;
  if (pull->missing_bytes == 0) arrived_.notify_all();
  return true;
}

}  // namespace rgpu::exec
