// A connection through two rings in shared memory, with the Unix socket over which they came.
//
// Until both ends have agreed on the rings everything goes through the socket, and if they do not
// agree it stays so.  Afterwards the socket carries doorbells, bytes that wake an end that sleeps,
// and tells that the peer is gone.  A doorbell is a byte and not an eventfd because a hostile peer
// can make the description of an eventfd block, and then this end would block in writing it; a send
// with MSG_DONTWAIT never does.
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

  // The handshake (negotiate.cc).  All of it before other threads use the connection.
  //
  // Server: makes the rings and sends `frame`, a whole WELCOME, with them and with `more`
  // descriptors.  Nothing has been sent if it is false; `*error` says why.
  bool Make(int* error, size_t ring_bytes = kRingBytes);
  bool SendWith(const void* frame, size_t bytes, const std::vector<int>& more);
  // Client: keeps descriptors that come, until Map or Decline.
  void ExpectDescriptors() { expects_.store(true); }
  // Maps the rings that came with WELCOME.  False: `*why` is a sentence.
  bool Map(std::string* why);
  // The descriptors that came behind the rings, e.g. the device's memory.
  std::vector<base::UniqueFd> TakeDescriptors() { return std::move(received_); }
  // Both: from now on the rings are the connection.
  void Switch();
  // Both: there will be none.
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
  // For tests: how often this end has slept, and how many processors it believes to have.
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
  // Finds out, at most once a millisecond, whether the peer is there.
  void LookAfterPeer();

  std::unique_ptr<SocketConnection> socket_;
  const Side side_;
  Segment segment_;
  base::UniqueFd segment_fd_;
  std::vector<base::UniqueFd> received_;
  std::optional<Rings> rings_;
  std::atomic<bool> expects_{false};
  std::atomic<bool> switched_{false};
  std::atomic<bool> closed_{false};     // by us
  std::atomic<bool> peer_gone_{false};  // what it has written can still be read
  std::atomic<int> error_{0};
  std::atomic<bool> woken_{false};
  std::atomic<uint64_t> looked_ns_{0};
  std::atomic<uint64_t> sleeps_{0};
  Spin spin_;

  std::mutex sleepers_mutex_;
  int asleep_for_bytes_ = 0;
  int asleep_for_room_ = 0;
};

// `shm:/path`: connects to the Unix socket; the rings come with the session.
std::unique_ptr<Connection> ConnectShm(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

// Server: the connection of a client that wishes a ring, if it can have one, else as it was.
std::unique_ptr<Connection> MayShare(std::unique_ptr<Connection> connection);

}  // namespace rgpu::transport
