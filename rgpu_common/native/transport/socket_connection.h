// A connected stream socket (Unix or TCP) as a Connection.
#pragma once

#include <netinet/tcp.h>

#include <atomic>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

class SocketConnection final : public Connection {
 public:
  // `wake` is an eventfd. dead_peer_ms: see ConnectOptions; 0 for a peer on the same host, which
  // cannot die silently.
  SocketConnection(base::UniqueFd socket, base::UniqueFd wake, const char* kind, int dead_peer_ms);
  ~SocketConnection() override;

  IoResult TrySend(const iovec* parts, int count) override;
  IoResult TryRecv(void* to, size_t bytes) override;
  IoResult Recv(void* to, size_t bytes, int timeout_ms) override;
  int Wait(int events, int timeout_ms) override;
  void Wake() override;
  void EndSending() override;
  void Shutdown() override;
  void Abandon() override;
  const char* kind() const override { return kind_; }
  int descriptor() const override { return socket_; }

  // The descriptors, for a caller that adds its own wait or passes descriptors; -1 after Abandon.
  int socket() const { return socket_; }
  int wake() const { return wake_; }

 private:
  IoResult RecvForSlice(void* to, size_t bytes);
  IoResult Receive(void* to, size_t bytes, int flags);
  bool CheckPeer();
  IoResult Gone() const;

  // Closed only in the destructor and in a forked child, because other threads may use it until
  // then.
  int socket_;
  int wake_;
  const char* kind_;
  const int dead_peer_ms_;
  std::atomic<bool> closed_{false};
  std::atomic<int> error_{0};  // ETIMEDOUT once the peer is known to be dead
};

// True if the peer has owed an acknowledgement for dead_peer_ms, of data or of probes of a closed
// window. The kernel alone would wait for a quarter of an hour. TCP_USER_TIMEOUT is no substitute:
// it also ends a connection whose peer answers but accepts no data.
bool PeerIsDead(const tcp_info& info, int dead_peer_ms);

// Sets the options of a TCP socket: no delay, keep-alive, congestion control. Failures are ignored.
void TuneTcp(int fd, const ConnectOptions& options);

// The connect functions of the two schemes.
std::unique_ptr<Connection> ConnectUnix(const std::string& address, const ConnectOptions& options,
                                        ConnectError* why);
std::unique_ptr<Connection> ConnectTcp(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport
