// ATTACH: makes a connection the control lane of a session.
#pragma once

#include <array>
#include <cstdint>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

struct Attach {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
};

void Put(Writer& w, const Attach& m);
// Checks every field, and that no byte is left. False: refuse the peer.
bool Get(Reader& r, Attach* m);

}  // namespace rgpu::wire
