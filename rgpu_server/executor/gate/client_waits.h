// Client waits: places in a stream at which the stream waits for the client.  Work *comes behind* a
// client wait if CUDA's order of streams lets the work run only after the stream has passed it.
//
// A client wait is a host function of the worker's in a stream: the stream waits in it for bytes
// from the client, or for room to send bytes to the client.  The client waits of one stream are
// numbered from 1, and the stream reaches them in that order.
//
// A wait for a value in memory (cuStreamWaitValue32) counts as a client wait: a program writes the
// value when it likes.  Each has a ClientWaits of its own, with the one number 1.  A graph waits
// for values and for the client in one place, that of its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rgpu::exec {

// The client waits of one stream.  Only GateState changes the fields.
struct ClientWaits {
  uint64_t last = 0;      // the number of the newest client wait in the stream
  uint64_t over = 0;      // the stream has passed the client waits up to this one
  uint64_t in = 0;        // the client wait in which the stream stands now
  uint64_t since_ns = 0;  // since when; 0: the stream does not stand in a client wait
  // Of a wait for a value: its stream, which may be gone. Null: these are waits for the client, and
  // of graphs.
  const void* for_value_in = nullptr;
  bool for_value = false;  // the wait in which the stream stands now is for a value
};

// One client wait.
struct WaitPlace {
  std::shared_ptr<ClientWaits> of;
  uint64_t number = 0;

  bool over() const { return of->over >= number; }
  // True if the stream stands in this client wait, or in an earlier one, since before `ns`.
  bool Stands(uint64_t ns) const {
    return of->since_ns != 0 && of->since_ns < ns && of->in <= number;
  }
};

// The client waits that some work comes behind, one per stream: the newest.  While one of these
// streams stands in its wait, the work cannot be running.
//
// A place must be in the set only if the order is certain.  A missing place is safe: the work then
// only looks as if it could run.
class WaitPlaces {
 public:
  void Add(const WaitPlace& added) {
    const auto same = [&](const WaitPlace& place) { return place.of == added.of; };
    const auto found = std::ranges::find_if(places_, same);
    if (found != places_.end()) {
      found->number = std::max(found->number, added.number);
      return;
    }
    if (places_.size() == kMost) DropOver();
    if (places_.size() < kMost) places_.push_back(added);
  }
  void Merge(const WaitPlaces& other) {
    if (other.places_.empty()) return;
    DropOver();
    for (const WaitPlace& place : other.places_) {
      if (!place.over()) Add(place);
    }
  }
  // True if work behind these places is also behind all places of `other` that are not over.
  bool Covers(const WaitPlaces& other) const {
    return std::ranges::all_of(other.places_, [this](const WaitPlace& wanted) {
      return wanted.over() || std::ranges::any_of(places_, [&](const WaitPlace& place) {
               return place.of == wanted.of && place.number >= wanted.number;
             });
    });
  }
  // True if one of the places is not over.
  bool AnyLeft() const {
    return std::ranges::any_of(places_, [](const WaitPlace& place) { return !place.over(); });
  }
  bool HasOneOf(const ClientWaits* waits) const {
    return std::ranges::any_of(places_,
                               [=](const WaitPlace& place) { return place.of.get() == waits; });
  }
  // True if at least one of the streams stands in its wait since before `ns`.
  bool Stand(uint64_t ns) const {
    return std::ranges::any_of(places_, [ns](const WaitPlace& place) { return place.Stands(ns); });
  }

 private:
  static constexpr size_t kMost = 16;

  void DropOver() {
    std::erase_if(places_, [](const WaitPlace& place) { return place.over(); });
  }

  std::vector<WaitPlace> places_;
};

}  // namespace rgpu::exec
