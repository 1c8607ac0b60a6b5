// Chooses the guest that makes room when all places are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

namespace rgpu::gateway {

// Guests by their network. Every operation takes logarithmic time, because an attacker causes one
// with every connection.
class Crowds {
 public:
  size_t size() const { return size_; }
  void Come(uint64_t guest, const std::string& network);
  // Removes a guest. Does nothing if it is not there.
  void Go(uint64_t guest, const std::string& network);
  // Returns the oldest guest of the network with the most guests, 0 if there is no guest. Among
  // equal networks it chooses the newcomer's, since the newcomer adds to it, and else the network
  // with the oldest guest.
  uint64_t OfLargest(const std::string& newcomer) const;

 private:
  // Guests by their number, which is the order of arrival.
  using Crowd = std::set<uint64_t>;

  // Before a crowd changes it is taken out of `order_`, and after that put in again.
  void TakeOut(const Crowd& crowd);
  void PutIn(const Crowd& crowd);

  std::unordered_map<std::string, Crowd> crowds_;
  // For each size of a crowd, the oldest guests of the crowds of this size.
  std::map<size_t, std::set<uint64_t>> order_;
  size_t size_ = 0;
};

}  // namespace rgpu::gateway
