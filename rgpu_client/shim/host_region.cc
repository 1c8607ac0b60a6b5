#include "rgpu_client/shim/host_region.h"

#include <algorithm>
#include <cstring>

namespace rgpu::shim {
namespace {

// Calls visit(address, bytes) for each contiguous run of memory, until visit returns false.
template <typename Visit>
void ForEachPiece(const HostRegion& region, uint64_t offset, uint64_t bytes, Visit visit) {
  if (region.contiguous()) {
    visit(region.base + offset, bytes);
    return;
  }
  while (bytes > 0) {
    const uint64_t column = offset % region.width;
    const uint64_t count = std::min(bytes, region.width - column);
    if (!visit(region.base + region.RowAt(offset / region.width) + column, count)) return;
    offset += count;
    bytes -= count;
  }
}

}  // namespace

void MoveRows(const HostRegion& to, const HostRegion& from) {
  for (uint64_t row = 0; row < to.height; ++row) {
    std::memmove(to.base + to.RowAt(row), from.base + from.RowAt(row), to.width);
  }
}

transport::BulkState Land(const HostRegion& region, uint64_t offset, uint64_t bytes,
                          transport::FrameReader& reader) {
  // The application chose the address, so writes to it are guarded. Narrow rows are not: a guard
  // for each row would cost more than the copy.
  constexpr uint64_t kGuardedBytes = 4096;
  reader.set_guarded(region.contiguous() || region.width >= kGuardedBytes);
  auto answer = transport::BulkState::kDone;
  ForEachPiece(region, offset, bytes, [&](uint8_t* to, uint64_t count) {
    const transport::BulkState state = reader.ReadBulk(to, count, -1);
    if (state != transport::BulkState::kDone) answer = state;
    return state == transport::BulkState::kDone || state == transport::BulkState::kFault;
  });
  return answer;
}

std::vector<iovec> Pieces(const HostRegion& region, uint64_t offset, uint64_t bytes) {
  std::vector<iovec> pieces;
  ForEachPiece(region, offset, bytes, [&](uint8_t* at, uint64_t count) {
    pieces.push_back({at, count});
    return true;
  });
  return pieces;
}

void Pack(const HostRegion& region, uint64_t offset, uint64_t bytes, uint8_t* to) {
  ForEachPiece(region, offset, bytes, [&](uint8_t* from, uint64_t count) {
    std::memcpy(to, from, count);
    to += count;
    return true;
  });
}

}  // namespace rgpu::shim
