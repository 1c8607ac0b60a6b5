#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/transport/frame_io.h"
#include "rgpu_common/native/transport/shm/shm_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/testing.h"

namespace rgpu::transport {
namespace {

using testing::MakePair;
using testing::Pair;
using testing::SendBytes;

constexpr int kDeadlineMs = 30'000;

ShmConnection& Shared(const std::unique_ptr<Connection>& connection) {
  return dynamic_cast<ShmConnection&>(*connection);
}

// Both ends always sleep, so every message needs its wake-up.
void NeverLook(Pair& pair) {
  Shared(pair.a).set_cpus(1);
  Shared(pair.b).set_cpus(1);
}

uint64_t Exchange(Connection& connection, uint64_t value) {
  SendBytes(connection, &value, sizeof value);
  uint64_t got = 0;
  CHECK_EQ(connection.Recv(&got, sizeof got, kDeadlineMs).bytes, sizeof got);
  return got;
}

TEST(shm, loses_no_wake_up) {
  constexpr uint64_t kRounds = 20'000;
  Pair pair = MakePair("shm");
  NeverLook(pair);
  std::thread echo([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t got = 0;
      if (pair.b->Recv(&got, sizeof got, kDeadlineMs).bytes != sizeof got) return;
      // Now at once, now when the other end is asleep, now in between.
      for (uint64_t n = 0; n < got % 7; ++n) sched_yield();
      SendBytes(*pair.b, &got, sizeof got);
    }
  });
  for (uint64_t i = 0; i < kRounds; ++i) CHECK_EQ(Exchange(*pair.a, i), i);
  echo.join();
  CHECK(Shared(pair.a).sleeps() > 0);
}

// A full ring in both directions: each end waits for room and for bytes at the same time, and other
// threads of the same end sleep on the same doorbell.
TEST(shm, loses_no_wake_up_of_several_threads) {
  constexpr size_t kBytes = 8U << 20;
  Pair pair = MakePair("shm", true);
  NeverLook(pair);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (Connection* end : {pair.a.get(), pair.b.get()}) {
    threads.emplace_back([end] {
      const std::vector<uint8_t> bytes(kBytes, 3);
      SendBytes(*end, bytes.data(), bytes.size());
    });
    threads.emplace_back([end] {
      std::vector<uint8_t> bytes(3000);
      for (size_t got = 0; got < kBytes;) {
        const IoResult result = end->Recv(bytes.data(), bytes.size(), kDeadlineMs);
        CHECK(result.ok());
        got += result.bytes;
      }
    });
  }
  std::vector<std::thread> others;
  for (Connection* end : {pair.a.get(), pair.b.get()}) {
    others.emplace_back([&over, end] {
      while (!over.load()) end->Wait(kReadable | kWritable | kWoken, 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  for (std::thread& thread : others) thread.join();
}

TEST(shm, wakes_end_one_wait_each) {
  Pair pair = MakePair("shm");
  NeverLook(pair);
  for (int i = 0; i < 2000; ++i) {
    std::thread waker([&] { pair.a->Wake(); });
    CHECK_EQ(pair.a->Wait(kReadable | kWoken, kDeadlineMs), kWoken);
    waker.join();
    CHECK_EQ(pair.a->Wait(kReadable | kWoken, 0), 0);
  }
}

TEST(shm, what_was_written_before_the_end_is_read) {
  Pair pair = MakePair("shm");
  SendBytes(*pair.a, "last words", 10);
  pair.a.reset();
  char got[16] = {};
  CHECK_EQ(pair.b->Recv(got, sizeof got, kDeadlineMs).bytes, 10U);
  CHECK(pair.b->Recv(got, sizeof got, kDeadlineMs).state == IoState::kClosed);
}

// Who waits for nothing but the end sleeps through doorbells, and hears of either end's.
TEST(shm, tells_of_the_end_alone) {
  for (const bool own : {false, true}) {
    Pair pair = MakePair("shm");
    NeverLook(pair);
    CHECK_EQ(pair.b->Wait(kHangup, 0), 0);
    std::atomic<int> heard{0};
    std::thread watcher([&] { heard = pair.b->Wait(kHangup, kDeadlineMs); });
    std::thread echo([&] { CHECK_EQ(Exchange(*pair.b, 2), 1U); });
    CHECK_EQ(Exchange(*pair.a, 1), 2U);
    echo.join();
    CHECK_EQ(heard.load(), 0);
    (own ? pair.b : pair.a)->Shutdown();
    watcher.join();
    CHECK_EQ(heard.load(), kHangup);
    CHECK_EQ(pair.b->Wait(kHangup, 0), kHangup);
  }
}

// A program that only polls learns of the end, too.
TEST(shm, polls_notice_the_end) {
  Pair pair = MakePair("shm");
  const pid_t child = fork();
  if (child == 0) _exit(0);
  CHECK(waitpid(child, nullptr, 0) == child);
  pair.a.reset();
  const base::Deadline deadline(kDeadlineMs);
  char got = 0;
  while (!pair.b->TryRecv(&got, 1).lost()) CHECK(!deadline.passed());
}

TEST(shm, a_forked_child_has_neither_ring_nor_socket) {
  Pair pair = MakePair("shm");
  const pid_t child = fork();
  if (child == 0) {
    pair.a->Abandon();
    pair.b->Abandon();
    char got = 0;
    const iovec part{&got, 1};
    const bool closed = pair.a->TrySend(&part, 1).state == IoState::kClosed &&
                        pair.b->TryRecv(&got, 1).state == IoState::kClosed &&
                        pair.a->Wait(kReadable, 1000) == kReadable;
    pair.a.reset();
    pair.b.reset();
    _exit(closed ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQ(pair.b->Wait(kReadable, 0), 0);
  SendBytes(*pair.a, "on", 2);
  char got[2] = {};
  CHECK_EQ(pair.b->Recv(got, 2, kDeadlineMs).bytes, 2U);
}

// The control words as the peer has them.
struct Peer {
  Pair pair;
  Segment segment;

  Peer() {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    auto* socket = dynamic_cast<SocketConnection*>(Adopt(fds[1]).release());
    auto server = std::make_unique<ShmConnection>(std::unique_ptr<SocketConnection>(socket),
                                                  ShmConnection::Side::kServer);
    int error = 0;
    CHECK(server->Make(&error, kLeastRingBytes) && server->SendWith("w", 1, {}));
    std::vector<base::UniqueFd> received;
    char got = 0;
    CHECK_EQ(base::RecvMessage(fds[0], &got, 1, &received), 1);
    std::string why;
    CHECK(received.size() == 1 && Segment::Map(received[0], &segment, &why));
    server->Switch();
    pair.a = Adopt(fds[0]);
    pair.b = std::move(server);
  }
};

TEST(shm, nonsense_in_the_ring_ends_the_connection) {
  for (int direction = 0; direction < 2; ++direction) {
    Peer peer;
    char byte = 0;
    const iovec part{&byte, 1};
    if (direction == 0) {
      peer.segment.control(0)->head = 17;
    } else {
      peer.segment.control(1)->tail = UINT64_MAX;
    }
    CHECK(peer.pair.b->Wait(direction == 0 ? kWritable : kReadable, kDeadlineMs) != 0);
    const IoResult result =
        direction == 0 ? peer.pair.b->TrySend(&part, 1) : peer.pair.b->TryRecv(&byte, 1);
    CHECK(result.state == IoState::kFailed && result.error == EPROTO);
    CHECK(peer.pair.b->TryRecv(&byte, 1).state == IoState::kFailed);
    CHECK((peer.pair.a->Wait(kReadable, kDeadlineMs) & kReadable) != 0);  // and the peer hears it
    CHECK(peer.pair.a->Recv(&byte, 1, kDeadlineMs).lost());
  }
}

// A peer that rings without end, and never reads its own doorbells, is answered as any other.
TEST(shm, doorbells_without_end_do_no_harm) {
  Peer peer;
  Shared(peer.pair.b).set_cpus(1);
  std::vector<uint8_t> bells(1U << 20, 1);
  const iovec part{bells.data(), bells.size()};
  while (peer.pair.a->TrySend(&part, 1).ok()) {
  }
  CHECK_EQ(peer.pair.b->Wait(kReadable, 20), 0);
  for (int i = 0; i < 3000; ++i) {
    peer.segment.control(0)->reader_sleeps = 1;
    char byte = 'x';
    const iovec one{&byte, 1};
    CHECK(peer.pair.b->TrySend(&one, 1).ok());
  }
  peer.segment.data(1)[0] = 'y';
  peer.segment.control(1)->tail = 1;
  char got = 0;
  CHECK_EQ(peer.pair.b->Recv(&got, 1, kDeadlineMs).bytes, 1U);
  CHECK_EQ(got, 'y');
}

// Addresses of the application that are not there give kFault on a ring as they do on a socket.
TEST(shm, frames_keep_in_step_over_bad_memory) {
  constexpr uint32_t kBulk = 64U << 10;
  Pair pair = MakePair("shm");
  const testing::HalfMapped memory;
  FrameBuffer frame;
  wire::FrameHeader header;
  header.kind = wire::Kind::kData;
  frame.Begin(header);
  frame.End(kBulk);
  iovec parts[2] = {frame.part(), {memory.data(), kBulk}};
  CHECK(SendAll(*pair.a, parts, 2, nullptr, kDeadlineMs) == SendState::kFault);
  frame.clear();
  frame.Begin(header);
  frame.End();
  iovec next = frame.part();
  CHECK(SendAll(*pair.a, &next, 1, nullptr, kDeadlineMs) == SendState::kSent);
  FrameReader reader(pair.b.get());
  reader.set_guarded(true);
  wire::ByteView head;
  CHECK(reader.Next(&header, &head, kDeadlineMs) == ReadState::kFrame);
  CHECK(reader.ReadBulk(memory.data(), kBulk, kDeadlineMs) == BulkState::kFault);
  CHECK(reader.Next(&header, &head, kDeadlineMs) == ReadState::kFrame);
  CHECK_EQ(header.bulk_bytes, 0U);
}

TEST(shm, stays_on_the_socket_if_one_end_declines) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  auto client = MayShare(Adopt(fds[0]));
  auto server = MayShare(Adopt(fds[1]));
  CHECK_EQ(std::string(client->kind()), "unix");
  int error = 0;
  CHECK(Shared(server).Make(&error) && Shared(server).SendWith("hello", 5, {}));
  Shared(client).ExpectDescriptors();
  char got[8] = {};
  testing::ReceiveBytes(*client, got, 5);
  Shared(client).StayOnSocket();
  Shared(server).StayOnSocket();
  SendBytes(*client, "abc", 3);
  CHECK_EQ(server->Recv(got, sizeof got, kDeadlineMs).bytes, 3U);
  CHECK(client->checks_memory());
}

TEST(shm, says_that_no_memory_came) {
  int fds[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  auto client = MayShare(Adopt(fds[0]));
  const base::UniqueFd other(fds[1]);
  std::string why;
  CHECK(!Shared(client).Map(&why));
  CHECK(why.find("did not arrive") != std::string::npos);
}

}  // namespace
}  // namespace rgpu::transport
