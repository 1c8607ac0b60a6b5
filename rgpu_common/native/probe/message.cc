#include "rgpu_common/native/probe/message.h"

#include <algorithm>
#include <memory>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/text.h"

namespace rgpu::probe {
namespace {

using transport::BulkState;
using transport::FrameBuffer;
using transport::FrameReader;
using transport::ReadState;
using transport::SendState;

// The fewest bytes between two readings. With fewer, the kernel's wake-ups would dominate the
// times.
constexpr uint64_t kMinStepBytes = 16U << 10;
// The most bytes between two readings. The time limit may end a train long before all its bytes,
// and there must be readings by then.
constexpr uint64_t kMaxStepBytes = 128U << 10;

// Random bytes. A middle box that compresses would carry zeros faster than real data.
const uint8_t* Noise() {
  static const std::unique_ptr<uint8_t[]> noise = [] {
    auto bytes = std::make_unique<uint8_t[]>(wire::kMaxBulkBytes);
    uint64_t state = 0x9E3779B97F4A7C15U;
    for (size_t at = 0; at < wire::kMaxBulkBytes; at += sizeof state) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(bytes.get() + at, &state, sizeof state);
    }
    return bytes;
  }();
  return noise.get();
}

// Removes the reading that carries the least information: the nearest to its neighbours in bytes
// and time.
void LeaveOneOut(std::vector<Arrival>* arrivals) {
  const auto bytes = static_cast<double>(arrivals->back().bytes);
  const auto ns = static_cast<double>(arrivals->back().ns + 1);
  auto least = arrivals->begin() + 1;
  double shortest = 3;  // larger than any gap, which is at most 1 + 1
  for (auto at = least; at + 1 != arrivals->end(); ++at) {
    const double gap = static_cast<double>(at[1].bytes - at[-1].bytes) / bytes +
                       static_cast<double>(at[1].ns - at[-1].ns) / ns;
    if (gap < shortest) shortest = gap, least = at;
  }
  arrivals->erase(least);
}

wire::FrameHeader TrainHeader(uint32_t bulk, bool more) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kProbe);
  header.flags = more ? wire::kMore : 0;
  header.payload_bytes = bulk;
  header.bulk_bytes = bulk;
  return header;
}

}  // namespace

void Put(wire::Writer& w, const Request& m) {
  w.Put(wire::kMagic);
  w.Put(m.version);
  w.Put(m.wishes);
}

bool Get(wire::Reader& r, Request* m) {
  if (!GetMagic(r)) return false;
  r.Get(&m->version);
  r.Get(&m->wishes);
  return r.done() && m->version >= 1;
}

void Put(wire::Writer& w, const Offer& m) {
  w.Put(wire::kMagic);
  w.Put(m.version);
  w.Put(m.grants);
  w.Put(wire::Bytes(m.server.data(), m.server.size()));
  w.Put(wire::Bytes(m.nonce.data(), m.nonce.size()));
  w.Put(wire::Bytes(m.host.data(), m.host.size()));
  w.Put(m.bytes);
  w.Put(m.time_ms);
  w.Put(static_cast<uint32_t>(m.endpoints.size()));
  for (const std::string& uri : m.endpoints) w.Put(wire::Bytes(uri));
}

bool Get(wire::Reader& r, Offer* m) {
  if (!GetMagic(r)) return false;
  r.Get(&m->version);
  r.Get(&m->grants);
  if (!GetExactly(r, &m->server) || !GetExactly(r, &m->nonce) || !GetExactly(r, &m->host)) {
    return false;
  }
  r.Get(&m->bytes);
  r.Get(&m->time_ms);
  uint32_t count = 0;
  r.Get(&count);
  if (!r.ok() || count > kMaxEndpoints) return false;
  m->endpoints.clear();
  for (uint32_t i = 0; i < count; ++i) {
    wire::ByteView uri;
    r.Get(&uri);
    if (!r.ok() || uri.size > kMaxUriBytes || !wire::IsCleanText(uri.text())) return false;
    m->endpoints.emplace_back(uri.text());
  }
  return r.done();
}

void Put(wire::Writer& w, const Order& m) {
  w.Put(m.verb);
  w.Put(m.piece);
  w.Put(m.bytes);
  w.Put(m.time_ms);
  w.Put(m.tag);
}

bool Get(wire::Reader& r, Order* m) {
  r.Get(&m->verb);
  r.Get(&m->piece);
  r.Get(&m->bytes);
  r.Get(&m->time_ms);
  r.Get(&m->tag);
  if (!r.done()) return false;
  switch (m->verb) {
    case Verb::kEcho:
    case Verb::kTick:
      return true;
    case Verb::kUp:
    case Verb::kDown:
      return m->bytes >= 1 && m->bytes <= kMaxTrainBytes && m->piece >= kMinPieceBytes &&
             m->piece <= wire::kMaxBulkBytes;
    case Verb::kCount:
      return m->bytes >= 2 && m->bytes <= kMaxTicks;
  }
  return false;
}

void Put(wire::Writer& w, const std::vector<Arrival>& m) {
  w.Put(wire::Bytes(m.data(), m.size() * sizeof(Arrival)));
}

bool Get(wire::Reader& r, std::vector<Arrival>* m) {
  wire::ByteView rows;
  r.Get(&rows);
  if (!r.done() || rows.size % sizeof(Arrival) != 0 || rows.size > kMaxPoints * sizeof(Arrival)) {
    return false;
  }
  m->resize(rows.size / sizeof(Arrival));
  if (!m->empty()) std::memcpy(m->data(), rows.data, rows.size);
  return true;
}

TrainSent SendTrain(transport::Connection& connection, const Order& order, FrameBuffer* first,
                    int idle_ms) {
  const uint64_t stop =
      base::NowNs() + (order.time_ms == 0 ? UINT64_MAX / 4 : order.time_ms * 1000000ULL);
  const uint8_t* noise = Noise();
  uint64_t begun = 0;
  for (uint64_t left = order.bytes; left > 0;) {
    const auto bulk = static_cast<uint32_t>(std::min<uint64_t>(left, order.piece));
    left = base::NowNs() < stop ? left - bulk : 0;
    wire::FrameHeader header = TrainHeader(bulk, left > 0);
    iovec parts[3] = {first != nullptr ? first->part() : iovec{nullptr, 0},
                      {&header, sizeof header},
                      {const_cast<uint8_t*>(noise), bulk}};
    begun += bulk;
    if (transport::SendAll(connection, parts, 3, nullptr, idle_ms) != SendState::kSent) {
      return {begun, false};
    }
    first = nullptr;
  }
  return {begun, true};
}

bool ReceiveTrain(FrameReader& reader, const Order& order, int idle_ms,
                  std::vector<Arrival>* arrivals) {
  const uint64_t start = base::NowNs();
  const uint64_t step =
      std::clamp(order.bytes / (kMaxPoints - 1) + 1, kMinStepBytes, kMaxStepBytes);
  const auto scratch = std::make_unique<uint8_t[]>(std::min<uint64_t>(step, order.bytes));
  uint64_t got = 0;
  arrivals->clear();
  for (bool more = true; more;) {
    wire::FrameHeader header;
    wire::ByteView head;
    if (reader.Next(&header, &head, idle_ms) != ReadState::kFrame) return false;
    if (!IsProbe(header) || head.size != 0 || header.bulk_bytes > order.bytes - got) return false;
    more = (header.flags & wire::kMore) != 0;
    // Refuse empty frames, which could go on for ever, and more bytes than the order allows.
    if (header.bulk_bytes == 0 || (more && header.bulk_bytes == order.bytes - got)) return false;
    while (reader.bulk_left() > 0) {
      const uint64_t size = std::min<uint64_t>(reader.bulk_left(), step - got % step);
      if (reader.ReadBulk(scratch.get(), size, idle_ms) != BulkState::kDone) return false;
      got += size;
      const bool last = !more && reader.bulk_left() == 0;
      if (got % step != 0 && !last) continue;
      arrivals->push_back({got, base::NowNs() - start});
      if (arrivals->size() > kMaxPoints) LeaveOneOut(arrivals);
    }
  }
  return true;
}

}  // namespace rgpu::probe
