// Tests of the channel. The test itself plays the server.
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <semaphore>

#include "rgpu_client/shim/channel.h"
#include "rgpu_client/shim/tests/check.h"
#include "rgpu_common/native/base/fd.h"

namespace {

using namespace rgpu::shim;
using namespace rgpu;

struct Notices final : NoticeHandler {
  void OnCredit(const wire::FrameHeader&, uint64_t, uint64_t) override {}
  void OnCompleted(const wire::FrameHeader&, uint64_t, uint64_t, uint64_t) override {}
  void OnLog(uint32_t, std::string_view) override {}
  void OnPull(const wire::Pull&, const HostRegion&, uint64_t) override {}
  void OnCallback(uint64_t, const HostCall&, CUresult) override {}
  void OnSticky(CUresult, std::string_view) override { ++said; }

  std::atomic<int> said{0};
};

// Never deleted, as in a session.
Channel& MakeChannel(std::unique_ptr<transport::Connection> connection, NoticeHandler* handler) {
  auto reader = std::make_unique<transport::FrameReader>(connection.get());
  return *new Channel(std::move(connection), std::move(reader), handler);
}

// Accepts a DATA frame without bytes, and returns only when the test releases `go_on`.
struct SlowSink final : ReplySink {
  bool OnData(uint64_t, uint32_t, transport::FrameReader&) override {
    entered.release();
    go_on.acquire();
    return true;
  }

  std::binary_semaphore entered{0};
  std::binary_semaphore go_on{0};
};

void SendData(transport::Connection& peer, uint64_t seq) {
  wire::FrameHeader header;
  header.kind = wire::Kind::kData;
  header.seq = seq;
  transport::FrameBuffer frame;
  wire::Writer head = frame.Begin(header);
  head.Put(uint64_t{0});
  frame.End();
  iovec part = frame.part();
  CHECK(transport::SendAll(peer, &part, 1, nullptr, -1) == transport::SendState::kSent);
}

std::future<CUresult> AskForMemory(Channel& channel, ThreadState& thread, ReplySink& sink) {
  return std::async(std::launch::async, [&] {
    rgpuMemGetInfo_Reply reply;
    return channel.Call<op_rgpuMemGetInfo>({&thread, 1}, {}, &reply, &sink);
  });
}

// A connection that accepts bytes only after a wait without a time limit. Waits with a limit time
// out.
class Stalled final : public transport::Connection {
 public:
  explicit Stalled(std::atomic<bool>* timed) : timed_(timed) {}
  transport::IoResult TrySend(const iovec* parts, int count) override {
    if (!room_.exchange(false)) return {transport::IoState::kWouldBlock};
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
    return {transport::IoState::kDone, bytes};
  }
  transport::IoResult TryRecv(void*, size_t) override { return {transport::IoState::kWouldBlock}; }
  int Wait(int, int timeout_ms) override {
    (timeout_ms < 0 ? room_ : *timed_) = true;
    return timeout_ms < 0 ? transport::kWritable : 0;
  }
  void Wake() override {}
  void Shutdown() override {}
  void Abandon() override {}
  const char* kind() const override { return "test"; }

 private:
  std::atomic<bool>* const timed_;
  std::atomic<bool> room_{false};
};

}  // namespace

TEST(NobodyLeavesWhileAnotherThreadLandsItsBytes) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  static Notices notices;
  Channel& channel = MakeChannel(transport::Adopt(ends[0]), &notices);
  auto peer = transport::Adopt(ends[1]);
  transport::FrameReader commands(peer.get());
  wire::FrameHeader command;
  wire::ByteView head;
  ThreadState leader, follower, sender;
  SlowSink first, second;

  auto led = AskForMemory(channel, leader, first);
  CHECK(commands.Next(&command, &head, -1) == transport::ReadState::kFrame);
  SendData(*peer, command.seq);
  first.entered.acquire();  // from here on the first thread is the leader
  auto followed = AskForMemory(channel, follower, second);
  CHECK(commands.Next(&command, &head, -1) == transport::ReadState::kFrame);
  first.go_on.release();
  SendData(*peer, command.seq);
  second.entered.acquire();

  peer->Shutdown();
  channel.Post<op_rgpuThreadGone>({&sender, 0}, {7});
  channel.Flush();
  CHECK(notices.said == 1);  // the sender found the connection lost and woke both waiters
  CHECK(followed.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  second.go_on.release();
  CHECK(led.get() == CUDA_ERROR_EXTERNAL_DEVICE && followed.get() == CUDA_ERROR_EXTERNAL_DEVICE);
}

TEST(ALinkThatStallsAtTheExitIsNotALoss) {
  static Notices notices;
  std::atomic<bool> timed{false};
  Channel& channel = MakeChannel(std::make_unique<Stalled>(&timed), &notices);
  ThreadState thread;
  while (!timed) {  // the flusher waits without a limit and may send the frame first
    channel.Post<op_rgpuThreadGone>({&thread, 0}, {7});
    channel.FlushAtExit(10);
  }
  CHECK(notices.said == 0 && channel.sticky() == CUDA_SUCCESS);
}

TEST(TheServersEndAfterTheGoodbyeIsNotALoss) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  static Notices notices;
  Channel& channel = MakeChannel(transport::Adopt(ends[0]), &notices);
  auto peer = transport::Adopt(ends[1]);
  channel.FlushAtExit(10);
  peer->Shutdown();
  channel.Poll();  // as the pump does, which may read at any time
  CHECK(notices.said == 0 && channel.sticky() == CUDA_ERROR_EXTERNAL_DEVICE);
}

TEST(ARequestTooLongForAFrameLeavesNoGap) {
  static Notices notices;
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  Channel& channel = MakeChannel(transport::Adopt(ends[0]), &notices);
  auto peer = transport::Adopt(ends[1]);
  ThreadState thread;
  const std::string name(wire::kMaxHeadBytes, 'n');
  rgpuModuleGetFunction_Reply reply;
  CHECK(channel.Call<op_rgpuModuleGetFunction>({&thread, 1},
                                               {5, wire::Bytes(std::string_view(name)), 6},
                                               &reply) == CUDA_ERROR_INVALID_VALUE);
  CHECK(channel.Post<op_rgpuThreadGone>({&thread, 0}, {7}) == CUDA_SUCCESS);
  channel.Flush();
  transport::FrameReader commands(peer.get());
  wire::FrameHeader command;
  wire::ByteView head;
  CHECK(commands.Next(&command, &head, -1) == transport::ReadState::kFrame && command.seq == 1);
}
