#include "rgpu_client/shim/tables/imports.h"

namespace rgpu::shim {

uint64_t Imports::Again(const std::string& token, uint32_t context) {
  for (auto& [base, import] : by_base_) {
    if (import.token != token || import.context != context) continue;
    ++import.uses;
    return base;
  }
  return 0;
}

void Imports::Add(uint64_t base, const std::string& token, uint32_t context) {
  by_base_[base] = {token, context, 1};
}

bool Imports::Drop(uint64_t base) {
  const auto found = by_base_.find(base);
  if (found == by_base_.end()) return true;
  if (--found->second.uses != 0) return false;
  by_base_.erase(found);
  return true;
}

void Imports::DropContext(uint32_t context) {
  const std::lock_guard lock(calls_);
  std::erase_if(by_base_, [&](const auto& entry) { return entry.second.context == context; });
}

}  // namespace rgpu::shim
