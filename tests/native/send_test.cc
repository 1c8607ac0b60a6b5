#include <cstring>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::kSoonMs;
using testing::MakePair;
using testing::OverBoth;
using testing::Pair;

// Reads and counts what is there.
class ReadCounter : public ReadHook {
 public:
  explicit ReadCounter(Connection* connection) : connection_(connection), scratch_(1U << 16) {}
  bool OnReadable() override {
    ++calls;
    const IoResult result = connection_->TryRecv(scratch_.data(), scratch_.size());
    if (result.ok()) bytes += result.bytes;
    return true;
  }
  size_t bytes = 0;
  int calls = 0;

 private:
  Connection* connection_;
  std::vector<uint8_t> scratch_;
};

// Two ends that both write far more than the buffers hold, each with one thread, as when an
// application copies in while a worker copies out.
TEST(send, both_ends_write_without_a_deadlock) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind, true);
    constexpr size_t kBytes = 4U << 20;
    const auto run = [](Connection* connection) {
      std::vector<uint8_t> data(kBytes);
      ReadCounter counter(connection);
      iovec part{data.data(), data.size()};
      const SendState state = SendAll(*connection, &part, 1, &counter, kSoonMs);
      while (state == SendState::kSent && counter.bytes < kBytes) {
        if (connection->Wait(kReadable, kSoonMs) == 0) break;
        counter.OnReadable();
      }
      return state == SendState::kSent && counter.bytes == kBytes;
    };
    bool other = false;
    std::thread thread([&] { other = run(pair.b.get()); });
    const bool own = run(pair.a.get());
    thread.join();
    CHECK(own && other);
  });
}

TEST(send, a_slow_reader_gets_everything_in_order) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind, true);
    std::vector<uint32_t> data(100000);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint32_t>(i);
    bool same = false;
    std::thread reader([&] {
      std::vector<uint8_t> got;
      uint8_t piece[777];
      while (got.size() < data.size() * 4) {
        const IoResult result = pair.b->Recv(piece, sizeof piece, kSoonMs);
        if (!result.ok()) return;
        got.insert(got.end(), piece, piece + result.bytes);
      }
      same = std::memcmp(got.data(), data.data(), got.size()) == 0;
    });
    auto* bytes = reinterpret_cast<uint8_t*>(data.data());
    iovec parts[] = {{bytes, 3}, {bytes + 3, 0}, {bytes + 3, 70000}, {bytes + 70003, 329997}};
    CHECK(SendAll(*pair.a, parts, 4, nullptr, kSoonMs) == SendState::kSent);
    reader.join();
    CHECK(same);
  });
}

TEST(send, a_peer_that_takes_nothing_times_out) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind, true);
    std::vector<uint8_t> data(16U << 20);
    iovec part{data.data(), data.size()};
    CHECK(SendAll(*pair.a, &part, 1, nullptr, 20) == SendState::kTimeout);
    pair.b.reset();
    CHECK(SendAll(*pair.a, &part, 1, nullptr, kSoonMs) == SendState::kClosed);
  });
}

// While another thread reads, the hook says no: the wait must neither spin nor end.
class Refuser : public ReadHook {
 public:
  bool OnReadable() override {
    ++calls;
    return false;
  }
  int calls = 0;
};

TEST(send, a_hook_that_may_not_read_is_asked_seldom) {
  Pair pair = MakePair("unix", true);
  testing::SendBytes(*pair.b, "unread", 6);
  std::vector<uint8_t> data(8U << 20);
  iovec part{data.data(), data.size()};
  Refuser refuser;
  CHECK(SendAll(*pair.a, &part, 1, &refuser, 100) == SendState::kTimeout);
  CHECK(refuser.calls >= 1 && refuser.calls < 100);
}

TEST(send, an_unreadable_part_becomes_zeros) {
  OverBoth([](const std::string& kind) {
    Pair pair = MakePair(kind);
    const testing::HalfMapped half;
    std::memset(half.data(), 0xEE, half.page());
    uint8_t before[100];
    uint8_t after[100];
    std::memset(before, 0xAA, sizeof before);
    std::memset(after, 0xBB, sizeof after);
    const size_t bad = half.page() + 3000;
    iovec parts[] = {{before, sizeof before}, {half.data(), bad}, {after, sizeof after}};
    std::vector<uint8_t> got(sizeof before + bad + sizeof after);
    size_t have = 0;
    std::thread reader([&] {
      while (have < got.size()) {
        const IoResult result = pair.b->Recv(got.data() + have, got.size() - have, kSoonMs);
        if (!result.ok()) return;
        have += result.bytes;
      }
    });
    const SendState state = SendAll(*pair.a, parts, 3, nullptr, kSoonMs);
    reader.join();
    CHECK(state == SendState::kFault);
    CHECK_EQ(have, got.size());
    CHECK(std::memcmp(got.data(), before, sizeof before) == 0);
    CHECK(std::memcmp(got.data() + sizeof before + bad, after, sizeof after) == 0);
    for (size_t i = 0; i < 3000; ++i) CHECK(got[sizeof before + half.page() + i] == 0);
  });
}

}  // namespace
}  // namespace rgpu::transport
