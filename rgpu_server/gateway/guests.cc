#include "rgpu_server/gateway/guests.h"

#include <utility>

namespace rgpu::gateway {

uint64_t Guests::Enter(std::function<void()> send_away, const std::string& network,
                       unsigned int* sent_away) {
  const std::lock_guard lock(mutex_);
  *sent_away = 0;
  if (greeting_.size() >= bounds_.handshakes) *sent_away += SendAway(network, greeting_) ? 1 : 0;
  if (guests_.size() >= bounds_.places) {
    if (!SendAway(network, unknown_)) return 0;
    ++*sent_away;
  }
  ++arrivals_;
  greeting_.Come(arrivals_, network);
  unknown_.Come(arrivals_, network);
  guests_.emplace(arrivals_, Guest{std::move(send_away), network});
  return arrivals_;
}

bool Guests::Introduce(uint64_t guest, std::function<void()> send_away) {
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return false;
  greeting_.Go(guest, found->second.network);
  if (send_away) found->second.send_away = std::move(send_away);
  return true;
}

void Guests::SetKnown(uint64_t guest, bool known) {
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return;
  if (known) {
    unknown_.Go(guest, found->second.network);
  } else {
    unknown_.Come(guest, found->second.network);
  }
}

void Guests::Leave(uint64_t guest) {
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return;
  greeting_.Go(guest, found->second.network);
  unknown_.Go(guest, found->second.network);
  guests_.erase(found);
}

// With the lock.  False: there are no candidates.
bool Guests::SendAway(const std::string& newcomer, const Crowds& candidates) {
  const uint64_t number = candidates.OfLargest(newcomer);
  if (number == 0) return false;
  const auto leaves = guests_.find(number);
  leaves->second.send_away();
  greeting_.Go(number, leaves->second.network);
  unknown_.Go(number, leaves->second.network);
  guests_.erase(leaves);
  return true;
}

}  // namespace rgpu::gateway
