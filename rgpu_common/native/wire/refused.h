// REFUSED: a server's answer that gives no session, with the reason.
#pragma once

#include <string>

#include "rgpu_common/native/wire/codec.h"

namespace rgpu::wire {

struct Refused {
  std::string sentence;  // the CUresult is the header's `status`
};

void Put(Writer& w, const Refused& m);
// Checks every field, and that no byte is left. False: refuse the peer.
bool Get(Reader& r, Refused* m);

}  // namespace rgpu::wire
