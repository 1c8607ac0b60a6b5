#include "rgpu_server/gateway/crowds.h"

namespace rgpu::gateway {

void Crowds::Come(uint64_t guest, const std::string& network) {
  Crowd& crowd = crowds_[network];
  TakeOut(crowd);
  if (crowd.insert(guest).second) ++size_;
  PutIn(crowd);
}

void Crowds::Go(uint64_t guest, const std::string& network) {
  const auto found = crowds_.find(network);
  if (found == crowds_.end()) return;
  TakeOut(found->second);
  size_ -= found->second.erase(guest);
  PutIn(found->second);
  if (found->second.empty()) crowds_.erase(found);
}

uint64_t Crowds::OfLargest(const std::string& newcomer) const {
  if (size_ == 0) return 0;
  const auto& [largest, longest_there] = *order_.rbegin();
  const auto own = crowds_.find(newcomer);
  const bool of_own = own != crowds_.end() && own->second.size() == largest;
  return of_own ? *own->second.begin() : *longest_there.begin();
}

void Crowds::TakeOut(const Crowd& crowd) {
  if (crowd.empty()) return;
  const auto found = order_.find(crowd.size());
  found->second.erase(*crowd.begin());
  if (found->second.empty()) order_.erase(found);
}

void Crowds::PutIn(const Crowd& crowd) {
  if (!crowd.empty()) order_[crowd.size()].insert(*crowd.begin());
}

}  // namespace rgpu::gateway
