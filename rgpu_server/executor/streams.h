// Contexts and their streams: what was issued, and what is known to be complete.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rgpu_server/executor/load.h"
#include "rgpu_server/executor/points.h"
#include "rgpu_server/executor/staging.h"

namespace rgpu::exec {

struct Context;
struct Stream;

inline constexpr uint64_t kLegacyOperand = 1;
inline constexpr uint64_t kPerThreadOperand = 2;
// A marker follows at the latest after this many commands that took a credit, never each launch.
inline constexpr uint64_t kMarkCommands = 32;
inline constexpr size_t kMaxStreams = 1024;  // created by the client, per session
inline constexpr size_t kMaxThreads = 1024;  // client threads with a default stream of their own
inline constexpr size_t kMaxKeptErrors = 4096;

// The bytes of a posted copy to the host that are under way.
struct Delivery {
  const Stream* stream = nullptr;
  struct Chunk {
    std::shared_ptr<Point> point;  // once complete, the bytes are in the piece
    Piece piece;
    uint64_t offset = 0;
  };
  uint64_t seq = 0;
  uint32_t thread = 0;
  uint32_t context = 0;
  std::deque<Chunk> chunks;    // not sent yet, in order
  uint64_t to_come_bytes = 0;  // of a long copy: bytes that are in no chunk yet
  uint64_t sent = 0;           // number of its last frame in the outbox
  bool done = false;           // all its bytes are in the outbox
};

// An internal event after some commands, and what is released when the event completes.
struct Marker {
  std::shared_ptr<Point> point;
  uint64_t issued = 0;
  uint64_t credited = 0;
  std::vector<std::shared_ptr<const void>> keep;
  Load load;                      // device work since the previous marker
  Stalls behind;                  // stalls that all of that work waits for
  uint64_t since_ns = 0;          // when the first of that work was issued
  std::shared_ptr<Point> before;  // null, or a timed event directly before that work
};

// A synchronous copy in one stream, which later work of other streams must not overtake.
struct Fence {
  const Stream* source = nullptr;  // compared, never dereferenced
  bool legacy = false;
  bool blocking = false;
  uint64_t epoch = 0;
  std::shared_ptr<Point> point;
};

// Predicted device work.
struct Pieces {
  uint64_t count = 0;
  uint64_t ns = 0;

  void operator+=(const Pieces& other) {
    count += other.count;
    ns += other.ns;
  }
  // Stops at 0: the times added and subtracted come from different predictions.
  void operator-=(const Pieces& other) {
    count -= std::min(count, other.count);
    ns -= std::min(ns, other.ns);
  }
};

struct Stream : std::enable_shared_from_this<Stream> {
  uint64_t id = 0;      // the client's name for it: 1, 2 or a handle
  uint32_t thread = 0;  // owner of a per-thread stream; 0 for others
  Context* context = nullptr;
  CUstream handle = nullptr;
  bool legacy = false;
  bool blocking = true;  // ordered with the legacy stream
  bool failed = false;   // the driver could not create it: commands in it are skipped

  uint64_t issued = 0;  // driver calls that put work into it
  uint64_t marked = 0;
  uint64_t completed = 0;
  uint64_t credited = 0;  // commands that took one of the client's credits
  uint64_t marked_credited = 0;
  uint64_t returned = 0;
  uint64_t unmarked_bytes = 0;
  uint64_t arrived_bytes = 0;  // received in place since credits were last returned
  std::vector<std::shared_ptr<const void>> unmarked_keep;
  Load unmarked_load;
  uint64_t unmarked_since_ns = 0;
  std::shared_ptr<Point> before_unmarked;
  std::deque<Marker> outstanding;
  std::shared_ptr<Point> last_point;

  bool fence_pending = false;
  uint64_t fences_seen = 0;
  Frontier frontier;
  std::deque<std::shared_ptr<Delivery>> deliveries;
  bool sending = false;    // a thread is sending the first delivery without the lock
  bool polled = false;     // on the poller's list
  Stalls behind;           // stalls that the next work waits for
  Stalls unmarked_behind;  // stalls that all unmarked work waits for
  std::shared_ptr<StreamStalls> stalls = std::make_shared<StreamStalls>();
  Pieces aside;  // work that is set aside after a stall (gate_stall.cc)

  bool idle() const { return issued == completed; }
  // Returns the stalls that a marker set now certainly waits for: those of the work before it
  // (`first`), and the stream's own last stall. If the stream stands in a stall, all earlier work
  // of the stream is complete.
  Stalls BehindSoFar(const Stalls& first) const {
    Stalls behind;
    if (stalls->over.load(std::memory_order_relaxed) < stalls->last) {
      behind.Add({stalls, stalls->last});
    }
    behind.Merge(first);
    return behind;
  }
};

struct Context : std::enable_shared_from_this<Context> {
  Context(const Driver& driver, uint32_t context_id)
      : id(context_id),
        events(std::make_shared<EventPool>(driver)),
        staging(std::make_shared<Staging>(driver)) {}

  uint32_t id;
  CUcontext handle = nullptr;
  CUdevice device = 0;
  bool primary = false;
  bool dead = false;

  std::shared_ptr<Stream> legacy;
  std::unordered_map<uint32_t, std::shared_ptr<Stream>> per_thread;
  std::vector<std::shared_ptr<Stream>> streams;  // all its streams
  Stream* last = nullptr;                        // the stream of the last command

  std::vector<Fence> fences;
  uint64_t fence_epoch = 0;
  Frontier fenced;          // the deliveries that precede any fence there ever was
  uint32_t deliveries = 0;  // not done yet
  // Stalls that work in the legacy stream makes blocking streams wait for, and the reverse.
  Stalls behind_legacy;
  Stalls behind_blocking;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<Staging> staging;

  // Bytes charged for the context itself, for local memory (by stack limit or largest launch), and
  // for its other limits.
  uint64_t own_charged = 0;
  uint64_t local_charged = 0;
  uint64_t printf_charged = 0;
  uint64_t heap_charged = 0;
};

}  // namespace rgpu::exec
