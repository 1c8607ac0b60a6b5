// A connection through two rings in shared memory, and the Unix socket over which the rings came.
//
// Until both ends have agreed on the rings, all bytes go through the socket. If they do not agree,
// that remains so. Afterwards the socket carries only doorbells (bytes that wake a sleeping end)
// and shows the end of the peer. A doorbell is a byte and not an eventfd, because a hostile peer
// can make the eventfd that both ends share block, and this end would then block in its write. A
// send with MSG_DONTWAIT never blocks.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "rgpu_common/native/transport/shm/segment.h"
#include "rgpu_common/native/transport/shm/spin.h"
#include "rgpu_common/native/transport/socket_connection.h"

namespace rgpu::transport {

class ShmConnection final : public Connection, private Doorbell {
 public:
  enum class Side { kClient, kServer };

  // `socket` is a connected Unix socket.
  ShmConnection(std::unique_ptr<SocketConnection> socket, Side side);

  // The handshake (negotiate.cc). It must be complete before other threads use the connection.
  //
  // Server: makes the rings. False: `*error` says why.
  bool Make(int* error, size_t ring_bytes = kRingBytes);
  // Server: sends `frame`, a whole WELCOME, with the descriptors of the rings and `more`.
  bool SendWith(const void* frame, size_t bytes, const std::vector<int>& more);
  // Client: keeps descriptors that arrive, until Switch or StayOnSocket.
  void ExpectDescriptors() { expects_.store(true); }
  // Client: maps the rings that came with WELCOME. False: `*why` is a sentence.
  bool Map(std::string* why);
  // Client: the descriptors that came after the rings, such as the device's memory.
  std::vector<base::UniqueFd> TakeDescriptors() { return std::move(received_); }
  // Both ends: from now on, the rings carry the bytes.
  void Switch();
  // Both ends: the socket carries the bytes for good, and the rings are freed.
  void StayOnSocket();

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override;
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  int Wait(int events, int timeout_ms) override;
  void Wake() override;
  void Shutdown() override;
  void Abandon() override;
  const char* kind() const override { return switched() ? "shm" : "unix"; }
  bool checks_memory() const override { return !switched(); }
  bool switched() const { return switched_.load(std::memory_order_acquire); }
  // For tests: the number of sleeps of this end, and the number of processors that it assumes.
  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  void set_cpus(int cpus) { spin_.set_cpus(cpus); }

 private:
  struct Rings {
    Rings(Segment& segment, int out, Doorbell* bell)
        : writer(segment.control(out), segment.data(out), segment.ring_bytes(), bell),
          reader(segment.control(1 - out), segment.data(1 - out), segment.ring_bytes(), bell) {}
    RingWriter writer;
    RingReader reader;
  };

  void Ring() override;  // Doorbell
  IoResult ReceiveWithDescriptors(void* to, size_t bytes);
  IoResult Broken();
  IoResult Gone() const;
  // Those of `events` that hold now.
  int Ready(int events);
  int Look(int events, uint64_t start_ns, uint64_t until_ns);
  int Sleep(int events, int timeout_ms);
  void FallAsleep(int data);
  void StandUp(int data);
  // Checks, at most once a millisecond, whether the peer has closed the socket.
  void LookAfterPeer();

  std::unique_ptr<SocketConnection> socket_;
  const Side side_;
  Segment segment_;
  base::UniqueFd segment_fd_;
  std::vector<base::UniqueFd> received_;
  std::optional<Rings> rings_;
  std::atomic<bool> expects_{false};
  std::atomic<bool> switched_{false};
  std::atomic<bool> closed_{false};     // this end has called Shutdown or Abandon
  std::atomic<bool> peer_gone_{false};  // the bytes that it has written can still be read
  std::atomic<int> error_{0};
  std::atomic<bool> woken_{false};
  std::atomic<uint64_t> looked_ns_{0};
  std::atomic<uint64_t> sleeps_{0};
  Spin spin_;

  std::mutex sleepers_mutex_;
  int asleep_for_bytes_ = 0;
  int asleep_for_room_ = 0;
};

// Connects to the Unix socket of `shm:/path`. The rings come with the session's WELCOME.
std::unique_ptr<Connection> ConnectShm(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

// Server: wraps the connection of a client that wishes a ring, if it is a Unix socket. Other
// connections are returned unchanged.
std::unique_ptr<Connection> MayShare(std::unique_ptr<Connection> connection);

}  // namespace rgpu::transport
