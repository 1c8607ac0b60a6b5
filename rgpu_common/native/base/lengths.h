// Sums and products of lengths that a peer may have chosen: a result that does not fit is the
// greatest number, never a small one. And lengths in whole units.
#pragma once

#include <cstdint>

namespace rgpu::base {

inline uint64_t SaturatedSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

inline uint64_t SaturatedProduct(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// The least multiple of `unit` that is not less than `bytes`. It must fit.
inline uint64_t RoundedUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace rgpu::base
