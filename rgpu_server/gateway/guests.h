// The guests of a gateway, and which guest is ended when all places are taken.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "rgpu_server/gateway/crowds.h"

namespace rgpu::gateway {

// A guest is a client's connection, or a call on a client's connection.  It has one of three
// states:
//
//   greeting  its handshake is not complete (a call has none, so it is introduced at once)
//   unknown   its handshake is complete, and the daemon does not answer it: not yet, or no more
//   known     the daemon answers it
//
// The number of guests, and of greeting guests, is bounded.  When a bound is reached and another
// guest comes, one guest makes room: it is ended.  If there are too many guests, this is the oldest
// greeting or unknown guest of the network that has the most of these.  If there are too many
// greeting guests, it is the same among the greeting guests.  So no network keeps others out, and a
// known guest is never ended.
class Guests {
 public:
  struct Bounds {
    unsigned int handshakes;  // the most greeting guests
    unsigned int places;      // the most guests
  };

  explicit Guests(const Bounds& bounds) : bounds_(bounds) {}

  // Adds a greeting guest and returns its number.  Returns 0 if no place is free and every guest is
  // known.  `*sent_away` becomes the number of guests that made room.  `send_away` must end the
  // guest.  It is called at most once, by any thread, which holds the lock of this object: it must
  // not call any function here.
  uint64_t Enter(std::function<void()> send_away, const std::string& network,
                 unsigned int* sent_away);
  // The guest's handshake is complete: it is unknown now.  `send_away`, if it is given, replaces
  // the function that ends the guest.  False: the guest has made room already.
  bool Introduce(uint64_t guest, std::function<void()> send_away = {});
  // Makes the guest known when the daemon answers it, and unknown when the daemon's answers end.
  void SetKnown(uint64_t guest, bool known);
  // Removes the guest.  Does nothing if it has made room already.
  void Leave(uint64_t guest);

 private:
  struct Guest {
    std::function<void()> send_away;
    std::string network;
  };

  // Ends one of the candidates.  `newcomer` is the network of the guest that comes.
  bool SendAway(const std::string& newcomer, const Crowds& candidates);

  const Bounds bounds_;
  std::mutex mutex_;
  // By number, which is the order of arrival.
  std::map<uint64_t, Guest> guests_;
  Crowds greeting_;  // the greeting guests
  Crowds unknown_;   // the greeting and the unknown guests
  uint64_t arrivals_ = 0;
};

}  // namespace rgpu::gateway
