#include "rgpu_common/native/transport/lane/record_writer.h"

#include <algorithm>
#include <array>

namespace rgpu::transport {

IoResult RecordWriter::Write(Connection& link, const iovec* parts, int count, size_t* sent) {
  std::array<iovec, kMaxParts + 1> all;
  int used = 0;
  if (header_left_ > 0) {
    auto* header = reinterpret_cast<uint8_t*>(&header_) + kRecordHeaderBytes - header_left_;
    all[static_cast<size_t>(used++)] = {header, header_left_};
  }
  uint64_t left = left_;
  for (int i = 0; i < count && left > 0 && used <= kMaxParts; ++i) {
    const size_t here = std::min<uint64_t>(parts[i].iov_len, left);
    if (here > 0) all[static_cast<size_t>(used++)] = {parts[i].iov_base, here};
    left -= here;
  }
  const IoResult result = link.TrySend(all.data(), used);
  if (!result.ok()) return result;
  const size_t of_header = std::min(result.bytes, header_left_);
  *sent = result.bytes - of_header;
  left_ -= *sent;
  header_left_ -= of_header;
  return result;
}

}  // namespace rgpu::transport
