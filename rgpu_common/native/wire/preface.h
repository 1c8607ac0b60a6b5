// PREFACE: what a gateway says of a connection that it carries, before the client's own bytes.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

inline constexpr uint32_t kMaxTransportBytes = 16;

struct Preface {
  std::string transport;  // "tls", "ucx" or "grpc"
  std::string peer;       // "1.2.3.4:5"
  std::string tenant;     // whom the certificate names; "" for nobody
  bool authenticated = false;
};

void Put(Writer& w, const Preface& m);
// Checks everything and leaves nothing over.  A tenant that nobody vouches for is refused.
bool Get(Reader& r, Preface* m);

}  // namespace rgpu::wire
