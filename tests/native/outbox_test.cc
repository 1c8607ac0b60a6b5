#include "rgpu_common/native/transport/outbox.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::OverBoth;
using testing::Pair;
using wire::ByteView;
using wire::FrameHeader;

FrameBuffer Reply(uint32_t thread, uint64_t seq) {
  FrameHeader header;
  header.kind = wire::Kind::kReply;
  header.thread = thread;
  header.seq = seq;
  FrameBuffer out;
  out.Begin(header).Put(seq);
  CHECK(out.End());
  return out;
}

TEST(outbox, keeps_each_threads_order) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind, true);
    Outbox outbox(pair.a.get());
    constexpr uint32_t kThreads = 4;
    constexpr uint64_t kFrames = 500;
    std::vector<std::thread> threads;
    for (uint32_t t = 1; t <= kThreads; ++t) {
      threads.emplace_back([&outbox, t] {
        std::vector<uint8_t> bulk(3000, static_cast<uint8_t>(t));
        const auto keep = std::make_shared<std::vector<uint8_t>>(bulk);
        for (uint64_t seq = 1; seq <= kFrames; ++seq) {
          if (seq % 5 == 0) {
            FrameHeader header;
            header.kind = wire::Kind::kData;
            header.thread = t;
            header.seq = seq;
            outbox.PostBulk(header, wire::Bytes(&seq, sizeof seq),
                            wire::Bytes(keep->data(), keep->size()), keep);
          } else {
            outbox.Post(Reply(t, seq), seq % 7 == 1);
          }
        }
        outbox.Flush();
      });
    }
    FrameReader reader(pair.b.get());
    std::map<uint32_t, uint64_t> last;
    for (uint64_t i = 0; i < kThreads * kFrames; ++i) {
      FrameHeader header;
      ByteView head;
      CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kFrame);
      CHECK_EQ(header.seq, ++last[header.thread]);
      CHECK(head.size == 8 && std::memcmp(head.data, &header.seq, 8) == 0);
      if (header.kind != wire::Kind::kData) continue;
      std::vector<uint8_t> got(3000);
      CHECK_EQ(reader.bulk_left(), 3000U);
      CHECK(reader.ReadBulk(got.data(), got.size(), kSoonMs) == BulkState::kDone);
      CHECK(got == std::vector<uint8_t>(3000, static_cast<uint8_t>(header.thread)));
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(outbox.Drain(kSoonMs));
    CHECK_EQ(outbox.queued_bytes(), 0U);
  });
}

TEST(outbox, holds_until_flushed) {
  Pair pair = MakePair("unix");
  Outbox outbox(pair.a.get());
  CHECK(outbox.Post(Reply(1, 1), true));
  CHECK_EQ(pair.b->Wait(kReadable, 0), 0);
  outbox.Flush();
  CHECK_EQ(pair.b->Wait(kReadable, kSoonMs), kReadable);
}

TEST(outbox, producers_wait_for_room_and_decoders_do_not) {
  Pair pair = MakePair("unix", true);
  Outbox outbox(pair.a.get(), {.soft_bytes = 100000, .hard_bytes = 1U << 20});
  const auto bulk = std::make_shared<std::vector<uint8_t>>(50000, uint8_t{1});
  const std::weak_ptr<std::vector<uint8_t>> alive = bulk;
  FrameHeader header;
  header.kind = wire::Kind::kData;
  int posted = 0;
  while (outbox.WaitRoom(0)) {
    CHECK(outbox.PostBulk(header, {}, wire::Bytes(bulk->data(), bulk->size()), bulk));
    ++posted;
  }
  CHECK(outbox.queued_bytes() >= 100000);
  CHECK(outbox.Post(Reply(1, 1)));  // never blocks
  CHECK(!outbox.Drain(10));
  std::thread reader([&] {
    FrameReader frames(pair.b.get());
    FrameHeader got;
    ByteView head;
    for (int i = 0; i <= posted; ++i) frames.Next(&got, &head, kSoonMs);
  });
  CHECK(outbox.WaitRoom(kSoonMs));
  CHECK(outbox.Drain(kSoonMs));
  reader.join();
  CHECK_EQ(alive.use_count(), 1);  // only `bulk` itself
}

TEST(outbox, producers_write_what_the_peer_is_slow_for) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind, true);
    Outbox outbox(pair.a.get(), {.soft_bytes = 150000});
    constexpr uint32_t kThreads = 3;
    constexpr uint64_t kFrames = 20;
    std::vector<std::thread> threads;
    for (uint32_t t = 1; t <= kThreads; ++t) {
      threads.emplace_back([&outbox, t] {
        std::vector<uint8_t> bulk(100000);
        for (uint64_t seq = 1; seq <= kFrames; ++seq) {
          FrameHeader header;
          header.kind = wire::Kind::kData;
          header.thread = t;
          header.seq = seq;
          // Its memory may be used again at once.
          bulk.assign(bulk.size(), static_cast<uint8_t>(t * 32 + seq));
          CHECK(outbox.SendBulk(header, {}, wire::Bytes(bulk.data(), bulk.size())));
          CHECK(outbox.Post(Reply(t + kThreads, seq)));  // never blocks
        }
      });
    }
    FrameReader reader(pair.b.get());
    std::map<uint32_t, uint64_t> last;
    std::vector<uint8_t> got(100000);
    for (uint64_t i = 0; i < 2 * kThreads * kFrames; ++i) {
      FrameHeader header;
      ByteView head;
      CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kFrame);
      CHECK_EQ(header.seq, ++last[header.thread]);
      if (header.kind != wire::Kind::kData) continue;
      CHECK(reader.ReadBulk(got.data(), got.size(), kSoonMs) == BulkState::kDone);
      const auto value = static_cast<uint8_t>(header.thread * 32 + header.seq);
      CHECK(got == std::vector<uint8_t>(got.size(), value));
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(outbox.Drain(kSoonMs));  // what was posted meanwhile is the writer's
    CHECK_EQ(outbox.queued_bytes(), 0U);
  });
}

// Two ends of a lane over `kind`, of which nothing is read yet.
Pair LanePair(const std::string& kind) {
  Pair pair = MakePair(kind, true);
  for (auto* end : {&pair.a, &pair.b}) {
    auto lane = std::make_unique<Lane>(std::move(*end), LaneOptions{});
    lane->StartRecords();
    *end = std::move(lane);
  }
  return pair;
}

// Bulk with numbers 1, 2 ...; its seq is the number.
class Numbered {
 public:
  explicit Numbered(Outbox* outbox) : outbox_(outbox) {}
  void Post(uint64_t upto) {
    while (number_ < upto) {
      FrameHeader header;
      header.kind = wire::Kind::kDelivery;
      header.seq = ++number_;
      CHECK(
          outbox_->PostBulk(header, {}, wire::Bytes(bulk_->data(), bulk_->size()), bulk_, number_));
    }
  }

 private:
  Outbox* const outbox_;
  uint64_t number_ = 0;
  const std::shared_ptr<std::vector<uint8_t>> bulk_ =
      std::make_shared<std::vector<uint8_t>>(300000, uint8_t{7});
};

// The order in which frames arrive: the seq of bulk, 1000 and the thread of others.
std::vector<uint64_t> Arrivals(Connection& connection, size_t count) {
  FrameReader reader(&connection);
  std::vector<uint64_t> order;
  while (order.size() < count) {
    FrameHeader header;
    ByteView head;
    CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kFrame);
    CHECK(reader.SkipBulk(kSoonMs) == BulkState::kDone);
    order.push_back(header.kind == wire::Kind::kDelivery ? header.seq : 1000 + header.thread);
  }
  return order;
}

TEST(outbox, small_frames_overtake_bulk_that_they_need_not_come_behind) {
  for (const char* kind : {"unix", "tcp", "tls"}) {
    Pair pair = LanePair(kind);
    Outbox outbox(pair.a.get());
    CHECK(outbox.free_order());
    Numbered bulk(&outbox);
    bulk.Post(60);  // more than the sockets take
    CHECK(outbox.queued_bytes() > 3 * 300000);
    CHECK(outbox.Post(Reply(1, 1), false, 58));
    CHECK(outbox.Post(Reply(2, 1), false, 0));  // no earlier than the one before
    CHECK(outbox.Post(Reply(3, 1)));
    bulk.Post(62);
    CHECK(outbox.Post(Reply(4, 1), false, 0));
    std::vector<uint64_t> expected;
    for (uint64_t i = 1; i <= 58; ++i) expected.push_back(i);
    for (const uint64_t i : {1001, 1002, 59, 60, 1003, 1004, 61, 62}) expected.push_back(i);
    CHECK(Arrivals(*pair.b, expected.size()) == expected);
  }
}

TEST(outbox, what_was_begun_and_held_goes_on) {
  Pair pair = LanePair("unix");
  Outbox outbox(pair.a.get());
  Numbered bulk(&outbox);
  CHECK(outbox.Post(Reply(1, 1), true, 0));
  bulk.Post(60);
  CHECK(outbox.Post(Reply(2, 1), true, 0));
  CHECK(outbox.Post(Reply(3, 1), false, 0));
  const std::vector<uint64_t> order = Arrivals(*pair.b, 63);
  CHECK_EQ(order[0], 1001U);
  const auto second = std::find(order.begin(), order.end(), 1002);
  CHECK(second - order.begin() > 1 && second - order.begin() < 58);
  CHECK_EQ(second[1], 1003U);
  std::vector<uint64_t> rest;
  std::ranges::copy_if(order, std::back_inserter(rest), [](uint64_t one) { return one < 1000; });
  CHECK(std::ranges::is_sorted(rest));
}

TEST(outbox, without_a_lane_the_order_is_that_of_posting) {
  Pair pair = MakePair("tls", true);
  Outbox outbox(pair.a.get());
  CHECK(!outbox.free_order());
  Numbered bulk(&outbox);
  bulk.Post(60);
  CHECK(outbox.Post(Reply(1, 1), false, 0));
  CHECK_EQ(Arrivals(*pair.b, 61).back(), 1001U);
}

// A producer's memory is its own again when SendBulk returns, whatever went in between.
TEST(outbox, a_producer_that_was_overtaken_waits_for_its_own_bytes) {
  Pair pair = LanePair("tcp");
  Outbox outbox(pair.a.get());
  constexpr uint64_t kFrames = 200;
  std::thread producer([&] {
    std::vector<uint8_t> bulk(200000);
    for (uint64_t seq = 1; seq <= kFrames; ++seq) {
      FrameHeader header;
      header.kind = wire::Kind::kData;
      header.seq = seq;
      bulk.assign(bulk.size(), static_cast<uint8_t>(seq));
      CHECK(outbox.SendBulk(header, {}, wire::Bytes(bulk.data(), bulk.size())));
    }
    CHECK(outbox.Post(Reply(9, 1)));
  });
  std::atomic<bool> over{false};
  std::thread caller([&] {
    for (uint64_t seq = 1; !over; ++seq) {
      CHECK(outbox.Post(Reply(1, seq), false, 0));
      std::this_thread::yield();
    }
  });
  FrameReader reader(pair.b.get());
  std::vector<uint8_t> got(200000);
  uint64_t next = 1;
  for (bool ended = false; !ended;) {
    FrameHeader header;
    ByteView head;
    CHECK(reader.Next(&header, &head, kSoonMs) == ReadState::kFrame);
    ended = header.thread == 9;
    if (header.kind != wire::Kind::kData) continue;
    CHECK_EQ(header.seq, next++);
    CHECK(reader.ReadBulk(got.data(), got.size(), kSoonMs) == BulkState::kDone);
    CHECK(got == std::vector<uint8_t>(got.size(), static_cast<uint8_t>(header.seq)));
  }
  CHECK_EQ(next, kFrames + 1);
  over = true;
  producer.join();
  caller.join();
  outbox.Close();
}

TEST(outbox, producers_end_with_the_connection) {
  for (const bool here : {true, false}) {
    Pair pair = MakePair("unix", true);
    Outbox outbox(pair.a.get());
    const std::vector<uint8_t> bulk(wire::kMaxBulkBytes);
    bool sent = true;
    std::thread producer([&] {
      FrameHeader header;
      header.kind = wire::Kind::kData;
      sent = outbox.SendBulk(header, {}, wire::Bytes(bulk.data(), bulk.size()));
    });
    CHECK_EQ(pair.b->Wait(kReadable, kSoonMs), kReadable);
    if (here) outbox.Close();
    if (!here) pair.b.reset();
    producer.join();
    CHECK(!sent);
    CHECK(outbox.closed());
  }
}

TEST(outbox, a_peer_that_sends_and_never_reads_is_given_up) {
  Pair pair = MakePair("unix", true);
  Outbox outbox(pair.a.get(), {.soft_bytes = 1000, .hard_bytes = 10000});
  uint64_t seq = 0;
  while (outbox.Post(Reply(1, ++seq))) CHECK(seq < 1000000);
  CHECK(outbox.closed());
  CHECK(!outbox.Post(Reply(1, 1)));
  CHECK(!outbox.WaitRoom(kSoonMs));
  CHECK(!outbox.Drain(kSoonMs));
  char got[64];
  IoResult result;
  const base::Deadline deadline(kSoonMs);
  do {
    CHECK(!deadline.passed());
    result = pair.b->Recv(got, sizeof got, kSoonMs);
  } while (result.ok());
  CHECK(result.lost());
}

TEST(outbox, gives_up_after_the_idle_time) {
  Pair pair = MakePair("unix", true);
  Outbox outbox(pair.a.get(), {.idle_timeout_ms = 50});
  for (uint64_t seq = 0; seq < 20000; ++seq) outbox.Post(Reply(1, seq), true);
  outbox.Flush();
  CHECK(!outbox.Drain(kSoonMs));
  CHECK(outbox.closed());
}

TEST(outbox, notices_a_lost_peer_and_closes_at_once) {
  Pair pair = MakePair("tcp");
  {
    Outbox outbox(pair.a.get());
    pair.b.reset();
    const base::Deadline deadline(kSoonMs);
    while (outbox.Post(Reply(1, 1))) CHECK(!deadline.passed());
  }
  pair = MakePair("unix", true);
  Outbox outbox(pair.a.get());
  for (uint64_t seq = 0; seq < 10000; ++seq) outbox.Post(Reply(1, seq));
  outbox.Close();  // and the destructor joins the writer
  CHECK(!outbox.Post(Reply(1, 1)));
}

}  // namespace
}  // namespace rgpu::transport
