// A lane against its model: every byte arrives once and in order, whatever is cut where.
#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/lane/lane.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::Pair;

// A clock that waiting moves on: every link is slow.
std::atomic<uint64_t> g_now{1};
uint64_t Now() { return g_now.fetch_add(100); }

// A link that is cut after so many bytes, counted over both of its ends.  `loses`: what is on its
// way then is gone, as with a network; else it still arrives, as with a proxy that closes.
struct Fate {
  std::atomic<int64_t> left;
  bool loses;
};

class Mortal final : public Connection {
 public:
  Mortal(std::unique_ptr<Connection> inner, std::shared_ptr<Fate> fate)
      : inner_(std::move(inner)), fate_(std::move(fate)) {}
  IoResult TrySend(const iovec* parts, int count) override {
    if (fate_->left <= 0) return fate_->loses ? Cut() : IoResult{IoState::kFailed, 0, EPIPE};
    iovec first = parts[0];
    first.iov_len = std::min<size_t>(first.iov_len, static_cast<size_t>(fate_->left + 1));
    // One part after the other: the cut may lie between any two bytes.
    const bool close = fate_->left < 100000;
    return Count(close ? inner_->TrySend(&first, 1) : inner_->TrySend(parts, count));
  }
  IoResult TryRecv(void* to, size_t bytes) override {
    if (fate_->left <= 0 && fate_->loses) return Cut();
    return Count(inner_->TryRecv(to, bytes));
  }
  int Wait(int events, int timeout_ms) override {
    g_now += 20'000'000;
    return inner_->Wait(events, timeout_ms);
  }
  void Wake() override { inner_->Wake(); }
  void Shutdown() override { inner_->Shutdown(); }
  void Abandon() override { inner_->Abandon(); }
  const char* kind() const override { return inner_->kind(); }

 private:
  IoResult Count(IoResult result) {
    if (result.ok() && fate_->left.fetch_sub(static_cast<int64_t>(result.bytes)) <=
                           static_cast<int64_t>(result.bytes)) {
      inner_->Shutdown();
    }
    return result;
  }
  IoResult Cut() {
    inner_->Shutdown();
    return {IoState::kFailed, 0, ECONNRESET};
  }
  std::unique_ptr<Connection> inner_;
  std::shared_ptr<Fate> fate_;
};

struct Plan {
  uint32_t seed = 1;
  const char* kind = "unix";
  bool small_buffers = false;
  size_t window_bytes = kWindowBytes;
  size_t ack_bytes = 1U << 20;
  uint64_t bytes = 1U << 20;
  int64_t longest_life = 300000;
  bool slow = false;
  bool blocks = false;  // the links compress
};

// Stretches of 4 KiB that compress, and others that do not.
uint8_t ByteAt(uint64_t offset, uint64_t salt) {
  const uint64_t unit = (offset >> 12) % 3 == 0 ? offset : offset >> 4;
  const uint64_t x = (unit + salt) * 0x9E3779B97F4A7C15U;
  return static_cast<uint8_t>(x >> 56);
}

zip::Savings g_savings;  // of all links of the tests

std::unique_ptr<Connection> InBlocks(std::unique_ptr<Connection> link) {
  auto blocks = std::make_unique<zip::CompressedConnection>(*zip::LoadZstd(nullptr),
                                                            std::move(link), &g_savings, &Now);
  blocks->StartBlocks();
  return blocks;
}

Pair NextPair(const Plan& plan, std::mt19937& random) {
  Pair pair = MakePair(plan.kind, plan.small_buffers);
  auto fate = std::make_shared<Fate>();
  fate->left = plan.longest_life == 0 ? INT64_MAX / 2
                                      : static_cast<int64_t>(random()) % plan.longest_life + 1;
  fate->loses = random() % 2 == 0;
  pair = {std::make_unique<Mortal>(std::move(pair.a), fate),
          std::make_unique<Mortal>(std::move(pair.b), fate)};
  if (plan.blocks) pair = {InBlocks(std::move(pair.a)), InBlocks(std::move(pair.b))};
  return pair;
}

// Writes `bytes` of the pattern in pieces of all sizes.  Some are lent; whatever was sent is
// overwritten afterwards.
bool Write(Lane& lane, const Plan& plan, uint64_t salt) {
  std::mt19937 random(plan.seed + static_cast<uint32_t>(salt));
  std::vector<uint8_t> data(200000);
  for (uint64_t at = 0; at < plan.bytes;) {
    const bool bulk = random() % 4 == 0;
    const uint64_t most = bulk ? data.size() : 200;
    const uint64_t size = std::min<uint64_t>(random() % most + 1, plan.bytes - at);
    for (uint64_t i = 0; i < size; ++i) data[i] = ByteAt(at + i, salt);
    const size_t cut = random() % size;
    iovec parts[2] = {{data.data(), cut}, {data.data() + cut, size - cut}};
    const bool lent = bulk && random() % 2 == 0;
    // Not always all of it: what is not lent is copied.
    const size_t first = lent && random() % 2 == 0 ? cut : 0;
    if (lent) lane.Lend(data.data() + first, size - first);
    if (SendAll(lane, parts, 2, nullptr, kSoonMs) != SendState::kSent) return false;
    if (lent) lane.Lend(nullptr, 0);
    if (lent) lane.TakeBack(data.data() + first, size - first);
    std::memset(data.data(), 0xEE, size);
    at += size;
  }
  return true;
}

bool Read(Lane& lane, const Plan& plan, uint64_t salt) {
  std::mt19937 random(plan.seed + 77 + static_cast<uint32_t>(salt));
  std::vector<uint8_t> data(100000);
  for (uint64_t at = 0; at < plan.bytes;) {
    const size_t wanted = random() % (random() % 3 == 0 ? data.size() : 100) + 1;
    const IoResult got = lane.Recv(data.data(), wanted, salt == 0 ? -1 : kSoonMs);
    if (!got.ok()) return false;
    for (size_t i = 0; i < got.bytes; ++i) {
      if (data[i] != ByteAt(at + i, salt)) return false;
    }
    at += got.bytes;
    if (plan.slow && random() % 16 == 0) std::this_thread::yield();
  }
  return true;
}

class Ends {
 public:
  Ends(const Plan& plan, const LaneOptions& options) : plan_(plan), random_(plan.seed) {
    Pair pair = NextPair(plan_, random_);
    a = std::make_unique<Lane>(std::move(pair.a), options);
    b = std::make_unique<Lane>(std::move(pair.b), options);
    a->StartRecords();
    b->StartRecords();
  }

  // As client and worker do it; now and then the answer is lost, or the link still worked.
  void Resume() {
    for (;;) {
      ++epoch_;
      Pair pair = NextPair(plan_, random_);
      uint64_t taken = 0;
      const uint64_t mine = a->received();
      if (random_() % 4 == 0) std::this_thread::yield();
      const auto greet = [&](Connection&, uint64_t received) {
        taken = received;
        return true;
      };
      if (b->Attach(pair.b, epoch_, mine, greet) != AttachState::kAttached) return;
      if (random_() % 5 == 0) continue;
      a->Attach(pair.a, epoch_, taken);
      return;
    }
  }
  // Until the lanes have ended.
  void Keep() {
    while (a->AwaitCut()) Resume();
  }
  // The worker's end: it waits to be woken even when nothing is to be read or written.
  void Attend() const {
    while (b->linked() || b->cut()) b->Wait(kWoken, 100);
  }

  std::unique_ptr<Lane> a;
  std::unique_ptr<Lane> b;

 private:
  const Plan plan_;
  std::mt19937 random_;
  uint32_t epoch_ = 0;
};

// Returns how often the lanes were resumed.
uint64_t Run(const Plan& plan) {
  LaneOptions options;
  options.window_bytes = plan.window_bytes;
  options.ack_bytes = plan.ack_bytes;
  options.grace_ms = kSoonMs;
  Ends ends(plan, options);
  bool good[4] = {};
  std::thread keeper([&] { ends.Keep(); });
  std::thread attendant([&] { ends.Attend(); });
  std::thread threads[] = {
      std::thread([&] { good[0] = Write(*ends.a, plan, 0); }),
      std::thread([&] { good[1] = Write(*ends.b, plan, 5); }),
      std::thread([&] { good[2] = Read(*ends.a, plan, 5); }),
      std::thread([&] { good[3] = Read(*ends.b, plan, 0); }),
  };
  for (std::thread& thread : threads) thread.join();
  const uint64_t resumes = ends.a->stats().resumes;
  ends.a->Fail("the test is over");
  ends.b->Fail("the test is over");
  keeper.join();
  attendant.join();
  for (const bool one : good) CHECK(one);
  // What compresses may all pass within one life.
  CHECK(plan.longest_life == 0 || plan.blocks || resumes > 0);
  return resumes;
}

TEST(lane, bytes_survive_cuts_at_any_place) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    Run({.seed = seed, .kind = seed % 2 == 0 ? "tcp" : "unix", .slow = seed % 3 == 0});
  }
}

TEST(lane, bytes_survive_cuts_every_few_bytes) {
  Run({.seed = 11, .bytes = 40000, .longest_life = 3000});
  Run({.seed = 12, .kind = "tcp", .bytes = 40000, .longest_life = 3000});
}

TEST(lane, bytes_survive_cuts_with_full_windows_and_buffers) {
  for (uint32_t seed = 21; seed <= 22; ++seed) {
    Run({.seed = seed,
         .small_buffers = true,
         .window_bytes = 20000,
         .ack_bytes = 3000,
         .bytes = 1U << 20,
         .longest_life = 200000,
         .slow = true});
  }
}

TEST(lane, bytes_pass_without_cuts) {
  Run({.seed = 31, .window_bytes = 20000, .ack_bytes = 3000, .longest_life = 0});
}

TEST(lane, bytes_survive_cuts_of_links_that_compress) {
  constexpr uint64_t kEnough = 2U << 20;
  uint64_t resumes = 0;
  // A link that is cut soon never finds out how slow it is.
  for (uint32_t seed = 41; seed <= 42 || (seed < 90 && g_savings.sent_plain < kEnough); ++seed) {
    resumes += Run({.seed = seed, .small_buffers = true, .bytes = 400'000, .blocks = true});
    resumes += Run({.seed = seed,
                    .kind = "tcp",
                    .small_buffers = true,
                    .bytes = 12U << 20,
                    .longest_life = 16 << 20,
                    .blocks = true});
  }
  CHECK(resumes > 0);
  CHECK(g_savings.sent_plain >= kEnough);
}

TEST(lane, what_is_no_block_ends_it_for_good) {
  Pair pair = MakePair("unix");
  Lane lane(InBlocks(std::move(pair.a)), {});
  lane.StartRecords();
  testing::SendBytes(*pair.b, "no block at all", 15);
  uint8_t byte = 0;
  CHECK(lane.Recv(&byte, 1, kSoonMs).state == IoState::kFailed);
  CHECK(!lane.AwaitCut());
  CHECK(lane.LostReason().find("not a block") != std::string::npos);
}

}  // namespace
}  // namespace rgpu::transport
