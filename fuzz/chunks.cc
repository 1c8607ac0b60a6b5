// What a tunnel's stream brings to the gateway of grpc:, in pieces of the size that the first byte
// says.
#include <algorithm>
#include <cstdlib>

#include "rgpu_server/gateway/http2/chunks.h"

namespace {

using rgpu::gateway::http2::ChunkReader;
using rgpu::gateway::http2::ChunkSink;

struct Sink final : ChunkSink {
  void Data(const uint8_t* data, size_t size) override {
    bytes += size;
    // The sanitizer sees what is touched outside of the piece.
    if (size > 0) sum += data[0] + data[size - 1];
  }
  void EndOfData() override { ++ends; }

  size_t bytes = 0;
  size_t ends = 0;
  unsigned int sum = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0];
  Sink sink;
  ChunkReader reader(&sink);
  for (size_t at = 1; at < size; at += piece) {
    const size_t some = std::min(piece, size - at);
    if (reader.Take(data + at, some) != ChunkReader::Fault::kNone) break;
  }
  // A chunk has a header, so fewer bytes and ends are handed on than bytes came in.
  if (sink.bytes + sink.ends > size) std::abort();
  return 0;
}
