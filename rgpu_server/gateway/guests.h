// Who is with a gateway, and who makes room where places are few.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::gateway {

// A guest shakes hands and is introduced to the daemon, which answers whom it lets in and sends
// away who says nothing of use in time.  Where there is no place one makes room who has no answer,
// or has had his last one: the longest there of the network that has the most of them, so that no
// network keeps others out.
class Guests {
 public:
  struct Bounds {
    unsigned int handshakes;  // at once
    unsigned int places;      // of all who are there
  };

  explicit Guests(const Bounds& bounds) : bounds_(bounds) {}

  // Returns the number of the guest whom `socket` stands for, 0: there is no place.  `*sent_away`:
  // how many made room.
  uint64_t Enter(base::UniqueFd socket, const std::string& network, unsigned int* sent_away);
  // The guest has shaken hands: until Leave it is `connection` that is shut down to send it away.
  // False: it has been sent away.
  bool Introduce(uint64_t guest, transport::Connection* connection);
  // The daemon answers it, or does so no more.
  void SetKnown(uint64_t guest, bool known);
  void Leave(uint64_t guest);

 private:
  struct Guest {
    base::UniqueFd socket;
    std::string network;
    transport::Connection* connection = nullptr;  // null: it shakes hands
  };

  bool SendAway(const std::string& newcomer, const std::set<uint64_t>& candidates);

  const Bounds bounds_;
  std::mutex mutex_;
  // By number, which is the order of arrival.
  std::map<uint64_t, Guest> guests_;
  std::set<uint64_t> greeting_;  // of them: those that shake hands
  std::set<uint64_t> unknown_;   // those, and those that the daemon does not answer
  uint64_t arrivals_ = 0;
};

}  // namespace rgpu::gateway
