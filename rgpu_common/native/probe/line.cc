#include "rgpu_common/native/probe/line.h"

#include <algorithm>
#include <system_error>

#include "gen/handshake.gen.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"

namespace rgpu::probe {

using base::NowNs;
using transport::ReadState;
using transport::SendState;

namespace {

constexpr int kIdleMs = 2000;
// Allowance for the different speeds of two machines' clocks.
constexpr uint64_t kClockSlackNs = 1'000'000;
constexpr char kTooLong[] =
    "the measurement took too long: the path is very slow, or the responder delays its answers";

// True if the arrivals are in order, end with all `bytes`, and took no longer than `ns`, the time
// measured here. Otherwise the responder's figures are false.
bool IsPossible(const std::vector<Arrival>& arrivals, uint64_t bytes, uint64_t ns) {
  Arrival last;
  for (const Arrival& arrival : arrivals) {
    if (arrival.bytes < last.bytes || arrival.ns < last.ns) return false;
    last = arrival;
  }
  return !arrivals.empty() && last.bytes == bytes && last.ns <= ns + ns / 64 + kClockSlackNs;
}

}  // namespace

Line::Line(std::unique_ptr<transport::Connection> connection, int timeout_ms, int life_ms)
    : connection_(std::move(connection)),
      reader_(connection_.get()),
      idle_ms_(timeout_ms),
      watchdog_(connection_.get(), life_ms) {}

std::unique_ptr<Line> Line::Open(const std::string& uri, int timeout_ms, int life_ms,
                                 std::string* why) {
  transport::ConnectOptions options;
  options.timeout_ms = timeout_ms;
  transport::ConnectError error;
  const uint64_t start = NowNs();
  std::unique_ptr<transport::Connection> connection = transport::Connect(uri, options, &error);
  if (connection == nullptr) {
    *why = error.sentence;
    return nullptr;
  }
  std::unique_ptr<Line> line;
  try {
    line.reset(new Line(std::move(connection), timeout_ms, life_ms));
  } catch (const std::system_error&) {
    *why =
        "the system refused the thread that watches the probe: raise the limit of processes "
        "(ulimit -u)";
    return nullptr;
  }
  line->connect_ns_ = NowNs() - start;
  if (!line->Greet()) {
    const std::string reason = line->connection_->LostReason();
    if (line->refused_) {
      *why = line->error_;
    } else if (!reason.empty()) {
      *why =
          "the server at " + uri + " ended the connection: " + reason + transport::Remedy(reason);
    } else {
      *why = "the program that listens at " + uri + " does not answer as an rgpu server (" +
             line->error_ + ")";
    }
    return nullptr;
  }
  line->open_ns_ = NowNs() - start;
  line->idle_ms_ = kIdleMs;
  return line;
}

bool Line::Greet() {
  auto* shared = dynamic_cast<transport::ShmConnection*>(connection_.get());
  if (shared != nullptr) shared->ExpectDescriptors();
  out_.clear();
  Append(&out_, Request{.wishes = shared != nullptr ? kRing : uint16_t{0}});
  wire::ByteView head;
  if (!Send() || !Receive(&head)) return false;
  wire::Reader fields(head.data, head.size);
  if (!Get(fields, &offer_)) return Broken("the responder's offer is malformed");
  return shared == nullptr || TakeRing();
}

bool Line::TakeRing() {
  auto* shared = dynamic_cast<transport::ShmConnection*>(connection_.get());
  std::string why = "the responder offers no shared-memory ring";
  if ((offer_.grants & kRing) == 0 || reader_.has_buffered() || !shared->Map(&why)) {
    return Broken(why.c_str());
  }
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = static_cast<uint16_t>(wire::Handshake::kShm);
  out_.clear();
  wire::Writer writer = out_.Begin(header);
  Put(writer, wire::Shm{1, ""});
  out_.End();
  if (!Send()) return false;
  shared->Switch();
  return true;
}

bool Line::Ping(uint32_t count, int time_ms, std::vector<uint64_t>* ns) {
  const uint64_t stop = NowNs() + static_cast<uint64_t>(std::max(time_ms, 0)) * 1000000U;
  Order order;
  for (uint32_t i = 0; i < count && (i == 0 || NowNs() < stop); ++i) {
    order.tag = i;
    const uint64_t start = NowNs();
    out_.clear();
    Append(&out_, order);
    wire::ByteView head;
    if (!Send() || !Receive(&head)) return false;
    ns->push_back(NowNs() - start);
    Order echo;
    wire::Reader fields(head.data, head.size);
    if (!Get(fields, &echo) || echo.tag != i) {
      return Broken("the responder's echo differs from the message that was sent");
    }
  }
  return true;
}

bool Line::Up(const Order& order, Train* train) {
  const uint64_t start = NowNs();
  out_.clear();
  Append(&out_, order);
  const TrainSent sent = SendTrain(*connection_, order, &out_, idle_ms_);
  if (!sent.whole) {
    wire::ByteView head;  // Receive reports the responder's refusal, if one has arrived
    return Receive(&head) && Broken("the connection broke while a train was sent");
  }
  return ReceiveArrivals(sent.bytes, start, train);
}

bool Line::Down(const Order& order, Train* train) {
  const uint64_t start = NowNs();
  out_.clear();
  Append(&out_, order);
  if (!Send()) return false;
  if (!ReceiveTrain(reader_, order, idle_ms_, &train->arrivals) || train->arrivals.empty()) {
    return Broken(
        "the responder did not send the requested train: it may have no bytes left for this probe");
  }
  train->total_ns = NowNs() - start;
  train->bytes = train->arrivals.back().bytes;
  return true;
}

bool Line::Count(uint32_t count, uint32_t batch, Train* train) {
  Order order;
  order.verb = Verb::kCount;
  order.bytes = count;
  Order tick;
  tick.verb = Verb::kTick;
  const uint64_t start = NowNs();
  out_.clear();
  Append(&out_, order);
  for (uint32_t sent = 0; sent < count;) {
    for (uint32_t i = 0; i < batch && sent < count; ++i, ++sent) Append(&out_, tick);
    if (!Send()) return false;
    out_.clear();
  }
  return ReceiveArrivals(count, start, train);
}

bool Line::Send() {
  iovec part = out_.part();
  switch (transport::SendAll(*connection_, &part, 1, nullptr, idle_ms_)) {
    case SendState::kSent:
      return true;
    case SendState::kTimeout:
      return Broken("the responder accepts no more bytes");
    default:
      return Broken("the responder has closed the connection");
  }
}

bool Line::Receive(wire::ByteView* head) {
  wire::FrameHeader header;
  switch (reader_.Next(&header, head, idle_ms_)) {
    case ReadState::kFrame:
      break;
    case ReadState::kTimeout:
      return Broken("the responder did not answer in time");
    case ReadState::kMalformed:
      return Broken("the responder speaks another protocol");
    default:
      return Broken("the responder has closed the connection");
  }
  if (header.kind == wire::Kind::kHandshake &&
      header.opcode == static_cast<uint16_t>(wire::Handshake::kRefused)) {
    wire::Refused refused;
    wire::Reader fields(head->data, head->size);
    refused_ = true;
    return Broken(Get(fields, &refused) ? refused.sentence.c_str() : "refused");
  }
  return (IsProbe(header) && header.bulk_bytes == 0) ||
         Broken("the responder sent a message that does not fit the request");
}

bool Line::ReceiveArrivals(uint64_t bytes, uint64_t start_ns, Train* train) {
  wire::ByteView head;
  if (!Receive(&head)) return false;
  train->total_ns = NowNs() - start_ns;
  wire::Reader fields(head.data, head.size);
  if (!Get(fields, &train->arrivals) || !IsPossible(train->arrivals, bytes, train->total_ns)) {
    return Broken("the responder answers a train with impossible figures");
  }
  train->bytes = bytes;
  return true;
}

bool Line::Broken(const char* sentence) {
  if (error_.empty()) error_ = watchdog_.bitten() ? kTooLong : sentence;
  return false;
}

}  // namespace rgpu::probe
