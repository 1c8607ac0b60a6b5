// For the hooks by which Python's tests compare their codecs with the generated C++ codecs.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "rgpu_common/native/wire/codec.h"

// Reads a Message from `head` and writes it to `out`. Returns the number of bytes written, -1 if
// `head` is malformed, or -3 if `capacity` is too small.
template <typename Message>
int64_t RoundTrip(const uint8_t* head, size_t bytes, uint8_t* out, size_t capacity) {
  Message message{};
  rgpu::wire::Reader reader(head, bytes);
  if (!Get(reader, &message)) return -1;
  std::vector<uint8_t> encoded;
  rgpu::wire::Writer writer(&encoded);
  Put(writer, message);
  if (encoded.size() > capacity) return -3;
  if (!encoded.empty()) std::memcpy(out, encoded.data(), encoded.size());
  return static_cast<int64_t>(encoded.size());
}
