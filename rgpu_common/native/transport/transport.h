// A connection: an ordered, reliable stream of bytes between two processes. Its functions use
// neither descriptors nor packets, so shared memory and RDMA can implement them as well as sockets.
//
// Threads: one thread may send while another receives. Callers that have several senders or several
// receivers need a lock of their own. Wait, Wake and Shutdown may be called from any thread at any
// time.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rgpu::transport {

enum class IoState : uint8_t {
  kDone,        // `bytes` were moved, at least one
  kWouldBlock,  // nothing was moved; Wait returns when to try again
  kClosed,      // the peer ended the stream, or this process called Shutdown
  kFault,       // the caller's memory cannot be accessed; no byte was moved
  kFailed,      // the connection is broken; `error` holds the errno
};

struct IoResult {
  IoState state = IoState::kDone;
  size_t bytes = 0;
  int error = 0;

  bool ok() const { return state == IoState::kDone; }
  bool lost() const { return state == IoState::kClosed || state == IoState::kFailed; }
};

// The events that Wait waits for and returns, as bits.
inline constexpr int kReadable = POLLIN;
inline constexpr int kWritable = POLLOUT;
// The peer will send no more bytes. Earlier bytes may still have to be read.
inline constexpr int kHangup = POLLRDHUP;
inline constexpr int kWoken = 0x10000;  // passed: Wake() may end this Wait; returned: it has

inline constexpr int kRecvSliceMs = 1000;

class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends as many bytes as fit now, in order, from up to `count` parts. Never blocks.
  virtual IoResult TrySend(const iovec* parts, int count) = 0;
  // True if TrySend has taken bytes that still wait for room. A Wait for kWritable sends them.
  virtual bool HasOutput() const { return false; }
  // Receives the bytes that have arrived, at most `bytes` (> 0). Never blocks.
  virtual IoResult TryRecv(void* to, size_t bytes) = 0;
  // Like TryRecv, but memory that cannot be written gives kFault instead of a crash.
  virtual IoResult TryRecvGuarded(void* to, size_t bytes) { return TryRecv(to, bytes); }
  // True if the connection holds received bytes in its own memory. TryRecv returns them.
  virtual bool HasInput() const { return false; }
  // Blocks until one of `events` holds or `timeout_ms` has passed (-1: no limit, 0: never blocks).
  // Returns the events that hold, or 0 after the time. A lost connection counts as readable and
  // writable; the next TryRecv or TrySend gives the reason. If no thread waited for kWoken when
  // Wake() was called, the next such Wait ends at once.
  virtual int Wait(int events, int timeout_ms) = 0;
  // Ends one Wait for kWoken, in whichever thread it is.
  virtual void Wake() = 0;
  // True if bytes that TrySend did not take may be offered in another order the next time. Other
  // connections may have encrypted them already.
  virtual bool free_order() const { return false; }
  // For connections that keep sent bytes to send them again. The caller promises not to change
  // [memory, memory + bytes) before TakeBack, so bytes sent from there need not be copied. A later
  // Lend replaces the range.
  virtual void Lend(const void* /*memory*/, size_t /*bytes*/) {}
  // Ends the loan: afterwards the owner may change the memory.
  virtual void TakeBack(const void* /*memory*/, size_t /*bytes*/) {}
  // Ends the sending direction, if the transport can. The peer reads all sent bytes, then kClosed.
  virtual void EndSending() {}
  // Ends both directions: the peer and every local thread get kClosed. Frees nothing.
  virtual void Shutdown() = 0;
  // In a forked child: gives up this process's copy of the connection without sending anything. All
  // later calls fail with kClosed. Makes only async-signal-safe calls.
  virtual void Abandon() = 0;
  // A sentence that says why the connection failed, if more than an errno is known; else empty.
  virtual std::string LostReason() const { return {}; }
  // True if the peer sent bytes that no correct peer sends. A new connection would not help.
  virtual bool Malformed() const { return false; }
  // The URI scheme: "unix", "shm", "tcp", "tls", "ucx".
  virtual const char* kind() const = 0;
  // A descriptor that keeps the connection open as long as any process holds a copy of it. -1:
  // there is none.
  virtual int descriptor() const { return -1; }
  // True if memory that is not accessible gives kFault. If false, a caller must test untrusted
  // addresses first (base/probe.h), or a bad one crashes the process.
  virtual bool checks_memory() const { return true; }

  // Receives, and waits for the first byte if none has arrived. This is the fastest way for a
  // thread to wait for its answer. Returns kWouldBlock after the time. With -1 it returns
  // kWouldBlock about every kRecvSliceMs, so that a caller can check other things. Wake does not
  // end it.
  virtual IoResult Recv(void* to, size_t bytes, int timeout_ms);

 protected:
  Connection() = default;
};

struct ConnectOptions {
  int timeout_ms = 10000;
  // TCP: a peer counts as dead if its machine has been silent for this long although it owed an
  // acknowledgement, of data or of a keep-alive probe. A peer that acknowledges but accepts no
  // data, such as a program stopped in a debugger, is alive.
  int dead_peer_ms = 10000;
  // TCP: try first, for half of the time, the address to which the same name led last. The fault
  // that cut the connection may also have cut off the name server, and a name look-up has no time
  // limit.
  bool known_first = false;
};

// Why a connection failed. `error` is an errno (0: the URI itself is wrong). `sentence` gives the
// reason and the remedy.
struct ConnectError {
  int error = 0;
  std::string sentence;
};

// Sets `*why`, if there is one, and returns null.
inline std::unique_ptr<Connection> NotConnected(ConnectError* why, int error,
                                                std::string sentence) {
  if (why != nullptr) *why = {error, std::move(sentence)};
  return nullptr;
}

// The remedy for a server's reason to end the connection, as the end of a sentence. Empty if no
// remedy is known.
std::string Remedy(const std::string& reason);

// Connects to `unix:/path`, `shm:/path`, `tcp:host:port`, `tls:host:port`, `ucx:host:port`, or
// `host:port`; IPv6 as `[::1]:7700`. The default port is 7700. Null: `*why` says why.
std::unique_ptr<Connection> Connect(const std::string& uri, const ConnectOptions& options,
                                    ConnectError* why);

// True if `uri` holds an access token, a user or a password, or has what separates an address from
// one (`user:password@host`, `host?token=word`). Such a text is never repeated in errors and logs,
// which others may read. Connect answers it with kSecretSentence.
bool HoldsSecret(std::string_view uri);
inline constexpr const char* kSecretSentence =
    "an address holds no access token, user or password: write it as HOST:PORT or unix:/PATH, and "
    "name the file with the access token in RGPU_TOKEN_FILE";

// True if `uri` has a form that Connect accepts and names its port. Does not connect.
bool IsAddress(const std::string& uri);

// Called when the process is ending. From then on, connections whose library cleans up at exit
// (OpenSSL) return kClosed. Waits at most `timeout_ms` for threads that are inside such a library.
void Retire(int timeout_ms);

// Makes a connection from a connected SOCK_STREAM descriptor (accepted, inherited or received), and
// takes ownership of it. Null: the descriptor is not such a socket; it has been closed.
std::unique_ptr<Connection> Adopt(int fd, const ConnectOptions& options = {});

// The URI schemes, and the names that are reserved for later releases.
struct Scheme {
  const char* name;
  // Null: the name is reserved, but this release has no such transport.
  std::unique_ptr<Connection> (*connect)(const std::string& address, const ConnectOptions& options,
                                         ConnectError* why);
  bool has_port = false;  // its addresses are HOST:PORT
};
const std::vector<Scheme>& Schemes();

}  // namespace rgpu::transport
