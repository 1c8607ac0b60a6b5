// SHM: the client's answer to the rings that came with WELCOME.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_common/native/wire/codec.h"

namespace rgpu::wire {

// The bits of the grant kShm. Bit 0: the rings came with WELCOME. Bit 1: the device's memory came
// after them. From kRingErrnoShift on: the errno with which the server failed to make the rings.
inline constexpr uint64_t kRingGranted = 1;
inline constexpr uint64_t kDeviceMemoryGranted = 2;
inline constexpr unsigned kRingErrnoShift = 8;

// The CUresult of the header is 0.
struct Shm {
  uint8_t accepted = 0;  // 0: both ends stay on the socket
  std::string reason;    // why the client did not accept
};

void Put(Writer& w, const Shm& m);
// Checks every field, and that no byte is left. False: refuse the peer.
bool Get(Reader& r, Shm* m);

}  // namespace rgpu::wire
