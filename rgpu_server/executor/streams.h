// Contexts and their streams: what was issued, and what is known to be complete.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rgpu_server/executor/gate/stream_work.h"
#include "rgpu_server/executor/halts.h"
#include "rgpu_server/executor/points.h"
#include "rgpu_server/executor/salted_hash.h"
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
  uint16_t opcode = 0;  // of the command, and its number, thread and context
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
  uint64_t entries = 0;
  uint64_t credited = 0;
  std::vector<std::shared_ptr<const void>> keep;
  uint64_t work = 0;              // the number of its device work at the gate; 0: it has none
  std::shared_ptr<Point> before;  // null, or a timed place directly before that work
};

// A synchronous copy in one stream, which later work of other streams must not overtake.
struct Fence {
  const Stream* source = nullptr;  // compared, never dereferenced
  bool legacy = false;
  bool blocking = false;
  uint64_t epoch = 0;
  std::shared_ptr<Point> point;
};

struct Stream : StreamWork {
  uint64_t id = 0;      // the client's name for it: 1, 2 or a handle
  uint32_t thread = 0;  // owner of a per-thread stream; 0 for others
  Context* context = nullptr;
  CUstream handle = nullptr;
  bool failed = false;  // the driver could not create it: commands in it are skipped

  uint64_t issued = 0;  // driver calls that put work into it
  uint64_t marked = 0;
  uint64_t completed = 0;
  uint64_t entries = 0;  // what was put into the driver's queue: work, events and waits for events
  uint64_t entries_done = 0;
  uint64_t credited = 0;  // commands that took one of the client's credits
  uint64_t marked_credited = 0;
  uint64_t returned = 0;
  uint64_t unmarked_bytes = 0;
  uint64_t arrived_bytes = 0;  // received in place since credits were last returned
  std::vector<std::shared_ptr<const void>> unmarked_keep;
  std::shared_ptr<Point> before_unmarked;
  std::deque<Marker> outstanding;
  std::shared_ptr<Point> last_point;
  // The client's last record of an event here, and `issued` with it. While nothing is issued behind
  // it, the stream is complete when the event is, although a marker may follow.
  std::weak_ptr<Point> recorded;
  uint64_t recorded_at = 0;
  std::shared_ptr<Point> observed;  // the last point for which the context's observer waits

  bool fence_pending = false;
  bool unfenced = false;  // waits for no fence: see rgpuPageStreamCreate
  uint64_t fences_seen = 0;
  Frontier frontier;
  std::deque<std::shared_ptr<Delivery>> deliveries;
  bool sending = false;  // a thread is sending the first delivery without the lock
  bool polled = false;   // on the poller's list

  bool idle() const { return issued == completed; }
  std::shared_ptr<Stream> Share() { return std::static_pointer_cast<Stream>(shared_from_this()); }
};

// The end of the work of a destroyed stream. `observed`: the context's observer waits for it.
struct StreamEnd {
  std::shared_ptr<Point> point;
  bool observed = false;
};

struct Context : std::enable_shared_from_this<Context> {
  Context(const Driver& driver, uint32_t context_id, std::shared_ptr<HaltWatch> watch)
      : id(context_id),
        events(std::make_shared<EventPool>(driver)),
        staging(std::make_shared<Staging>(driver)),
        halts(driver, std::move(watch)) {}

  uint32_t id;                           // given by the client, who may use it again
  const uint64_t serial = NextSerial();  // never used again
  CUcontext handle = nullptr;
  CUdevice device = 0;
  bool primary = false;
  // The client destroys the context: no command gets into it any more. It is destroyed when its
  // work is complete.
  bool closing = false;
  bool dead = false;

  std::shared_ptr<Stream> legacy;
  std::unordered_map<uint32_t, std::shared_ptr<Stream>, SaltedHash> per_thread;
  std::vector<std::shared_ptr<Stream>> streams;  // all its streams
  std::shared_ptr<Stream> observer;              // null, or ours: waits for the others, has no work
  Stream* last = nullptr;                        // the stream of the last command
  std::vector<StreamEnd> gone;                   // of streams with work that may not be complete

  std::vector<Fence> fences;
  uint64_t fence_epoch = 0;
  Frontier fenced;          // the deliveries that precede any fence there ever was
  uint32_t deliveries = 0;  // not done yet
  ContextOrder order;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<Staging> staging;
  Halts halts;

  // Bytes charged for the context itself, for local memory (by stack limit or largest launch), and
  // for its other limits.
  uint64_t own_charged = 0;
  uint64_t conditionals = 0;       // handles of conditional nodes that exist
  uint64_t conditional_pages = 0;  // charged for them, until the context goes
  uint64_t local_charged = 0;
  uint64_t printf_charged = 0;
  uint64_t heap_charged = 0;

 private:
  // With the executor's lock.
  static uint64_t NextSerial() {
    static uint64_t last = 0;
    return ++last;
  }
};

}  // namespace rgpu::exec
