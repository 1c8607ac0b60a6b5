#include "rgpu_common/native/base/large_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace rgpu::base {

#ifdef __SSE2__

namespace {

// The smallest copy that is written past the caches. The reader of a smaller copy is likely to find
// it in a cache.
constexpr size_t kMuch = 32U << 20;
constexpr size_t kLine = 64;
// The copy takes lines from four pages in turn, because the memory serves several rows of cells at
// the same time. Measured: 10.5 GB/s; page after page gives 8.1, and writes through the caches give
// 6.4.
constexpr size_t kPage = 4096;
constexpr size_t kPages = 4;

// Copies one line. `to` must be aligned to a line; `from` need not be.
void WriteLine(uint8_t* to, const uint8_t* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

}  // namespace

void LargeCopy(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  if (bytes >= kMuch) {
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
    std::memcpy(out, in, head);
    out += head;
    in += head;
    bytes -= head;
    constexpr size_t kBlock = kPages * kPage;
    for (; bytes >= kBlock; bytes -= kBlock, out += kBlock, in += kBlock) {
      for (size_t at = 0; at < kPage; at += kLine) {
        for (size_t page = 0; page < kBlock; page += kPage) {
          WriteLine(out + page + at, in + page + at);
        }
      }
    }
    // Writes past the caches are not ordered with other writes. The fence makes them visible before
    // any later write, such as the one that tells another thread about the copy.
    _mm_sfence();
  }
  std::memcpy(out, in, bytes);
}

#else

void LargeCopy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace rgpu::base
