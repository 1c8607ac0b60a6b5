// The device work of one stream, as the gate counts it, and the order that the gate is sure of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "rgpu_server/executor/gate/client_waits.h"
#include "rgpu_server/executor/gate/load.h"

namespace rgpu::exec {

// A number of pieces of device work (launches, copies, sets) and their predicted time.
struct Pieces {
  uint64_t count = 0;
  uint64_t ns = 0;

  void operator+=(const Pieces& other) {
    count += other.count;
    ns += other.ns;
  }
  // Stops at zero: what is taken away may have been predicted at another time, and longer.
  void operator-=(const Pieces& other) {
    count -= std::min(count, other.count);
    ns -= std::min(ns, other.ns);
  }
};

// Device work of one stream up to a marker, which is an event that the executor records behind it.
struct MarkedWork {
  uint64_t marker = 0;    // its number; markers of a session are numbered from 1
  Load load;              // never empty
  WaitPlaces behind;      // all of the work comes behind these
  uint64_t since_ns = 0;  // when its first piece was issued
};

// Places that work in the legacy stream of a context, and work in the streams that wait for the
// legacy stream (blocking streams), come behind.
struct ContextOrder {
  WaitPlaces behind_legacy;    // the next work in a blocking stream comes behind these
  WaitPlaces behind_blocking;  // the next work in the legacy stream comes behind these
};

struct StreamWork : std::enable_shared_from_this<StreamWork> {
  bool legacy = false;
  bool blocking = true;  // waits for the legacy stream, and the legacy stream waits for it

  Load unmarked_load;              // no marker stands behind this work yet
  uint64_t unmarked_since_ns = 0;  // when its first piece was issued
  WaitPlaces unmarked_behind;      // what its first piece came behind, and so all of it
  std::deque<MarkedWork> marked;   // oldest first
  WaitPlaces behind;               // the next work comes behind these
  std::shared_ptr<ClientWaits> waits = std::make_shared<ClientWaits>();
  Pieces aside;  // the part of the work that is set aside
  static constexpr size_t kUnlisted = SIZE_MAX;
  size_t listed_at = kUnlisted;  // in the list of streams with work

  bool has_work() const { return !unmarked_load.empty() || !marked.empty(); }
  // What a marker that is recorded now comes behind, if its first piece came behind `first`.  The
  // stream has its client waits in order, so the work is also behind the newest of them.
  WaitPlaces BehindMarker(const WaitPlaces& first) const {
    WaitPlaces behind_marker;
    if (waits->over < waits->last) behind_marker.Add({waits, waits->last});
    behind_marker.Merge(first);
    return behind_marker;
  }
  // Work was issued: by CUDA's rules for the legacy stream it comes behind work of other streams,
  // and other streams' next work comes behind it.
  void OrderWithLegacy(ContextOrder& order) {
    if (!blocking) return;
    behind.Merge(legacy ? order.behind_blocking : order.behind_legacy);
    (legacy ? order.behind_legacy : order.behind_blocking).Merge(behind);
  }
};

}  // namespace rgpu::exec
