// Where streams wait for the client, and what comes behind such places.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace rgpu::exec {

// Of one stream: host functions of ours in which it waits for bytes from the client, or for room.
// They are numbered from 1 and come to their turn in that order.
struct StreamStalls {
  uint64_t last = 0;              // of those that there are; guarded by the executor's lock
  std::atomic<uint64_t> over{0};  // up to here the stream has passed them
  // Guarded by the gate's stalled_mutex_.
  uint64_t since_ns = 0;  // 0: it waits in none
  uint64_t in = 0;        // the one it waits in
  bool aside = false;     // work was set aside for it
};

struct Stall {
  std::shared_ptr<StreamStalls> of;
  uint64_t number = 0;

  bool over() const { return of->over.load(std::memory_order_relaxed) >= number; }
  // With the gate's stalled_mutex_: the stream waits in it, or in one before it, and does so since
  // before `ns`.
  bool Stands(uint64_t ns) const {
    return of->since_ns != 0 && of->since_ns < ns && of->in <= number;
  }
};

// The last such place in each stream that something comes behind.
class Stalls {
 public:
  void Add(const Stall& stall) {
    const auto at = std::ranges::lower_bound(places_, stall.of.get(), {},
                                             [](const Stall& place) { return place.of.get(); });
    if (at == places_.end() || at->of != stall.of) {
      places_.insert(at, stall);
    } else {
      at->number = std::max(at->number, stall.number);
    }
  }
  void Merge(const Stalls& other) {
    if (other.places_.empty()) return;
    std::erase_if(places_, [](const Stall& place) { return place.over(); });
    for (const Stall& stall : other.places_) {
      if (!stall.over()) Add(stall);
    }
  }
  bool over() const {
    return std::ranges::all_of(places_, [](const Stall& place) { return place.over(); });
  }
  bool Stand(uint64_t ns) const {
    return std::ranges::any_of(places_, [ns](const Stall& place) { return place.Stands(ns); });
  }

 private:
  std::vector<Stall> places_;  // by stream: a session has up to 1024
};

}  // namespace rgpu::exec
