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

// The last such place in each stream that something comes behind, for certain: it cannot be running
// while one of these streams stands there.  Places that are left out only make it look busier.
class Stalls {
 public:
  void Add(const Stall& stall) {
    const auto same = [&](const Stall& place) { return place.of == stall.of; };
    const auto found = std::ranges::find_if(places_, same);
    if (found != places_.end()) {
      found->number = std::max(found->number, stall.number);
      return;
    }
    if (places_.size() == kMost) DropOver();
    if (places_.size() < kMost) places_.push_back(stall);
  }
  void Merge(const Stalls& other) {
    if (other.places_.empty()) return;
    DropOver();
    for (const Stall& stall : other.places_) {
      if (!stall.over()) Add(stall);
    }
  }
  // Whether nothing that is to come is behind `other`, and not behind this.
  bool Covers(const Stalls& other) const {
    return std::ranges::all_of(other.places_, [this](const Stall& stall) {
      return stall.over() || std::ranges::any_of(places_, [&](const Stall& place) {
               return place.of == stall.of && place.number >= stall.number;
             });
    });
  }
  bool In(const StreamStalls* stream) const {
    return std::ranges::any_of(places_,
                               [=](const Stall& place) { return place.of.get() == stream; });
  }
  bool over() const {
    return std::ranges::all_of(places_, [](const Stall& place) { return place.over(); });
  }
  bool Stand(uint64_t ns) const {
    return std::ranges::any_of(places_, [ns](const Stall& place) { return place.Stands(ns); });
  }

 private:
  static constexpr size_t kMost = 16;

  void DropOver() {
    std::erase_if(places_, [](const Stall& place) { return place.over(); });
  }

  std::vector<Stall> places_;
};

}  // namespace rgpu::exec
