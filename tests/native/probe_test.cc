#include <chrono>
#include <future>
#include <thread>

#include "netprobe/responder/responder.h"
#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/probe/line.h"
#include "rgpu_common/native/probe/session.h"
#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::probe {
namespace {

using base::kSecond;
using testing::kSoonMs;
using testing::MakePair;
using testing::Pair;
using transport::FrameBuffer;
using transport::FrameReader;
using transport::ReadState;

// A session in a thread, and the other end of its connection.
class Served {
 public:
  explicit Served(Limits limits = {}, bool small_buffers = false)
      : pair_(MakePair("unix", small_buffers)),
        reader(pair_.b.get()),
        session_(pair_.a.get(), Offer{.endpoints = {"tcp:0.0.0.0:7700"}}, limits),
        thread_([this] {
          session_.Serve(nullptr);
          pair_.a->Shutdown();
          ended_.set_value();
        }) {}
  ~Served() {
    pair_.b->Shutdown();
    thread_.join();
  }

  template <typename Message>
  void Say(const Message& message) {
    FrameBuffer out;
    Append(&out, message);
    testing::SendBytes(*pair_.b, out.data(), out.size());
  }
  // The next frame's opcode, 0 when the session has closed.
  uint16_t Next() {
    wire::FrameHeader header;
    if (reader.Next(&header, &head, kSoonMs) != ReadState::kFrame) return 0;
    return header.opcode;
  }
  bool WaitEnded() {
    return ended_.get_future().wait_for(std::chrono::milliseconds(kSoonMs)) ==
           std::future_status::ready;
  }
  transport::Connection& end() { return *pair_.b; }

 private:
  Pair pair_;

 public:
  FrameReader reader;
  wire::ByteView head;

 private:
  Session session_;
  std::promise<void> ended_;
  std::thread thread_;
};

constexpr auto kProbe = static_cast<uint16_t>(wire::Handshake::kProbe);
constexpr auto kRefused = static_cast<uint16_t>(wire::Handshake::kRefused);

Order Make(Verb verb, uint64_t bytes, uint32_t piece = 64U << 10) {
  Order order;
  order.verb = verb;
  order.bytes = bytes;
  order.piece = piece;
  return order;
}

TEST(probe, greets_and_echoes) {
  Served served;
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  Offer offer;
  wire::Reader fields(served.head.data, served.head.size);
  CHECK(Get(fields, &offer));
  CHECK_EQ(offer.endpoints.at(0), "tcp:0.0.0.0:7700");
  Order order;
  order.tag = 77;
  served.Say(order);
  CHECK_EQ(served.Next(), kProbe);
  Order echo;
  wire::Reader again(served.head.data, served.head.size);
  CHECK(Get(again, &echo));
  CHECK_EQ(echo.tag, 77U);
}

TEST(probe, moves_trains_both_ways) {
  constexpr uint64_t kBytes = 3'000'001;
  Served served;
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  const Order up = Make(Verb::kUp, kBytes);
  FrameBuffer first;
  Append(&first, up);
  CHECK(SendTrain(served.end(), up, &first, kSoonMs).whole);
  CHECK_EQ(served.Next(), kProbe);
  std::vector<Arrival> arrivals;
  wire::Reader fields(served.head.data, served.head.size);
  CHECK(Get(fields, &arrivals));
  CHECK_EQ(arrivals.back().bytes, kBytes);
  CHECK(arrivals.size() > 10 && arrivals.size() <= kMaxPoints);
  served.Say(Make(Verb::kDown, kBytes));
  CHECK(ReceiveTrain(served.reader, Make(Verb::kDown, kBytes), kSoonMs, &arrivals));
  CHECK_EQ(arrivals.back().bytes, kBytes);
}

TEST(probe, has_arrivals_of_a_train_that_ends_early_and_of_a_long_one) {
  Served served;
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  const Order order = Make(Verb::kDown, 64U << 20);
  for (const uint64_t bytes : {4U << 20, 60U << 20}) {
    std::vector<Arrival> arrivals;
    served.Say(Make(Verb::kDown, bytes));
    CHECK(ReceiveTrain(served.reader, order, kSoonMs, &arrivals));
    CHECK(arrivals.size() >= 32 && arrivals.size() <= kMaxPoints);
    CHECK_EQ(arrivals.back().bytes, bytes);
    for (size_t i = 1; i < arrivals.size(); ++i) {
      CHECK(arrivals[i - 1].bytes < arrivals[i].bytes && arrivals[i - 1].ns <= arrivals[i].ns);
    }
  }
}

TEST(probe, refuses_what_is_no_order) {
  const Order bad[] = {Make(Verb::kUp, 0),
                       Make(Verb::kDown, kMaxTrainBytes + 1),
                       Make(Verb::kDown, 10, 0),
                       Make(Verb::kDown, 10, 2U << 20),
                       Make(Verb::kCount, 1),
                       Make(Verb::kCount, kMaxTicks + 1),
                       Make(static_cast<Verb>(9), 1),
                       Make(Verb::kTick, 0)};
  for (const Order& order : bad) {
    Served served;
    served.Say(Request{});
    CHECK_EQ(served.Next(), kProbe);
    served.Say(order);
    CHECK_EQ(served.Next(), kRefused);
  }
}

TEST(probe, refuses_what_is_no_probe) {
  Served served;
  served.Say(Order{});
  CHECK_EQ(served.Next(), kRefused);
}

TEST(probe, keeps_to_its_bytes) {
  Served served({.bytes = 1U << 20});
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  served.Say(Make(Verb::kDown, 2U << 20));
  CHECK_EQ(served.Next(), kRefused);
}

TEST(probe, gives_up_who_says_nothing) {
  Served served({.idle_ms = 50});
  CHECK_EQ(served.Next(), 0);
}

TEST(probe, gives_up_who_takes_nothing) {
  Served served({.idle_ms = 50}, true);
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  served.Say(Make(Verb::kDown, 64U << 20));
  // Nothing is read until the session has given up.
  std::vector<Arrival> arrivals;
  CHECK(served.WaitEnded());
  CHECK(!ReceiveTrain(served.reader, Make(Verb::kDown, 64U << 20), kSoonMs, &arrivals));
}

TEST(probe, a_train_is_not_longer_than_agreed) {
  Served served;
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  served.Say(Make(Verb::kUp, 5000));
  SendTrain(served.end(), Make(Verb::kUp, 5001), nullptr, kSoonMs);
  CHECK_EQ(served.Next(), 0);
}

TEST(probe, an_empty_train_that_never_ends_is_none) {
  Served served;
  served.Say(Request{});
  CHECK_EQ(served.Next(), kProbe);
  served.Say(Make(Verb::kUp, 5000));
  wire::FrameHeader header;
  header.kind = wire::Kind::kHandshake;
  header.opcode = kProbe;
  header.flags = wire::kMore;
  testing::SendBytes(served.end(), &header, sizeof header);
  CHECK_EQ(served.Next(), 0);
}

TEST(probe, a_peer_has_so_many_probes) {
  netprobe::PeerBook book({.burst_probes = 3, .probes_per_second = 1});
  for (int i = 0; i < 3; ++i) CHECK(book.Open("a", kSecond));
  CHECK(!book.Open("a", kSecond));
  CHECK(book.Open("b", kSecond));
  CHECK(book.Open("a", 2 * kSecond));
  CHECK(!book.Open("a", 2 * kSecond));
}

TEST(probe, a_peer_has_so_many_bytes) {
  netprobe::PeerBook book({.burst_bytes = 100, .bytes_per_second = 10});
  CHECK(book.Charge("a", 90, kSecond));
  CHECK(!book.Charge("a", 20, kSecond));
  CHECK(book.Charge("a", 20, 2 * kSecond));
}

TEST(probe, bytes_that_were_not_moved_are_given_back) {
  netprobe::PeerBook book({.burst_bytes = 100, .bytes_per_second = 10});
  CHECK(book.Charge("a", 90, kSecond));
  book.GiveBack("a", 50, kSecond);
  CHECK(!book.Charge("a", 61, kSecond));
  CHECK(book.Charge("a", 60, kSecond));
  // An account that is full stays full.
  book.GiveBack("a", 1000, kSecond);
  CHECK(!book.Charge("a", 101, kSecond));
}

TEST(probe, all_peers_together_have_so_many_bytes) {
  netprobe::PeerBook book({.burst_bytes = 100, .bytes_per_second = 10, .peers = 2});
  CHECK(book.Charge("a", 100, kSecond));
  CHECK(book.Charge("b", 90, kSecond));
  CHECK(!book.Charge("c", 20, kSecond));
  CHECK(book.Charge("c", 10, kSecond));
  // Twice the rate of one peer.
  CHECK(!book.Charge("d", 21, 2 * kSecond));
  CHECK(book.Charge("d", 20, 2 * kSecond));
  // The refusal took nothing from the peer's own account.
  CHECK(book.Charge("c", 90, 6 * kSecond + kSecond / 2));
}

TEST(probe, strangers_do_not_fill_the_book) {
  netprobe::PeerBook book({});
  for (uint64_t i = 0; i < 10000; ++i) book.Open(std::to_string(i), kSecond + i);
  CHECK(book.size() <= 4096);
}

}  // namespace
}  // namespace rgpu::probe
