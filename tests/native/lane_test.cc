// A lane, one rule after the other: beginnings and ends, acknowledgements, links it refuses.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/lane/window.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::Pair;

Pair Lanes(const LaneOptions& options) {
  Pair pair = MakePair("unix");
  auto a = std::make_unique<Lane>(std::move(pair.a), options);
  auto b = std::make_unique<Lane>(std::move(pair.b), options);
  a->StartRecords();
  b->StartRecords();
  return {std::move(a), std::move(b)};
}

Lane& AsLane(const std::unique_ptr<Connection>& one) { return static_cast<Lane&>(*one); }

TEST(lane, what_is_before_the_records_passes_as_it_is) {
  Pair pair = MakePair("unix");
  Lane a(std::move(pair.a), {});
  Lane b(std::move(pair.b), {});
  uint8_t got[64] = {};
  testing::SendBytes(a, "hello", 5);
  CHECK_EQ(b.Recv(got, sizeof got, kSoonMs).bytes, 5U);
  a.StartRecords();
  testing::SendBytes(a, "record", 6);
  // Read together with what came before, by who knew of no records.
  IoResult ahead = b.Recv(got, sizeof got, kSoonMs);
  CHECK_EQ(ahead.bytes, 6U + kRecordHeaderBytes);
  b.StartRecords(wire::Bytes(got, ahead.bytes));
  CHECK(b.HasInput());
  CHECK_EQ(b.Wait(kReadable, -1), kReadable);
  CHECK_EQ(b.TryRecv(got, sizeof got).bytes, 6U);
  CHECK(std::memcmp(got, "record", 6) == 0);
}

// A peer may acknowledge more than there is. What comes next is kept all the same.
TEST(lane, a_window_releases_no_bytes_that_are_still_to_come) {
  Window window;
  window.Keep("abc", 3);
  window.Release(5);
  CHECK_EQ(window.begin(), 3U);
  window.Keep("def", 3);
  iovec part{};
  CHECK_EQ(window.Gather(3, 6, &part, 1), 1);
  CHECK_EQ(part.iov_len, 3U);
  CHECK(std::memcmp(part.iov_base, "def", 3) == 0);
}

TEST(lane, an_end_in_good_order_is_no_cut) {
  Pair pair = Lanes({});
  testing::SendBytes(*pair.a, "last", 4);
  pair.a->Shutdown();
  uint8_t got[64];
  CHECK_EQ(pair.b->Recv(got, sizeof got, kSoonMs).bytes, 4U);
  CHECK(pair.b->Recv(got, sizeof got, kSoonMs).state == IoState::kClosed);
  CHECK(!AsLane(pair.b).AwaitCut());
  const iovec part{got, 1};
  CHECK(pair.b->TrySend(&part, 1).state == IoState::kClosed);
  CHECK(pair.a->TrySend(&part, 1).state == IoState::kClosed);
}

// The client says what it has taken when it asks for the link, and reads on until it has it.
TEST(lane, what_was_taken_while_a_link_was_asked_for_is_told) {
  LaneOptions options;
  options.window_bytes = 4096;  // far less than what an acknowledgement alone is sent for
  Pair pair = Lanes(options);
  Lane& client = AsLane(pair.a);
  Lane& worker = AsLane(pair.b);
  std::vector<uint8_t> data(options.window_bytes);
  testing::SendBytes(worker, data.data(), data.size());
  const iovec part{data.data(), 1};
  CHECK(worker.TrySend(&part, 1).state == IoState::kWouldBlock);
  const uint64_t asked_with = client.received();
  for (size_t left = data.size(); left > 0;) {
    left -= client.Recv(data.data(), left, kSoonMs).bytes;
  }
  Pair fresh = MakePair("unix");
  uint64_t taken = 0;
  const auto greet = [&](Connection&, uint64_t received) {
    taken = received;
    return true;
  };
  CHECK(worker.Attach(fresh.b, 1, asked_with, greet) == AttachState::kAttached);
  CHECK(client.Attach(fresh.a, 1, taken) == AttachState::kAttached);
  CHECK_EQ(worker.Wait(kWritable, kSoonMs), kWritable);
  CHECK(worker.TrySend(&part, 1).ok());
}

TEST(lane, without_a_new_link_it_fails_after_the_grace) {
  Pair pair = MakePair("unix");
  LaneOptions options;
  options.grace_ms = 50;
  Lane lane(std::move(pair.a), options);
  lane.StartRecords();
  pair.b.reset();
  uint8_t byte = 0;
  const iovec part{&byte, 1};
  const uint64_t before = base::NowNs();
  CHECK(lane.AwaitCut());
  CHECK(lane.TryRecv(&byte, 1).state == IoState::kWouldBlock);
  CHECK(lane.TrySend(&part, 1).state == IoState::kWouldBlock);
  CHECK_EQ(lane.Wait(kReadable | kWritable, 1), 0);
  CHECK_EQ(lane.Wait(kReadable, -1), kReadable);
  CHECK(base::NowNs() - before >= 45'000'000U);
  CHECK(lane.TryRecv(&byte, 1).state == IoState::kFailed);
  CHECK(lane.TrySend(&part, 1).state == IoState::kFailed);
  CHECK(lane.LostReason().find("resume_grace") != std::string::npos);
  Pair late = MakePair("unix");
  CHECK(lane.Attach(late.a, 1, 0) == AttachState::kGone);
}

TEST(lane, old_and_impossible_links_are_refused) {
  Pair pair = Lanes({});
  testing::SendBytes(*pair.a, "12345", 5);
  Lane& a = AsLane(pair.a);
  const auto attach = [&](uint32_t epoch, uint64_t received) {
    std::unique_ptr<Connection> link = MakePair("unix").a;
    const AttachState state = a.Attach(link, epoch, received);
    CHECK((link == nullptr) == (state == AttachState::kAttached));
    return state;
  };
  CHECK(attach(3, 6) == AttachState::kMismatch);
  CHECK(attach(3, 5) == AttachState::kAttached);
  CHECK(attach(3, 5) == AttachState::kStale);
  CHECK(attach(2, 5) == AttachState::kStale);
  CHECK_EQ(a.stats().moves, 1U);
}

TEST(lane, a_peer_that_sends_no_records_is_given_up) {
  const auto garbage = [](const RecordHeader& header) {
    Pair pair = MakePair("unix");
    Lane lane(std::move(pair.a), {});
    lane.StartRecords();
    testing::SendBytes(*pair.b, &header, sizeof header);
    uint8_t byte = 0;
    CHECK(lane.Recv(&byte, 1, kSoonMs).state == IoState::kFailed);
    CHECK(!lane.AwaitCut());
  };
  garbage({kMaxRecordBytes + 1, 0, 0, 0});
  garbage({1, 2, 0, 0});
  garbage({1, 0, 1, 0});  // a gap
  garbage({1, 0, 0, 1});  // received what was never sent
}

// The worker reads no commands while many are held back, but what it sends must go on.
TEST(lane, acknowledgements_are_read_while_nobody_reads) {
  LaneOptions options;
  options.window_bytes = 100000;
  options.ack_bytes = 10000;
  Pair pair = Lanes(options);
  testing::SendBytes(*pair.b, "unread", 6);
  std::thread reader([&] {
    std::vector<uint8_t> data(65536);
    for (size_t left = 4U << 20; left > 0;) {
      const IoResult got = pair.b->Recv(data.data(), std::min(left, data.size()), kSoonMs);
      if (!got.ok()) return;
      left -= got.bytes;
    }
  });
  std::vector<uint8_t> data(4U << 20);
  testing::SendBytes(*pair.a, data.data(), data.size());
  reader.join();
  CHECK(pair.a->HasInput());
  char got[16] = {};
  CHECK_EQ(pair.a->Recv(got, sizeof got, kSoonMs).bytes, 6U);
  CHECK_EQ(std::string(got), std::string("unread"));
}

// As the worker does while many commands are held back; its outbox has written all and is idle.
TEST(lane, what_is_due_goes_while_one_only_waits_to_be_woken) {
  Pair pair = MakePair("unix", true);
  pair = {std::make_unique<Lane>(std::move(pair.a), LaneOptions{}),
          std::make_unique<Lane>(std::move(pair.b), LaneOptions{})};
  AsLane(pair.a).StartRecords();
  AsLane(pair.b).StartRecords();
  std::vector<uint8_t> data(kMaxRecordBytes, 7);
  const iovec part{data.data(), data.size()};
  CHECK_EQ(pair.b->TrySend(&part, 1).bytes, data.size());
  CHECK(pair.b->HasOutput());
  std::atomic<bool> all{false};
  std::thread held([&] {
    while (!all) pair.b->Wait(kWoken, 10);
  });
  size_t left = data.size();
  while (left > 0) {
    const IoResult got = pair.a->Recv(data.data(), left, kSoonMs);
    if (!got.ok()) break;
    left -= got.bytes;
  }
  all = true;
  held.join();
  CHECK_EQ(left, 0U);
}

TEST(lane, a_wake_ends_a_wait_with_and_without_a_link) {
  Pair pair = Lanes({});
  for (const bool cut : {false, true}) {
    if (cut) {
      pair.b.reset();
      CHECK(AsLane(pair.a).AwaitCut());
    }
    std::thread waker([&] { pair.a->Wake(); });
    CHECK_EQ(pair.a->Wait(kReadable | kWoken, kSoonMs), kWoken);
    waker.join();
    pair.a->Wake();  // nobody waits: the next wait ends
    CHECK_EQ(pair.a->Wait(kWoken, kSoonMs), kWoken);
    CHECK_EQ(pair.a->Wait(kWoken, 1), 0);
  }
}

TEST(lane, memory_that_cannot_be_accessed_leaves_the_stream_in_step) {
  Pair pair = Lanes({});
  const testing::HalfMapped half;
  std::memset(half.data(), 7, half.page());
  iovec part{half.data() + half.page() - 100, 8192};
  CHECK(SendAll(*pair.a, &part, 1, nullptr, kSoonMs) == SendState::kFault);
  std::vector<uint8_t> got(8192);
  CHECK_EQ(pair.b->Recv(got.data(), 4000, kSoonMs).bytes, 4000U);
  CHECK_EQ(int{got[3999]}, 0);
  CHECK(pair.b->TryRecvGuarded(half.data() + half.page(), 4000).state == IoState::kFault);
  CHECK_EQ(pair.b->Recv(got.data(), 8192, kSoonMs).bytes, 4192U);
}

}  // namespace
}  // namespace rgpu::transport
