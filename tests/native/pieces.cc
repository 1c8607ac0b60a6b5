#include "tests/native/pieces.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/native/testing.h"

namespace rgpu::testing {
namespace {

using transport::IoResult;
using transport::IoState;

// The length of the next piece of a stream of which `left` bytes are still to come.
size_t Next(std::mt19937& random, size_t left, const PieceSizes& sizes) {
  const bool any = sizes.mostly == 0 || random() % 3 == 0;
  return std::min<size_t>(left, 1 + random() % (any ? sizes.largest : sizes.mostly));
}

}  // namespace

std::vector<uint8_t> Noise(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> noise(bytes);
  for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
  return noise;
}

void SendPieces(transport::Connection& connection, const std::vector<uint8_t>& data, uint32_t seed,
                const PieceSizes& sizes) {
  std::mt19937 random(seed);
  for (size_t sent = 0; sent < data.size();) {
    const size_t piece = Next(random, data.size() - sent, sizes);
    auto* at = const_cast<uint8_t*>(data.data() + sent);
    const size_t first = random() % (piece + 1);
    const iovec parts[3] = {{at, first}, {at, 0}, {at + first, piece - first}};
    const IoResult result = connection.TrySend(parts, 3);
    if (result.ok()) {
      sent += result.bytes;
      continue;
    }
    // The bytes that were not taken come again, in another piece.
    CHECK(result.state == IoState::kWouldBlock);
    CHECK(connection.Wait(transport::kWritable, sizes.wait_ms) != 0);
  }
}

void ReceivePieces(transport::Connection& connection, const std::vector<uint8_t>& expected,
                   uint32_t seed, const PieceSizes& sizes) {
  std::mt19937 random(seed);
  std::vector<uint8_t> got(sizes.largest);
  for (size_t at = 0; at < expected.size();) {
    const size_t piece = Next(random, expected.size() - at, sizes);
    const IoResult result = connection.Recv(got.data(), piece, sizes.wait_ms);
    CHECK(result.ok());
    CHECK(std::memcmp(got.data(), expected.data() + at, result.bytes) == 0);
    at += result.bytes;
  }
}

}  // namespace rgpu::testing
