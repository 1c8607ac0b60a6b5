// Fields that several messages share. Those of the handshake are read before the peer is
// authenticated, so every length has a bound of its own.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

struct Band {
  uint64_t base = 0;
  uint64_t size = 0;
  bool operator==(const Band&) const = default;
};

// The bits of the grant kShm. Bit 0: the rings came with WELCOME. Bit 1: the device's memory came
// after them. From kRingErrnoShift on: the errno with which the server failed to make the rings.
inline constexpr uint64_t kRingGranted = 1;
inline constexpr uint64_t kDeviceMemoryGranted = 2;
inline constexpr unsigned kRingErrnoShift = 8;

// A wish of a client, or a server's grant, which has the same key as its wish.
struct Wish {
  uint16_t key = 0;
  uint64_t value = 0;
  bool operator==(const Wish&) const = default;
};

// The Get functions check every bound. False: refuse the peer.
void PutText(Writer& w, std::string_view text);
// A string of clean text (text.h).
bool GetText(Reader& r, std::string* text, uint32_t limit);
bool GetMagic(Reader& r);
bool GetZero(Reader& r);
bool GetBytes(Reader& r, std::vector<uint8_t>* bytes, uint32_t limit);
// A string of any bytes.
bool GetString(Reader& r, std::string* text, uint32_t limit);
// A string for a log: what is not clean text is replaced.
bool GetLine(Reader& r, std::string* text, uint32_t limit);
// Strings, each with a NUL behind it, that are together one byte string of at most `limit` bytes.
void PutStrings(Writer& w, const std::vector<std::string>& strings);
bool GetStrings(Reader& r, std::vector<std::string>* strings, uint32_t limit);
// Items of lists. The message bounds their length.
void PutItem(Writer& w, uint32_t item);
void PutItem(Writer& w, const std::string& item);
void PutItem(Writer& w, const std::vector<uint8_t>& item);
bool GetItem(Reader& r, uint32_t* item);
bool GetItem(Reader& r, std::string* item);
bool GetItem(Reader& r, std::vector<uint8_t>* item);
void PutBand(Writer& w, const Band& band);
bool GetBand(Reader& r, Band* band);
void PutBands(Writer& w, const std::vector<Band>& bands);
bool GetBands(Reader& r, std::vector<Band>* bands);
void PutWishes(Writer& w, const std::vector<Wish>& wishes);
bool GetWishes(Reader& r, std::vector<Wish>* wishes);
// The value of a grant, 0 if there is none.
uint64_t Granted(const std::vector<Wish>& grants, WishKey key);

// Compares in constant time, so that a peer cannot guess a secret byte by byte.
bool SameSecret(const std::array<uint8_t, kSecretBytes>& a,
                const std::array<uint8_t, kSecretBytes>& b);

template <size_t kSize>
bool GetExactly(Reader& r, std::array<uint8_t, kSize>* to) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size != kSize) return false;
  std::memcpy(to->data(), bytes.data, kSize);
  return true;
}

// Rows travel as one byte string. Every row has `row_bytes` bytes, which `put` writes and `get`
// reads.
template <typename T, typename PutRow>
void PutRows(Writer& w, const std::vector<T>& rows, size_t row_bytes, PutRow put) {
  w.Put(static_cast<uint32_t>(rows.size() * row_bytes));
  for (const T& row : rows) put(w, row);
}

template <typename T, typename GetRow>
bool GetRows(Reader& r, std::vector<T>* rows, size_t row_bytes, uint32_t limit, GetRow get) {
  ByteView bytes;
  r.Get(&bytes);
  if (!r.ok() || bytes.size % row_bytes != 0 || bytes.size / row_bytes > limit) return false;
  rows->assign(bytes.size / row_bytes, T{});
  Reader inner(bytes.data, bytes.size);
  for (T& row : *rows) get(inner, &row);
  return inner.done();
}

}  // namespace rgpu::wire
