// A connection: an ordered, reliable stream of bytes between two processes.  The verbs know neither
// descriptors nor packets, so that shared memory, RDMA and HTTP/2 fit behind them as well as
// sockets.
//
// Threads: one thread may send while another receives.  Two senders, or two receivers, need a lock
// of the caller's.  Wait, Wake and Shutdown may be called from any thread at any time.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rgpu::transport {

enum class IoState : uint8_t {
  kDone,        // `bytes` were moved, at least one
  kWouldBlock,  // nothing moved; Wait says when to try again
  kClosed,      // the peer ended the stream, or Shutdown was called here
  kFault,       // the caller's memory cannot be accessed; the stream is where it was
  kFailed,      // the connection is broken; `error` holds the errno
};

struct IoResult {
  IoState state = IoState::kDone;
  size_t bytes = 0;
  int error = 0;

  bool ok() const { return state == IoState::kDone; }
  bool lost() const { return state == IoState::kClosed || state == IoState::kFailed; }
};

// What Wait waits for and returns, as a set of bits.
inline constexpr int kReadable = POLLIN;
inline constexpr int kWritable = POLLOUT;
// The peer will send nothing more.  What it sent before may still be there to be read.
inline constexpr int kHangup = POLLRDHUP;
inline constexpr int kWoken = 0x10000;  // asked for: Wake() ends this Wait; returned: it did

inline constexpr int kRecvSliceMs = 1000;

class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends what fits now, in order, from up to `count` parts.  Never blocks.
  virtual IoResult TrySend(const iovec* parts, int count) = 0;
  // TrySend has taken bytes that wait for room: who waits for kWritable sends them on.
  virtual bool HasOutput() const { return false; }
  // Receives what is there now, at most `bytes` (> 0).  Never blocks.
  virtual IoResult TryRecv(void* to, size_t bytes) = 0;
  // The same into memory that perhaps cannot be written: then kFault, and no crash.
  virtual IoResult TryRecvGuarded(void* to, size_t bytes) { return TryRecv(to, bytes); }
  // Bytes are here already, which TryRecv gives without asking anybody.
  virtual bool HasInput() const { return false; }
  // Blocks until one of `events` holds or `timeout_ms` has passed (-1: no limit, 0: only looks).
  // Returns those that hold, 0 after the time.  A lost connection counts as readable and writable:
  // the next TryRecv or TrySend says why.  A Wake() nobody waited for ends the next Wait with
  // kWoken.
  virtual int Wait(int events, int timeout_ms) = 0;
  // Ends one Wait for kWoken, in whatever thread.
  virtual void Wake() = 0;
  // What TrySend did not take may be offered in another order the next time.  Elsewhere it may be
  // encrypted already.
  virtual bool free_order() const { return false; }
  // For connections that keep what they sent: what is sent of [memory, memory + bytes) from now on,
  // until another range is lent, does not change before TakeBack and need not be copied.
  virtual void Lend(const void* /*memory*/, size_t /*bytes*/) {}
  // The memory is its owner's again.
  virtual void TakeBack(const void* /*memory*/, size_t /*bytes*/) {}
  // Ends our direction, where the transport can: the peer reads what was sent, then kClosed.
  virtual void EndSending() {}
  // Ends both directions: the peer and every local thread see kClosed.  Frees nothing.
  virtual void Shutdown() = 0;
  // In a forked child: gives up this process's copy without a word to the peer.  Everything fails
  // with kClosed afterwards.  Only async-signal-safe calls.
  virtual void Abandon() = 0;
  // Why the connection failed, if it knows more than an errno: a sentence, else empty.
  virtual std::string LostReason() const { return {}; }
  // The peer sent what no honest peer sends: another connection in place of this one is no help.
  virtual bool Malformed() const { return false; }
  // The URI scheme: "unix", "shm", "tcp", "tls", "ucx".
  virtual const char* kind() const = 0;
  // The descriptor whose last copy closes the connection, for a process that holds it open without
  // another word; -1: there is none.
  virtual int descriptor() const { return -1; }
  // Whether memory that is not there gives kFault.  If not, whoever passes addresses that somebody
  // else chose looks first (base/probe.h), or the process dies of them.
  virtual bool checks_memory() const { return true; }

  // Receives, and waits for the first byte if none is there: the short way for a thread that waits
  // for its answer.  kWouldBlock after the time; with -1 about every kRecvSliceMs, for callers that
  // have something to look after besides.  Wake does not end it.
  virtual IoResult Recv(void* to, size_t bytes, int timeout_ms);

 protected:
  Connection() = default;
};

struct ConnectOptions {
  int timeout_ms = 10000;
  // TCP: a peer whose machine has been silent for this long is dead, if it owed an answer: to a
  // keep-alive probe, to data on its way.  One that answers but takes no data (a program stopped in
  // a debugger) is alive.
  int dead_peer_ms = 10000;
  // TCP: where this process was connected to under the same name goes first, for half of the time:
  // what cut the connection may have cut the name server off, too, which is asked without a limit.
  bool known_first = false;
};

// Why no connection came about.  `error` is an errno (0: the URI itself is wrong); `sentence` says
// what to do.
struct ConnectError {
  int error = 0;
  std::string sentence;
};

// What a client does about the reason for which its server ended the connection, as a sentence's
// end; empty where that is not known.
std::string Remedy(const std::string& reason);

// Connects to `unix:/path`, `shm:/path`, `tcp:host:port`, `tls:host:port`, `ucx:host:port`, or
// `host:port`; IPv6 as `[::1]:7700`.  A port that is left out is 7700.  Null on failure, then
// `*why` is filled.
std::unique_ptr<Connection> Connect(const std::string& uri, const ConnectOptions& options,
                                    ConnectError* why);

// True if `uri` has a form that Connect takes, with its port, whoever listens there.
bool IsAddress(const std::string& uri);

// The process is leaving: connections whose library takes itself apart at exit answer kClosed from
// here on.  Waits at most `timeout_ms` for threads that are in such a library now.
void Retire(int timeout_ms);

// Makes a connection of a connected SOCK_STREAM descriptor (accepted, inherited or received) and
// owns it from now on.  Null, with the descriptor closed, if it is none.
std::unique_ptr<Connection> Adopt(int fd, const ConnectOptions& options = {});

// The URI schemes, and the names that are reserved for later releases.
struct Scheme {
  const char* name;
  // Null: reserved, not in this release.
  std::unique_ptr<Connection> (*connect)(const std::string& address, const ConnectOptions& options,
                                         ConnectError* why);
  bool has_port = false;  // its addresses are HOST:PORT
};
const std::vector<Scheme>& Schemes();

}  // namespace rgpu::transport
