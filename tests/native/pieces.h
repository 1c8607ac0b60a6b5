// Streams in pieces of random sizes, for tests that every byte arrives whatever fits when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rgpu_common/native/transport/transport.h"

namespace rgpu::testing {

struct PieceSizes {
  size_t largest = 200'000;
  // Two of three pieces are at most this long; 0: pieces of all lengths are equally frequent.
  size_t mostly = 0;
  // How long one wait for room or for bytes may take.
  int wait_ms = 5000;
};

// Bytes that look random, always the same for one seed.
std::vector<uint8_t> Noise(size_t bytes, uint32_t seed);

// Sends `data`. Each piece may consist of several parts.
void SendPieces(transport::Connection& connection, const std::vector<uint8_t>& data, uint32_t seed,
                const PieceSizes& sizes = {});

// Receives `expected`, and fails if other bytes arrive.
void ReceivePieces(transport::Connection& connection, const std::vector<uint8_t>& expected,
                   uint32_t seed, const PieceSizes& sizes = {});

}  // namespace rgpu::testing
