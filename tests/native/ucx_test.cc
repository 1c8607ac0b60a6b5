// Both ends in this process: a listener of UCX's, and connections as the two programs have them.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "rgpu_common/native/transport/ucx/ucx_connection.h"
#include "tests/native/pairs.h"
#include "tests/native/pieces.h"
#include "tests/native/testing.h"

namespace {

bool ucx_is_loaded = false;

}  // namespace

// The search for leaks crashes in a process that has loaded UCX; this group then goes without.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return ucx_is_loaded ? 1 : 0;
}

namespace rgpu::transport::ucx {
namespace {

using testing::Noise;
using testing::Pair;
using testing::ReceivePieces;
using testing::SendPieces;

// Null where there is no UCX, and that is said: everything else works without.
const Engine* Ucx() {
  std::string why;
  const Engine* engine = LoadUcx(&why);
  ucx_is_loaded = engine != nullptr;
  if (engine == nullptr) {
    CHECK(why.find("ucx: needs UCX 1.13 or later") == 0);
    std::fprintf(stderr, "not tested: %s\n", why.c_str());
  }
  return engine;
}

// A listener at a free port of the loopback, with a worker of its own.
class Port {
 public:
  explicit Port(const Engine& engine) : api_(engine.api) {
    WorkerParams worker_params{};
    worker_params.field_mask = WorkerParams::kThreadMode;
    worker_params.thread_mode = kThreadSerialized;
    CHECK(api_.ucp_worker_create(engine.context, &worker_params, &worker_) == kOk);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ListenerParams params{};
    params.field_mask = ListenerParams::kSocketAddress | ListenerParams::kConnHandler;
    params.socket_address = {reinterpret_cast<sockaddr*>(&at), sizeof at};
    params.conn_handler = {&Keep, &came_};
    CHECK(api_.ucp_listener_create(worker_, &params, &listener_) == kOk);
    facts_.field_mask = ListenerFacts::kSocketAddress;
    CHECK(api_.ucp_listener_query(listener_, &facts_) == kOk);
  }
  ~Port() {
    api_.ucp_listener_destroy(listener_);
    api_.ucp_worker_destroy(worker_);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  sockaddr* address() { return reinterpret_cast<sockaddr*>(&facts_.address); }

  void Progress() {
    api_.ucp_worker_progress(worker_);
    poll(nullptr, 0, 1);
  }

  // Waits for a client.
  ConnRequest* Await() {
    while (came_.empty()) Progress();
    return came_.front();
  }

 private:
  static void Keep(ConnRequest* request, void* queue) {
    static_cast<std::deque<ConnRequest*>*>(queue)->push_back(request);
  }

  const Api& api_;
  Worker* worker_ = nullptr;
  Listener* listener_ = nullptr;
  ListenerFacts facts_{};
  std::deque<ConnRequest*> came_;
};

Pair UcxPair(const Engine& engine) {
  Port port(engine);
  std::string why;
  auto client = UcxConnection::Make(engine, /*guarded=*/true, &why);
  auto server = UcxConnection::Make(engine, /*guarded=*/false, &why);
  CHECK(client != nullptr && server != nullptr);
  CHECK(client->Reach(port.address(), sizeof(sockaddr_in)));
  std::thread other([&] {
    if (!client->Agree(5000)) testing::Fail(__FILE__, __LINE__, "client: " + client->LostReason());
  });
  CHECK(server->Take(port.Await()));
  std::atomic<bool> agreed{false};
  // The listener has a part in it to the end.
  std::thread listening([&] {
    while (!agreed) port.Progress();
  });
  const bool good = server->Agree(5000);
  other.join();
  agreed = true;
  listening.join();
  CHECK(good);
  return {std::move(client), std::move(server)};
}

constexpr testing::PieceSizes kSizes{.largest = 400'000, .wait_ms = 20000};

TEST(ucx, carries_both_ways_at_once) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  const auto up = Noise(6'000'000, 1), down = Noise(6'000'000, 2);
  std::thread threads[] = {
      std::thread([&] { SendPieces(*pair.a, up, 3, kSizes); }),
      std::thread([&] { SendPieces(*pair.b, down, 4, kSizes); }),
      std::thread([&] { ReceivePieces(*pair.a, down, 5, kSizes); }),
  };
  ReceivePieces(*pair.b, up, 6, kSizes);
  for (std::thread& thread : threads) thread.join();
}

TEST(ucx, echoes_one_by_one) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  constexpr int kRounds = 2000;
  std::thread echo([&] {
    uint32_t value = 0;
    for (int i = 0; i < kRounds; ++i) {
      testing::ReceiveBytes(*pair.b, &value, sizeof value);
      testing::SendBytes(*pair.b, &value, sizeof value);
    }
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    uint32_t back = ~i;
    testing::SendBytes(*pair.a, &i, sizeof i);
    testing::ReceiveBytes(*pair.a, &back, sizeof back);
    CHECK_EQ(back, i);
  }
  echo.join();
}

TEST(ucx, nobody_reads_and_memory_is_bounded) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  const auto data = Noise(100'000, 7);
  size_t sent = 0;
  for (;;) {
    const iovec part{const_cast<uint8_t*>(data.data()), data.size()};
    const IoResult result = pair.a->TrySend(&part, 1);
    if (result.ok()) {
      sent += result.bytes;
      CHECK_EQ(pair.b->Wait(kReadable, 1000), kReadable);
    } else if (pair.a->Wait(kWritable, 100) == 0) {
      break;
    }
  }
  CHECK_EQ(sent, size_t{2} << 20);
  // Who reads makes room again.
  std::vector<uint8_t> got(sent);
  testing::ReceiveBytes(*pair.b, got.data(), got.size());
  CHECK_EQ(pair.a->Wait(kWritable, 5000), kWritable);
}

TEST(ucx, ends_one_direction_after_what_was_sent) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  testing::SendBytes(*pair.a, "last words", 10);
  pair.a->EndSending();
  char got[10] = {};
  testing::ReceiveBytes(*pair.b, got, sizeof got);
  CHECK(std::memcmp(got, "last words", 10) == 0);
  CHECK(pair.b->Recv(got, 1, 5000).state == IoState::kClosed);
  testing::SendBytes(*pair.b, "an answer", 9);
  testing::ReceiveBytes(*pair.a, got, 9);
}

TEST(ucx, an_end_that_goes_is_noticed_by_all) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  for (const bool shut : {false, true}) {
    Pair pair = UcxPair(*engine);
    std::thread waits([&] {
      uint8_t byte = 0;
      CHECK(pair.b->Recv(&byte, 1, 10000).lost());
    });
    const iovec part{const_cast<char*>("x"), 1};
    testing::SendBytes(*pair.b, "x", 1);
    if (shut) {
      pair.a->Shutdown();
    } else {
      pair.a.reset();
    }
    waits.join();
    CHECK(pair.b->TrySend(&part, 1).lost());
  }
}

TEST(ucx, shutdown_ends_waits_here) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  std::thread waits([&] {
    uint8_t byte = 0;
    CHECK(pair.a->Recv(&byte, 1, -1).state == IoState::kClosed);
  });
  std::thread woken([&] { CHECK_EQ(pair.a->Wait(kWoken, 5000), kWoken); });
  poll(nullptr, 0, 20);
  pair.a->Shutdown();
  waits.join();
  woken.join();
}

TEST(ucx, what_cannot_be_read_or_written_is_a_fault) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  testing::HalfMapped memory;
  uint8_t* bad = memory.data() + memory.page();
  const iovec part{bad, 10};
  CHECK(pair.a->TrySend(&part, 1).state == IoState::kFault);
  testing::SendBytes(*pair.b, "hello", 5);
  CHECK(pair.a->Wait(kReadable, 5000) == kReadable);
  CHECK(pair.a->TryRecv(bad, 5).state == IoState::kFault);
  char got[5];
  testing::ReceiveBytes(*pair.a, got, 5);
  CHECK(std::memcmp(got, "hello", 5) == 0);
}

TEST(ucx, sleeping_costs_nothing) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  // What the greeting left to do.
  CHECK_EQ(pair.a->Wait(kReadable, 50), 0);
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  CHECK_EQ(pair.a->Wait(kReadable | kWoken, 500), 0);
  getrusage(RUSAGE_THREAD, &after);
  const auto us = [](const rusage& use) {
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1'000'000L + use.ru_utime.tv_usec +
           use.ru_stime.tv_usec;
  };
  CHECK(us(after) - us(before) < 50'000);
}

TEST(ucx, a_child_abandons_it) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  Pair pair = UcxPair(*engine);
  const pid_t child = fork();
  if (child == 0) {
    pair.a->Abandon();
    uint8_t byte = 0;
    std::string why;
    const bool good = pair.a->TryRecv(&byte, 1).state == IoState::kClosed &&
                      pair.a->Wait(kReadable, 1000) == kReadable && LoadUcx(&why) == nullptr;
    pair.a.reset();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
  testing::SendBytes(*pair.a, "hello", 5);
  char got[5];
  testing::ReceiveBytes(*pair.b, got, 5);
}

TEST(ucx, where_nobody_listens_there_is_a_sentence) {
  const Engine* engine = Ucx();
  if (engine == nullptr) return;
  std::string uri;
  testing::ListenTcp(8, &uri);  // closed again
  ConnectError why;
  CHECK(Connect("ucx:" + uri, {.timeout_ms = 5000}, &why) == nullptr);
  CHECK(why.sentence.find("no program that speaks UCX answers") != std::string::npos);
  // Something else listens, and says nothing.
  const base::UniqueFd silent = testing::ListenTcp(8, &uri);
  CHECK(Connect("ucx:" + uri, {.timeout_ms = 300}, &why) == nullptr);
  CHECK_EQ(why.error, ETIMEDOUT);
}

}  // namespace
}  // namespace rgpu::transport::ucx
