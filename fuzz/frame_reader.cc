// A hostile stream into FrameReader.  First byte: how it is cut; second: how bulk is read.
#include <cstdlib>
#include <vector>

#include "fuzz/memory_connection.h"
#include "rgpu_common/native/transport/frame_io.h"

namespace {

using rgpu::transport::BulkState;
using rgpu::transport::FrameReader;
using rgpu::transport::ReadState;

void Require(bool holds) {
  if (!holds) std::abort();
}

// Reads the bulk in `mode`'s way and returns how many bytes are accounted for.
void TakeBulk(FrameReader* reader, unsigned mode, std::vector<uint8_t>* to) {
  const uint32_t bulk = reader->bulk_left();
  if (mode == 0) return;  // Next skips it
  if (mode == 1) {
    const BulkState state = reader->SkipBulk(-1);
    Require(state == BulkState::kClosed || reader->bulk_left() == 0);
    return;
  }
  to->resize(bulk);
  const size_t step = mode == 2 ? bulk : mode;
  for (size_t at = 0; at < bulk; at += step) {
    const size_t size = std::min<size_t>(step, bulk - at);
    if (reader->ReadBulk(to->data() + at, size, -1) != BulkState::kDone) return;
  }
  Require(reader->bulk_left() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  rgpu::fuzz::MemoryConnection connection(data + 2, size - 2, size_t{data[0]} * data[0]);
  FrameReader reader(&connection, 1);
  reader.set_guarded((data[1] & 0x80) != 0);
  std::vector<uint8_t> bulk;
  size_t consumed = 0;
  for (;;) {
    rgpu::wire::FrameHeader header;
    rgpu::wire::ByteView head;
    const ReadState state = reader.Next(&header, &head, -1);
    if (state != ReadState::kFrame) {
      Require(state == ReadState::kClosed || state == ReadState::kMalformed);
      Require(reader.Next(&header, &head, -1) == state);
      return 0;
    }
    Require(head.size == header.head_bytes() && head.size <= rgpu::wire::kMaxHeadBytes);
    Require(reader.bulk_left() == header.bulk_bytes);
    consumed += rgpu::wire::kHeaderBytes + head.size;
    Require(consumed <= size - 2);
    unsigned sum = 0;
    for (uint32_t i = 0; i < head.size; ++i) sum += head.data[i];  // all of it can be read
    if (sum == 0xFFFFFFFF) return 0;
    TakeBulk(&reader, data[1] & 0x7FU, &bulk);
  }
}
