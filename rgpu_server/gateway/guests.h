// Who is with a gateway, and who makes room where places are few.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "rgpu_server/gateway/crowds.h"

namespace rgpu::gateway {

// A guest shakes hands and is introduced to the daemon, which answers whom it lets in and sends
// away who says nothing of use in time.  Where there is no place one makes room who has no answer,
// or has had his last one: the longest there of the network that has the most of them, so that no
// network keeps others out.  Guests are connections, or calls on them.
class Guests {
 public:
  struct Bounds {
    unsigned int handshakes;  // at once
    unsigned int places;      // of all who are there
  };

  explicit Guests(const Bounds& bounds) : bounds_(bounds) {}

  // Returns the number of the guest whom `send_away` makes leave, 0: there is no place.
  // `*sent_away`: how many made room.  `send_away` is called at most once, by any thread, with a
  // lock that Enter, Introduce and Leave wait for.
  uint64_t Enter(std::function<void()> send_away, const std::string& network,
                 unsigned int* sent_away);
  // The guest has shaken hands: from now on, if it is given, this makes it leave.  False: it has
  // been sent away.
  bool Introduce(uint64_t guest, std::function<void()> send_away = {});
  // The daemon answers it, or does so no more.
  void SetKnown(uint64_t guest, bool known);
  void Leave(uint64_t guest);

 private:
  struct Guest {
    std::function<void()> send_away;
    std::string network;
  };

  bool SendAway(const std::string& newcomer, const Crowds& candidates);

  const Bounds bounds_;
  std::mutex mutex_;
  // By number, which is the order of arrival.
  std::map<uint64_t, Guest> guests_;
  Crowds greeting_;  // of them: those that shake hands
  Crowds unknown_;   // those, and those that the daemon does not answer
  uint64_t arrivals_ = 0;
};

}  // namespace rgpu::gateway
