#include "rgpu_common/native/probe/session.h"

#include <algorithm>
#include <array>
#include <utility>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"

namespace rgpu::probe {
namespace {

using transport::FrameBuffer;
using transport::ReadState;
using transport::SendState;

constexpr uint64_t kFrameBytes = wire::kHeaderBytes + kOrderBytes;
constexpr int kLingerMs = 300;
constexpr size_t kLingerBytes = 4U << 20;
constexpr int32_t kUnavailable = 46;  // CUDA_ERROR_DEVICE_UNAVAILABLE

void PutRefusal(FrameBuffer* out, const char* sentence) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kRefused);
  header.status = kUnavailable;
  wire::Writer writer = out->Begin(header);
  Put(writer, wire::Refused{sentence});
  out->End();
}

}  // namespace

Session::Session(transport::Connection* connection, Offer offer, Limits limits,
                 std::function<bool(int64_t)> charge)
    : connection_(connection),
      reader_(connection),
      offer_(std::move(offer)),
      limits_(limits),
      charge_(std::move(charge)),
      left_(limits.bytes) {
  offer_.bytes = limits.bytes;
  offer_.time_ms = static_cast<uint32_t>(limits.time_ms);
}

void Session::Serve(const wire::ByteView* first) {
  if (!Open(first)) return;
  for (;;) {
    wire::FrameHeader header;
    wire::ByteView head;
    if (reader_.Next(&header, &head, limits_.idle_ms) != ReadState::kFrame) return;
    if (!Obey(header, head)) return;
  }
}

bool Session::Open(const wire::ByteView* first) {
  wire::FrameHeader header;
  wire::ByteView head;
  if (first != nullptr) {
    head = *first;
  } else {
    if (reader_.Next(&header, &head, limits_.idle_ms) != ReadState::kFrame) return false;
    if (!IsProbe(header) || header.bulk_bytes != 0) {
      Refuse("this port answers probes only: `netprobe run` or `rgpu probe`");
      return false;
    }
  }
  Request request;
  wire::Reader fields(head.data, head.size);
  if (!Get(fields, &request)) {
    Refuse("the first message is not a valid PROBE");
    return false;
  }
  // Before the answer: who has it must not count as one that has sent no PROBE.
  opened_ = true;
  return Answer(request);
}

bool Session::Answer(const Request& request) {
  auto* shared = dynamic_cast<transport::ShmConnection*>(connection_);
  int error = 0;
  const bool ring = shared != nullptr && (request.wishes & kRing) != 0 && shared->Make(&error);
  offer_.grants = ring ? kRing : 0;
  out_.clear();
  Append(&out_, offer_);
  if (ring) return shared->SendWith(out_.data(), out_.size(), {}) && AwaitRing();
  if (shared != nullptr) shared->StayOnSocket();
  return Send();
}

bool Session::AwaitRing() {
  auto* shared = dynamic_cast<transport::ShmConnection*>(connection_);
  wire::FrameHeader header;
  wire::ByteView head;
  if (reader_.Next(&header, &head, limits_.idle_ms) != ReadState::kFrame) return false;
  wire::Shm answer;
  wire::Reader fields(head.data, head.size);
  if (header.kind != wire::Kind::kHandshake || header.bulk_bytes != 0 ||
      header.opcode != static_cast<uint16_t>(wire::Handshake::kShm) || !Get(fields, &answer)) {
    return false;
  }
  if (answer.accepted == 0) {
    shared->StayOnSocket();
    return true;
  }
  if (reader_.has_buffered()) return false;  // bytes after SHM on the socket would be lost
  shared->Switch();
  return true;
}

bool Session::Obey(const wire::FrameHeader& header, wire::ByteView head) {
  Order order;
  wire::Reader fields(head.data, head.size);
  if (!IsProbe(header) || header.bulk_bytes != 0 || !Get(fields, &order)) {
    Refuse("the message is not a valid order of a probe");
    return false;
  }
  if (!Charge(kFrameBytes)) return false;
  switch (order.verb) {
    case Verb::kEcho:
      return Echo(order);
    case Verb::kUp:
      return Charge(order.bytes) && Up(order);
    case Verb::kDown:
      return Charge(order.bytes) && Down(order);
    case Verb::kCount:
      return Charge(order.bytes * kFrameBytes) && Count(order);
    case Verb::kTick:
      break;
  }
  Refuse("a tick is valid only within a count");
  return false;
}

bool Session::Echo(const Order& order) {
  out_.clear();
  Append(&out_, order);
  return Send();
}

bool Session::Up(const Order& order) {
  std::vector<Arrival> arrivals;
  if (!ReceiveTrain(reader_, order, limits_.idle_ms, &arrivals)) return false;
  GiveBack(order.bytes - arrivals.back().bytes);
  out_.clear();
  Append(&out_, arrivals);
  return Send();
}

bool Session::Down(const Order& order) {
  const TrainSent train = SendTrain(*connection_, order, nullptr, limits_.idle_ms);
  GiveBack(order.bytes - train.bytes);
  return train.whole;
}

bool Session::Count(const Order& order) {
  uint64_t first_ns = 0;
  for (uint64_t i = 0; i < order.bytes; ++i) {
    wire::FrameHeader header;
    wire::ByteView head;
    if (reader_.Next(&header, &head, limits_.idle_ms) != ReadState::kFrame) return false;
    if (!IsProbe(header) || head.size != kOrderBytes || header.bulk_bytes != 0) return false;
    if (i == 0) first_ns = base::NowNs();
  }
  out_.clear();
  Append(&out_, std::vector<Arrival>{{order.bytes, base::NowNs() - first_ns}});
  return Send();
}

bool Session::Charge(uint64_t bytes) {
  if (bytes <= left_ && (charge_ == nullptr || charge_(static_cast<int64_t>(bytes)))) {
    left_ -= bytes;
    return true;
  }
  Refuse("this probe has used up the bytes that it may move: try again in a minute");
  return false;
}

void Session::GiveBack(uint64_t bytes) {
  left_ += bytes;
  if (charge_ != nullptr) charge_(-static_cast<int64_t>(bytes));
}

bool Session::Send() {
  iovec part = out_.part();
  return transport::SendAll(*connection_, &part, 1, nullptr, limits_.idle_ms) == SendState::kSent;
}

// Sends the refusal, then reads for a while. A close with unread bytes would reset the connection,
// and the peer could lose the sentence.
void Session::Refuse(const char* sentence) {
  RefuseNow(connection_, sentence);
  const base::Deadline deadline(kLingerMs);
  std::array<uint8_t, 16 << 10> scratch;
  for (size_t left = kLingerBytes; left > 0 && !deadline.passed();) {
    const transport::IoResult got =
        connection_->Recv(scratch.data(), scratch.size(), deadline.left_ms());
    if (!got.ok()) return;
    left -= std::min(left, got.bytes);
  }
}

void RefuseNow(transport::Connection* connection, const char* sentence) {
  FrameBuffer out;
  PutRefusal(&out, sentence);
  const iovec part = out.part();
  connection->TrySend(&part, 1);
}

}  // namespace rgpu::probe
