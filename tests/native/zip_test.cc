// Streams through blocks: every byte arrives, whatever fits when, and no block of a hostile peer
// does more than end its connection.
#include "rgpu_common/native/transport/zip/zstd.h"

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/pieces.h"
#include "tests/native/testing.h"

namespace rgpu::transport::zip {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::Pair;
using testing::SendPieces;

constexpr uint64_t kSlowNs = 10'000'000;

// A clock that only slow links move on.
std::atomic<uint64_t> g_now{1};
uint64_t Now() { return g_now.fetch_add(100); }

const Api& Zstd() {
  std::string why;
  const Api* api = LoadZstd(&why);
  if (api == nullptr) testing::Fail(__FILE__, __LINE__, why);
  return *api;
}

// Takes a little, then nothing until somebody waited: 100 KiB in 10 ms as a rule.
class Sluggish final : public Connection {
 public:
  Sluggish(std::unique_ptr<Connection> inner, uint32_t seed)
      : inner_(std::move(inner)), random_(seed) {}
  IoResult TrySend(const iovec* parts, int count) override {
    if (budget_ == 0) return {IoState::kWouldBlock, 0, 0};
    std::vector<iovec> some;
    size_t left = budget_;
    for (int i = 0; i < count && left > 0; ++i) {
      some.push_back({parts[i].iov_base, std::min(left, parts[i].iov_len)});
      left -= some.back().iov_len;
    }
    const IoResult result = inner_->TrySend(some.data(), static_cast<int>(some.size()));
    if (result.ok()) budget_ -= result.bytes;
    return result;
  }
  IoResult TryRecv(void* to, size_t bytes) override { return inner_->TryRecv(to, bytes); }
  IoResult TryRecvGuarded(void* to, size_t bytes) override {
    return inner_->TryRecvGuarded(to, bytes);
  }
  int Wait(int events, int timeout_ms) override {
    if ((events & kWritable) != 0) {
      // Sometimes so little that a header is cut.
      budget_ = random_() % 4 == 0 ? random_() % 12 : random_() % 200'000;
      g_now += kSlowNs;
    }
    return inner_->Wait(events, timeout_ms);
  }
  void Wake() override { inner_->Wake(); }
  void Shutdown() override { inner_->Shutdown(); }
  void Abandon() override { inner_->Abandon(); }
  const char* kind() const override { return inner_->kind(); }
  bool checks_memory() const override { return inner_->checks_memory(); }

 private:
  std::unique_ptr<Connection> inner_;
  std::mt19937 random_;
  std::atomic<size_t> budget_{1};
};

struct Ends {
  Savings savings_a, savings_b;
  std::unique_ptr<CompressedConnection> a, b;
};

void Join(Ends* ends, Pair pair, bool slow) {
  if (slow) {
    pair.a = std::make_unique<Sluggish>(std::move(pair.a), 1);
    pair.b = std::make_unique<Sluggish>(std::move(pair.b), 2);
  }
  ends->a =
      std::make_unique<CompressedConnection>(Zstd(), std::move(pair.a), &ends->savings_a, &Now);
  ends->b =
      std::make_unique<CompressedConnection>(Zstd(), std::move(pair.b), &ends->savings_b, &Now);
  ends->a->StartBlocks();
  ends->b->StartBlocks();
}

// Long runs, noise, or (mixed) stretches of both.
enum class Kind : uint8_t { kRuns, kNoise, kMixed };

std::vector<uint8_t> Data(Kind kind, size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const bool run = kind == Kind::kRuns || (kind == Kind::kMixed && (i >> 19) % 3 != 0);
    data[i] = static_cast<uint8_t>(run ? (i / 97 + seed) * 31 : random());
  }
  return data;
}

constexpr testing::PieceSizes kSizes{.largest = 700'000, .mostly = 500, .wait_ms = kSoonMs};

// Unlike testing::ReceivePieces, receives in all ways.
void ReceivePieces(Connection& connection, const std::vector<uint8_t>& expected, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> got(400'000);
  for (size_t at = 0; at < expected.size();) {
    const size_t largest = random() % 3 == 0 ? got.size() : 500;
    const size_t most = std::min<size_t>(expected.size() - at, 1 + random() % largest);
    const bool guarded = random() % 2 == 0;
    IoResult result = guarded ? connection.TryRecvGuarded(got.data(), most)
                              : connection.Recv(got.data(), most, seed % 2 == 0 ? -1 : kSoonMs);
    if (result.state == IoState::kWouldBlock) {
      CHECK(connection.Wait(kReadable, kSoonMs) == kReadable);
      continue;
    }
    CHECK(result.ok());
    CHECK(std::memcmp(got.data(), expected.data() + at, result.bytes) == 0);
    at += result.bytes;
  }
}

// Returns how much of it went compressed: which blocks do depends on when the threads run.
uint64_t BothWays(const std::string& transport, Kind kind, bool small, bool slow) {
  Ends ends;
  Join(&ends, MakePair(transport, small), slow);
  const auto up = Data(kind, 5'000'000, 1), down = Data(kind, 3'000'000, 2);
  std::thread threads[] = {
      std::thread([&] { SendPieces(*ends.a, up, 3, kSizes); }),
      std::thread([&] { SendPieces(*ends.b, down, 4, kSizes); }),
      std::thread([&] { ReceivePieces(*ends.a, down, 5); }),
  };
  ReceivePieces(*ends.b, up, 6);
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(ends.savings_a.sent_plain.load(), ends.savings_b.received_plain.load());
  CHECK_EQ(ends.savings_a.sent_packed.load(), ends.savings_b.received_packed.load());
  const uint64_t packed = ends.savings_a.sent_plain;
  CHECK(packed == 0 || ends.savings_a.sent_packed < packed);
  if (kind == Kind::kNoise) CHECK_EQ(packed, 0U);
  return packed;
}

TEST(zip, carries_both_ways_at_once) {
  uint64_t packed = 0;
  testing::OverBoth([&packed](const std::string& transport) {
    for (const Kind kind : {Kind::kRuns, Kind::kNoise, Kind::kMixed}) {
      BothWays(transport, kind, false, false);
      packed += BothWays(transport, kind, true, true);
    }
  });
  CHECK(packed > 500'000);
}

// Sends until blocks are compressed, with nothing begun afterwards.
void UntilItPacks(Ends* ends) {
  constexpr size_t kPiece = 300'000;
  auto data = Data(Kind::kRuns, kPiece, 5);
  std::vector<uint8_t> sink(1 << 20);
  for (int pieces = 0; ends->savings_a.sent_plain == 0; ++pieces) {
    CHECK(pieces < 200);
    for (size_t sent = 0; sent < kPiece;) {
      const iovec part{data.data() + sent, kPiece - sent};
      const IoResult result = ends->a->TrySend(&part, 1);
      if (result.ok()) sent += result.bytes;
      if (!result.ok()) ends->a->Wait(kWritable, 0);
      while (ends->b->TryRecv(sink.data(), sink.size()).ok()) {
      }
    }
  }
}

TEST(zip, a_block_that_did_not_fit_may_come_again_byte_by_byte) {
  Ends ends;
  Join(&ends, MakePair("unix", true), true);
  UntilItPacks(&ends);
  auto data = Data(Kind::kRuns, 700'000, 8);
  const uint64_t before = ends.savings_a.sent_plain;
  size_t sent = 0;
  const auto offer = [&](size_t most) {
    const iovec part{data.data() + sent, std::min(most, data.size() - sent)};
    const IoResult result = ends.a->TrySend(&part, 1);
    if (result.ok()) sent += result.bytes;
    return result;
  };
  while (offer(400'000).ok()) {
  }
  // What went before may still be on its way.
  std::vector<uint8_t> got;
  std::thread reader([&] {
    std::vector<uint8_t> sink(1 << 20);
    for (;;) {
      const IoResult result = ends.b->Recv(sink.data(), sink.size(), kSoonMs);
      if (!result.ok()) return;
      got.insert(got.end(), sink.data(), sink.data() + result.bytes);
    }
  });
  while (sent < data.size()) {
    if (!offer(1 + sent % 3).ok()) CHECK(ends.a->Wait(kWritable, kSoonMs) != 0);
  }
  ends.a->Shutdown();
  reader.join();
  CHECK(ends.savings_a.sent_plain > before);
  CHECK(got.size() >= data.size());
  CHECK(std::equal(data.rbegin(), data.rend(), got.rbegin()));
}

// A receiver at whose link somebody writes by hand.
struct Victim {
  Victim() {
    Pair pair = MakePair("unix");
    peer = std::move(pair.b);
    end = std::make_unique<CompressedConnection>(Zstd(), std::move(pair.a), &savings);
    end->StartBlocks();
  }
  void Say(const BlockHeader& header, const std::vector<uint8_t>& bytes) {
    testing::SendBytes(*peer, &header, sizeof header);
    if (!bytes.empty()) testing::SendBytes(*peer, bytes.data(), bytes.size());
  }
  Savings savings;
  std::unique_ptr<Connection> peer;
  std::unique_ptr<CompressedConnection> end;
};

std::vector<uint8_t> Packed(const std::vector<uint8_t>& plain) {
  Packer packer(Zstd());
  std::vector<uint8_t> packed(plain.size() + 1000);
  packed.resize(packer.Pack(packed.data(), packed.size(), plain.data(), plain.size(), 1));
  CHECK(!packed.empty());
  return packed;
}

uint32_t Size(const std::vector<uint8_t>& bytes) { return static_cast<uint32_t>(bytes.size()); }

TEST(zip, a_good_block_is_what_it_says) {
  Victim victim;
  const auto plain = Data(Kind::kRuns, kMaxPackedBytes, 1);
  const auto packed = Packed(plain);
  victim.Say({Size(packed), Size(plain) | kPacked}, packed);
  victim.Say({5, 5}, {1, 2, 3, 4, 5});
  std::vector<uint8_t> got(plain.size() + 5);
  testing::ReceiveBytes(*victim.end, got.data(), got.size());
  CHECK(std::equal(plain.begin(), plain.end(), got.begin()));
  CHECK_EQ(int{got.back()}, 5);
  CHECK_EQ(victim.end->Wait(kReadable, 0), 0);
}

void IsRefused(const BlockHeader& header, const std::vector<uint8_t>& bytes) {
  Victim victim;
  victim.Say(header, bytes);
  uint8_t got[100];
  for (int i = 0; i < 2; ++i) {
    CHECK(victim.end->Wait(kReadable, kSoonMs) == kReadable);
    const IoResult result = victim.end->Recv(got, sizeof got, kSoonMs);
    CHECK(result.state == IoState::kFailed);
    CHECK_EQ(result.error, EBADMSG);
  }
  CHECK(victim.end->Malformed());
  CHECK(victim.end->LostReason().find("not a block") != std::string::npos);
}

TEST(zip, headers_that_no_honest_peer_sends_are_refused) {
  const std::vector<uint8_t> some(64);
  IsRefused({0, 0}, some);
  IsRefused({0, kPacked}, some);
  IsRefused({5, 6}, some);
  IsRefused({kMaxRawBytes + 1, kMaxRawBytes + 1}, some);
  IsRefused({UINT32_MAX, UINT32_MAX}, some);
  IsRefused({UINT32_MAX, 100 | kPacked}, some);
  IsRefused({10, (kMaxPackedBytes + 1) | kPacked}, some);
  IsRefused({100, 100 | kPacked}, some);
  IsRefused({10, kPacked}, some);
}

TEST(zip, bombs_and_liars_are_refused) {
  const auto plain = Data(Kind::kRuns, 100'000, 1);
  const auto packed = Packed(plain);
  IsRefused({Size(packed), (Size(plain) - 1) | kPacked}, packed);  // more than it says
  IsRefused({Size(packed), (Size(plain) + 1) | kPacked}, packed);  // less
  const auto bomb = Packed(std::vector<uint8_t>(64 << 20));
  IsRefused({Size(bomb), kMaxPackedBytes | kPacked}, bomb);
  const auto cut = std::vector<uint8_t>(packed.begin(), packed.end() - 3);
  IsRefused({Size(cut), Size(plain) | kPacked}, cut);
  IsRefused({64, 1000 | kPacked}, std::vector<uint8_t>(64, 7));
}

TEST(zip, a_block_is_one_frame_of_todays_format) {
  const auto plain = Data(Kind::kRuns, 50'000, 1);
  auto two = Packed(plain);
  const auto one = two;
  two.insert(two.end(), one.begin(), one.end());
  IsRefused({Size(two), 100'000 | kPacked}, two);
  auto skippable = one;
  const uint8_t skipped[] = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
  skippable.insert(skippable.begin(), std::begin(skipped), std::end(skipped));
  IsRefused({Size(skippable), 50'000 | kPacked}, skippable);
  for (uint8_t version = 0x22; version <= 0x27; ++version) {
    auto old = one;
    old[0] = version;
    IsRefused({Size(old), 50'000 | kPacked}, old);
    auto behind = one;
    behind.insert(behind.end(), old.begin(), old.end());
    IsRefused({Size(behind), 100'000 | kPacked}, behind);
  }
}

TEST(zip, damaged_blocks_do_no_harm) {
  std::mt19937 random(9);
  const auto plain = Data(Kind::kMixed, 20'000, 3);
  const auto good = Packed(plain);
  Unpacker unpacker(Zstd());
  std::vector<uint8_t> to(plain.size());
  for (int i = 0; i < 20'000; ++i) {
    auto bad = good;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      bad[random() % bad.size()] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    unpacker.Unpack(to.data(), to.size(), bad.data(), bad.size());
  }
  CHECK(unpacker.Unpack(to.data(), to.size(), good.data(), good.size()));
  CHECK(to == plain);
}

TEST(zip, a_stream_that_ends_within_a_block_has_ended) {
  const auto plain = Data(Kind::kRuns, 100'000, 1);
  const auto packed = Packed(plain);
  for (const size_t some : {size_t{0}, size_t{1}, packed.size() - 1}) {
    for (const bool header : {false, true}) {
      Victim victim;
      const BlockHeader said{Size(packed), Size(plain) | kPacked};
      testing::SendBytes(*victim.peer, &said, header ? sizeof said : 5);
      if (header && some > 0) testing::SendBytes(*victim.peer, packed.data(), some);
      victim.peer->EndSending();
      uint8_t got[100];
      CHECK(victim.end->Recv(got, sizeof got, kSoonMs).state == IoState::kClosed);
      CHECK(!victim.end->Malformed());
    }
  }
}

TEST(zip, what_is_before_the_blocks_passes_as_it_is) {
  Pair pair = MakePair("unix");
  Savings savings;
  CompressedConnection a(Zstd(), std::move(pair.a), &savings);
  CompressedConnection b(Zstd(), std::move(pair.b), &savings);
  uint8_t got[64] = {};
  testing::SendBytes(a, "hello", 5);
  CHECK_EQ(b.Recv(got, sizeof got, kSoonMs).bytes, 5U);
  a.StartBlocks();
  testing::SendBytes(a, "block", 5);
  // Read together with what came before, by who knew of no blocks.
  const IoResult ahead = b.Recv(got, sizeof got, kSoonMs);
  CHECK_EQ(ahead.bytes, 5U + kBlockHeaderBytes);
  b.StartBlocks(wire::Bytes(got, ahead.bytes));
  CHECK(b.HasInput());
  CHECK_EQ(b.Wait(kReadable, -1), kReadable);
  CHECK_EQ(b.TryRecv(got, sizeof got).bytes, 5U);
  CHECK(std::memcmp(got, "block", 5) == 0);
  CHECK_EQ(b.Wait(kReadable, 0), 0);
}

TEST(zip, memory_that_cannot_be_accessed_leaves_the_stream_in_step) {
  const testing::HalfMapped half;
  std::memset(half.data(), 7, half.page());
  for (const bool packs : {false, true}) {
    Ends ends;
    Join(&ends, MakePair("unix"), packs);
    if (packs) UntilItPacks(&ends);
    std::vector<uint8_t> got(200'000);
    while (ends.b->Recv(got.data(), got.size(), 200).ok()) {
    }
    std::vector<uint8_t> before(90'000, 1);
    iovec parts[] = {{before.data(), before.size()}, {half.data() + half.page() - 100, 8192}};
    std::thread sender(
        [&] { CHECK(SendAll(*ends.a, parts, 2, nullptr, kSoonMs) == SendState::kFault); });
    const auto receive = [&](size_t bytes) {
      for (size_t at = 0; at < bytes;) {
        const IoResult result = ends.b->Recv(got.data() + at, bytes - at, kSoonMs);
        CHECK(result.ok());
        at += result.bytes;
      }
    };
    receive(90'000);
    CHECK(std::ranges::all_of(got.begin(), got.begin() + 90'000, [](uint8_t x) { return x == 1; }));
    CHECK(ends.b->Wait(kReadable, kSoonMs) == kReadable);
    CHECK(ends.b->TryRecvGuarded(half.data() + half.page(), 4000).state == IoState::kFault);
    receive(8192);
    CHECK_EQ(int{got[8191]}, 0);
    sender.join();
  }
}

}  // namespace
}  // namespace rgpu::transport::zip
