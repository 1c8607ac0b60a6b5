// A hostile stream of blocks into a link that compresses.  First byte: how it is cut; second: how
// much is asked for.
#include <cstdlib>
#include <memory>
#include <vector>

#include "fuzz/memory_connection.h"
#include "rgpu_common/native/transport/zip/compressed_connection.h"

namespace {

using rgpu::transport::IoResult;
using rgpu::transport::IoState;

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const rgpu::transport::zip::Api* zstd = rgpu::transport::zip::LoadZstd(nullptr);
  if (size < 2 || zstd == nullptr) return 0;
  rgpu::transport::zip::Savings savings;
  rgpu::transport::zip::CompressedConnection connection(
      *zstd,
      std::make_unique<rgpu::fuzz::MemoryConnection>(data + 2, size - 2, size_t{data[0]} * data[0]),
      &savings);
  connection.StartBlocks();
  const size_t asked = 1 + size_t{data[1]} * data[1];
  const std::unique_ptr<uint8_t[]> to(new uint8_t[asked]);
  uint64_t got = 0;
  for (;;) {
    const IoResult result = connection.TryRecv(to.get(), asked);
    if (result.state == IoState::kWouldBlock) continue;
    if (!result.ok()) {
      Require(result.lost());
      Require(connection.Malformed() == (result.state == IoState::kFailed));
      Require(connection.TryRecv(to.get(), asked).state != IoState::kDone);
      break;
    }
    Require(result.bytes > 0 && result.bytes <= asked);
    got += result.bytes;
  }
  // The connection hands on no more bytes than it received plain, and unpacked from blocks.
  Require(got <= size + savings.received_plain);
  return 0;
}
