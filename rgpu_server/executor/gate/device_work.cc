#include "rgpu_server/executor/gate/device_work.h"

#include <algorithm>
#include <utility>

namespace rgpu::exec {

void DeviceWork::Issue(StreamWork& stream, const std::shared_ptr<Estimate>& kind, uint64_t units,
                       uint64_t now_ns) {
  if (stream.unmarked_load.empty()) {
    stream.unmarked_since_ns = now_ns;
    stream.unmarked_behind = stream.behind;
    if (empty()) counted_ns_ = now_ns;
    unmarked_.push_back(stream.shared_from_this());
    List(stream);
  }
  in_flight_.ns += stream.unmarked_load.Add(kind, units);
  ++in_flight_.count;
}

void DeviceWork::Mark(StreamWork& stream) {
  Unmarked(stream);
  MarkedWork work;
  work.marker = ++last_marker_;
  work.load = std::exchange(stream.unmarked_load, {});
  work.behind = stream.BehindMarker(std::exchange(stream.unmarked_behind, {}));
  work.since_ns = stream.unmarked_since_ns;
  watched_.push_back(work.marker);
  stream.marked.push_back(std::move(work));
}

std::optional<MarkedWork> DeviceWork::Take(StreamWork& stream, uint64_t marker) {
  if (stream.marked.empty() || stream.marked.front().marker != marker) return std::nullopt;
  MarkedWork work = std::move(stream.marked.front());
  stream.marked.pop_front();
  Unwatch(marker);
  UnlistIfIdle(stream);
  return work;
}

void DeviceWork::Complete(const MarkedWork& work, uint64_t began_ns, uint64_t done_ns) {
  const uint64_t began = std::max(work.since_ns, began_ns);
  // The device was not busy between the issue of the work and its begin.
  if (began_ns != 0) counted_ns_ = std::max(counted_ns_, began);
  const uint64_t from = std::max(last_done_ns_, began);
  if (done_ns > from) work.load.Measured(done_ns - from);
  last_done_ns_ = std::max(last_done_ns_, done_ns);
  CountBusy(done_ns);
  in_flight_ -= {work.load.pieces(), work.load.ns()};
  if (empty()) in_flight_ = {};
}

Load DeviceWork::TakeAll(StreamWork& stream) {
  Unmarked(stream);
  Load load = std::exchange(stream.unmarked_load, {});
  for (const MarkedWork& work : stream.marked) {
    load.Add(work.load);
    Unwatch(work.marker);
  }
  stream.marked.clear();
  UnlistIfIdle(stream);
  return load;
}

void DeviceWork::PutAside(const StreamWork& stream) {
  for (const MarkedWork& work : stream.marked) Unwatch(work.marker);
}

void DeviceWork::TakeBack(const StreamWork& stream, const Pieces& pieces, uint64_t now_ns) {
  if (empty()) counted_ns_ = now_ns;
  in_flight_ += pieces;
  if (!stream.marked.empty()) watched_.push_back(stream.marked.back().marker);
}

void DeviceWork::Clear() {
  in_flight_ = {};
  watched_.clear();
}

void DeviceWork::CountBusy(uint64_t until_ns) {
  if (until_ns <= counted_ns_) return;
  charge_ns_ += until_ns - counted_ns_;
  counted_ns_ = until_ns;
}

void DeviceWork::List(StreamWork& stream) {
  if (stream.listed_at != StreamWork::kUnlisted) return;
  stream.listed_at = streams_.size();
  streams_.push_back(stream.shared_from_this());
}

void DeviceWork::UnlistIfIdle(StreamWork& stream) {
  if (stream.has_work() || stream.listed_at == StreamWork::kUnlisted) return;
  const size_t at = std::exchange(stream.listed_at, StreamWork::kUnlisted);
  // The list may be the last to hold the stream.
  const std::shared_ptr<StreamWork> hold = std::exchange(streams_[at], nullptr);
  if (at + 1 != streams_.size()) {
    streams_[at] = std::move(streams_.back());
    streams_[at]->listed_at = at;
  }
  streams_.pop_back();
}

void DeviceWork::Unmarked(const StreamWork& stream) {
  std::erase_if(unmarked_, [&](const auto& other) { return other.get() == &stream; });
}

}  // namespace rgpu::exec
