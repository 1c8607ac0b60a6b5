// HELLO: the first message of a client.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/fields.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

inline constexpr uint32_t kMaxTokenBytes = 8192;  // a bearer token
// A HELLO of this minor or later ends with wishes.
inline constexpr uint16_t kWishesMinor = 1;
// The WELCOME to a HELLO of this minor or later may end with grants.
inline constexpr uint16_t kGrantsMinor = 2;

struct OpcodeHash {
  uint16_t opcode = 0;
  uint32_t layout_hash = 0;
  bool operator==(const OpcodeHash&) const = default;
};

struct Hello {
  uint16_t major = kWireMajor;
  uint16_t minor = kWireMinor;
  std::string release;
  std::string token;
  std::string lease_key;
  std::string tenant;
  std::string container;
  std::string program;
  uint32_t pid = 0;
  int32_t device = -1;        // -1: any
  uint64_t memory_bytes = 0;  // 0: the server's default
  uint32_t share_request_ppm = 0;
  uint32_t share_limit_ppm = 0;
  uint64_t resume_session = 0;
  uint64_t resume_seq = 0;
  std::vector<Band> device_bands;
  std::vector<Band> pinned_bands;
  std::vector<OpcodeHash> opcodes;
  std::vector<Wish> wishes;  // only with a `minor` of at least kWishesMinor
};

void Put(Writer& w, const Hello& m);
// Checks every field, and that no byte is left. False: refuse the peer. Of a Hello with another
// `major`, only the fields magic, major and minor are read.
bool Get(Reader& r, Hello* m);

}  // namespace rgpu::wire
