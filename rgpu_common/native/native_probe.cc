// The measuring end of a probe, for Python.
#include <cstring>
#include <vector>

#include "rgpu_common/native/base/text.h"
#include "rgpu_common/native/native_abi.h"
#include "rgpu_common/native/probe/line.h"

namespace {

using rgpu::base::CopyText;
using rgpu::probe::Line;
using rgpu::probe::Train;

Line* AsLine(void* line) { return static_cast<Line*>(line); }

// total_ns, bytes, then pairs of bytes and ns.
int64_t CopyTrain(const Train& train, uint64_t* values, size_t capacity) {
  const size_t needed = 2 + 2 * train.arrivals.size();
  if (needed > capacity) return -1;
  values[0] = train.total_ns;
  values[1] = train.bytes;
  for (size_t i = 0; i < train.arrivals.size(); ++i) {
    values[2 + 2 * i] = train.arrivals[i].bytes;
    values[3 + 2 * i] = train.arrivals[i].ns;
  }
  return static_cast<int64_t>(needed);
}

}  // namespace

void* rgpu_probe_open(const char* uri, int timeout_ms, int life_ms, uint64_t times_ns[2],
                      uint8_t* offer, size_t* offer_bytes, char* why, size_t why_bytes) {
  std::string sentence;
  std::unique_ptr<Line> line = Line::Open(uri, timeout_ms, life_ms, &sentence);
  std::vector<uint8_t> encoded;
  if (line != nullptr) {
    times_ns[0] = line->connect_ns();
    times_ns[1] = line->open_ns();
    rgpu::wire::Writer writer(&encoded);
    Put(writer, line->offer());
    if (encoded.size() <= *offer_bytes) {
      std::memcpy(offer, encoded.data(), encoded.size());
      *offer_bytes = encoded.size();
      return line.release();
    }
    sentence = "the responder's offer is too long";
  }
  CopyText(sentence, why, why_bytes);
  return nullptr;
}

void rgpu_probe_schemes(char* names, size_t names_bytes) {
  std::string all;
  for (const rgpu::transport::Scheme& scheme : rgpu::transport::Schemes()) {
    if (scheme.connect != nullptr) all += std::string(all.empty() ? "" : " ") + scheme.name;
  }
  CopyText(all, names, names_bytes);
}

void rgpu_probe_limit(void* line, int life_ms) { AsLine(line)->Limit(life_ms); }

void rgpu_probe_close(void* line) { delete AsLine(line); }

void rgpu_probe_error(const void* line, char* why, size_t why_bytes) {
  CopyText(static_cast<const Line*>(line)->error(), why, why_bytes);
}

void rgpu_probe_kind(const void* line, char* kind, size_t kind_bytes) {
  CopyText(static_cast<const Line*>(line)->kind(), kind, kind_bytes);
}

int64_t rgpu_probe_ping(void* line, uint32_t count, int time_ms, uint64_t* ns) {
  std::vector<uint64_t> times;
  times.reserve(count);
  const bool ok = AsLine(line)->Ping(count, time_ms, &times);
  std::copy(times.begin(), times.end(), ns);
  return ok ? static_cast<int64_t>(times.size()) : -1;
}

int64_t rgpu_probe_train(void* line, int down, uint64_t bytes, uint32_t piece, int time_ms,
                         uint64_t* values, size_t capacity) {
  rgpu::probe::Order order;
  order.verb = down != 0 ? rgpu::probe::Verb::kDown : rgpu::probe::Verb::kUp;
  order.bytes = bytes;
  order.piece = piece;
  order.time_ms = static_cast<uint32_t>(std::max(time_ms, 0));
  Train train;
  const bool ok = down != 0 ? AsLine(line)->Down(order, &train) : AsLine(line)->Up(order, &train);
  return ok ? CopyTrain(train, values, capacity) : -1;
}

int64_t rgpu_probe_count(void* line, uint32_t count, uint32_t batch, uint64_t* values,
                         size_t capacity) {
  Train train;
  const bool ok = AsLine(line)->Count(count, std::max(batch, 1U), &train);
  return ok ? CopyTrain(train, values, capacity) : -1;
}
