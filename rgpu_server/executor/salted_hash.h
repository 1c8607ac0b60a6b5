// A hash for keys that a client chooses. With the identity, which std::hash is for numbers, it
// could choose keys that all fall into one bucket, and each look-up would go through all of them.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace rgpu::exec {

// Multiplies the halves of a key after adding secrets of this process to them. Any two keys get the
// same hash with a chance of 1 in 2^32, whatever the keys are (Thorup, "High Speed Hashing for
// Integers and Strings", pair-multiply-shift).
struct SaltedHash {
  size_t operator()(uint64_t key) const noexcept {
    const Salt& salt = TheSalt();
    return ((salt[0] + (key >> 32)) * (salt[1] + (key & UINT32_MAX)) + salt[2]) >> 32;
  }

 private:
  using Salt = std::array<uint64_t, 3>;

  static const Salt& TheSalt() {
    static const Salt salt = Draw();
    return salt;
  }
  static Salt Draw() {
    Salt salt{};
    if (getrandom(salt.data(), sizeof salt, 0) != static_cast<ssize_t>(sizeof salt)) std::abort();
    return salt;
  }
};

}  // namespace rgpu::exec
