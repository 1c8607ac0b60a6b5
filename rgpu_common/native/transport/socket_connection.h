// A connected stream socket (Unix or TCP) as a Connection.
#pragma once

#include <netinet/tcp.h>

#include <atomic>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

class SocketConnection final : public Connection {
 public:
  // `wake` is an eventfd.  dead_peer_ms: see ConnectOptions, 0 for what cannot die silently.
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

  // For who puts something of its own beside the stream; -1 after Abandon.
  int socket() const { return socket_; }
  int wake() const { return wake_; }

 private:
  IoResult RecvForSlice(void* to, size_t bytes);
  IoResult Receive(void* to, size_t bytes, int flags);
  bool CheckPeer();
  IoResult Gone() const;

  // Never closed while other threads may use it, only in the destructor and in a forked child.
  int socket_;
  int wake_;
  const char* kind_;
  const int dead_peer_ms_;
  std::atomic<bool> closed_{false};
  std::atomic<int> error_{0};  // ETIMEDOUT once the peer was found dead
};

// True if the peer owes an answer for dead_peer_ms: to data on its way, or to probes of a closed
// window.  The kernel itself would go on for a quarter of an hour, and its TCP_USER_TIMEOUT would
// also end a connection whose peer answers and merely takes no data.
bool PeerIsDead(const tcp_info& info, int dead_peer_ms);

// Options of a TCP socket: no delay, keep-alive, congestion control.  Best effort.
void TuneTcp(int fd, const ConnectOptions& options);

// The connect functions of the two schemes.
std::unique_ptr<Connection> ConnectUnix(const std::string& address, const ConnectOptions& options,
                                        ConnectError* why);
std::unique_ptr<Connection> ConnectTcp(const std::string& address, const ConnectOptions& options,
                                       ConnectError* why);

}  // namespace rgpu::transport
