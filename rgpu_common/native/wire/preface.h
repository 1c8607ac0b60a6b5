// PREFACE: what a gateway tells the daemon about a client's connection, before it passes on the
// client's own bytes.
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
  std::string tenant;     // the tenant that the client's certificate names; "": none
  bool authenticated = false;
};

void Put(Writer& w, const Preface& m);
// Checks every field, and that no byte is left. Refuses a tenant without `authenticated`.
bool Get(Reader& r, Preface* m);

}  // namespace rgpu::wire
