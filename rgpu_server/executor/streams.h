// Contexts and their streams: what has been issued, what is known to be complete.
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
// One internal event per so many commands that took a credit, never per launch.
inline constexpr uint64_t kMarkCommands = 32;
inline constexpr size_t kMaxStreams = 1024;  // minted, per session
inline constexpr size_t kMaxThreads = 1024;  // of the client's, with a stream of their own
inline constexpr size_t kMaxKeptErrors = 4096;

// Bytes of a posted copy to the host, on their way.
struct Delivery {
  const Stream* stream = nullptr;
  struct Chunk {
    std::shared_ptr<Point> point;  // complete: the bytes are in the piece
    Piece piece;
    uint64_t offset = 0;
  };
  uint64_t seq = 0;
  uint32_t thread = 0;
  uint32_t context = 0;
  std::deque<Chunk> chunks;    // those not sent yet, in order
  uint64_t to_come_bytes = 0;  // of a long copy, that are in no chunk yet
  uint64_t sent = 0;           // the number of its last frame in the outbox
  bool done = false;           // everything is in the outbox
};

// An internal event behind some commands, and what can be let go once it is complete.
struct Marker {
  std::shared_ptr<Point> point;
  uint64_t issued = 0;
  uint64_t credited = 0;
  std::vector<std::shared_ptr<const void>> keep;
  Load load;                      // the device work since the marker before
  Stalls behind;                  // all of that is
  uint64_t since_ns = 0;          // when the first of it was issued
  std::shared_ptr<Point> before;  // null, or a timed place directly before it
};

// A synchronous copy of one stream that others must not overtake.
struct Fence {
  const Stream* source = nullptr;  // compared, never followed
  bool legacy = false;
  bool blocking = false;
  uint64_t epoch = 0;
  std::shared_ptr<Point> point;
};

// Device work, predicted.
struct Pieces {
  uint64_t count = 0;
  uint64_t ns = 0;

  void operator+=(const Pieces& other) {
    count += other.count;
    ns += other.ns;
  }
  // Not below nothing: times are of different predictions.
  void operator-=(const Pieces& other) {
    count -= std::min(count, other.count);
    ns -= std::min(ns, other.ns);
  }
};

struct Stream : std::enable_shared_from_this<Stream> {
  uint64_t id = 0;      // as the client names it: 1, 2 or minted
  uint32_t thread = 0;  // owner of a per-thread stream, else 0
  Context* context = nullptr;
  CUstream handle = nullptr;
  bool legacy = false;
  bool blocking = true;  // ordered with the legacy stream
  bool failed = false;   // its creation failed: commands in it are nothing

  uint64_t issued = 0;  // driver calls that put work into it
  uint64_t marked = 0;
  uint64_t completed = 0;
  uint64_t credited = 0;  // commands that took a credit of the client's
  uint64_t marked_credited = 0;
  uint64_t returned = 0;
  uint64_t unmarked_bytes = 0;
  uint64_t arrived_bytes = 0;  // received in place since credits were returned
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
  bool sending = false;    // a thread is sending its first delivery without the lock
  bool polled = false;     // on the poller's list
  Stalls behind;           // what comes next is
  Stalls unmarked_behind;  // all that is unmarked is
  std::shared_ptr<StreamStalls> stalls = std::make_shared<StreamStalls>();
  Pieces aside;  // behind places where streams wait for the client (gate_stall.cc)

  bool idle() const { return issued == completed; }
  // What a marker comes behind for certain that is set now, behind work that comes behind `first`:
  // where this stream waits, all before is complete.
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
  std::vector<std::shared_ptr<Stream>> streams;  // all of them
  Stream* last = nullptr;                        // the stream of the last command

  std::vector<Fence> fences;
  uint64_t fence_epoch = 0;
  Frontier fenced;          // what all fences there ever were come behind
  uint32_t deliveries = 0;  // not done
  // What work in the legacy stream makes that in blocking ones come behind, and the reverse.
  Stalls behind_legacy;
  Stalls behind_blocking;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<Staging> staging;

  // Bytes charged for the context itself, for local memory (stack limit or largest launch), and for
  // its limits.
  uint64_t own_charged = 0;
  uint64_t local_charged = 0;
  uint64_t printf_charged = 0;
  uint64_t heap_charged = 0;
};

}  // namespace rgpu::exec
