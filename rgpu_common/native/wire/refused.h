// REFUSED: why there is no session.
#pragma once

#include <string>

#include "rgpu_common/native/wire/codec.h"

namespace rgpu::wire {

struct Refused {
  std::string sentence;  // the CUresult is the header's `status`
};

void Put(Writer& w, const Refused& m);
// Checks everything and leaves nothing over; false: refuse the peer.
bool Get(Reader& r, Refused* m);

}  // namespace rgpu::wire
