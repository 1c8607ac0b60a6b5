#include "rgpu_server/gateway/guests.h"

#include <sys/socket.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace rgpu::gateway {

uint64_t Guests::Enter(base::UniqueFd socket, const std::string& network, unsigned int* sent_away) {
  const std::lock_guard lock(mutex_);
  *sent_away = 0;
  if (greeting_.size() >= bounds_.handshakes) *sent_away += SendAway(network, greeting_) ? 1 : 0;
  if (guests_.size() >= bounds_.places) {
    if (!SendAway(network, unknown_)) return 0;
    ++*sent_away;
  }
  ++arrivals_;
  greeting_.insert(arrivals_);
  unknown_.insert(arrivals_);
  guests_.emplace(arrivals_, Guest{std::move(socket), network});
  return arrivals_;
}

bool Guests::Introduce(uint64_t guest, transport::Connection* connection) {
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return false;
  greeting_.erase(guest);
  found->second.connection = connection;
  found->second.socket.reset();
  return true;
}

void Guests::SetKnown(uint64_t guest, bool known) {
  const std::lock_guard lock(mutex_);
  if (known) {
    unknown_.erase(guest);
  } else if (guests_.contains(guest)) {
    unknown_.insert(guest);
  }
}

void Guests::Leave(uint64_t guest) {
  const std::lock_guard lock(mutex_);
  greeting_.erase(guest);
  unknown_.erase(guest);
  guests_.erase(guest);
}

// With the lock.  False: there are no candidates.
bool Guests::SendAway(const std::string& newcomer, const std::set<uint64_t>& candidates) {
  struct Crowd {
    size_t size = 0;
    uint64_t longest_there = 0;
  };
  if (candidates.empty()) return false;
  std::unordered_map<std::string_view, Crowd> crowds;
  for (const uint64_t number : candidates) {
    Crowd& crowd = crowds[guests_.at(number).network];
    if (crowd.size++ == 0) crowd.longest_there = number;
  }
  // The newcomer is one of its crowd.
  if (const auto own = crowds.find(newcomer); own != crowds.end()) ++own->second.size;
  const auto largest = std::ranges::max_element(crowds, {}, [](const auto& entry) {
    return std::pair(entry.second.size, UINT64_MAX - entry.second.longest_there);
  });
  const auto leaves = guests_.find(largest->second.longest_there);
  const Guest& guest = leaves->second;
  if (guest.connection != nullptr) guest.connection->Shutdown();
  if (guest.socket.valid()) shutdown(guest.socket.get(), SHUT_RDWR);
  greeting_.erase(leaves->first);
  unknown_.erase(leaves->first);
  guests_.erase(leaves);
  return true;
}

}  // namespace rgpu::gateway
