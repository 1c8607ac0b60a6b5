#include "rgpu_emu/device/lz4.h"

#include <cstddef>
#include <cstring>

namespace rgpu::emu {
namespace {

constexpr size_t kMinMatch = 4;
constexpr uint8_t kLongLength = 15;

// A length that does not fit its nibble continues in further bytes, up to the first that is not
// 255.
bool ReadLength(std::span<const uint8_t> in, size_t* at, size_t* length) {
  if (*length != kLongLength) return true;
  for (;;) {
    if (*at >= in.size()) return false;
    const uint8_t more = in[(*at)++];
    *length += more;
    if (more != 255) return true;
  }
}

}  // namespace

bool Lz4Decode(std::span<const uint8_t> in, std::span<uint8_t> out) {
  size_t at = 0;
  size_t done = 0;
  while (at < in.size()) {
    const uint8_t token = in[at++];
    size_t literals = token >> 4;
    if (!ReadLength(in, &at, &literals)) return false;
    if (literals > in.size() - at || literals > out.size() - done) return false;
    if (literals != 0) std::memcpy(out.data() + done, in.data() + at, literals);
    at += literals;
    done += literals;
    if (at == in.size()) break;  // the last sequence has no match
    if (in.size() - at < 2) return false;
    const size_t offset = static_cast<size_t>(in[at] | in[at + 1] << 8);
    at += 2;
    size_t match = token & 15;
    if (!ReadLength(in, &at, &match)) return false;
    match += kMinMatch;
    if (offset == 0 || offset > done || match > out.size() - done) return false;
    // Copied byte by byte, because a match may overlap its own output.
    for (size_t i = 0; i < match; ++i, ++done) out[done] = out[done - offset];
  }
  return done == out.size();
}

}  // namespace rgpu::emu
