// SHM: the client's answer to a ring that came with WELCOME.
#pragma once

#include <cstdint>
#include <string>

#include "rgpu_common/native/wire/codec.h"

namespace rgpu::wire {

// The grant of kShm: the rings came with WELCOME; behind them the device's memory; or, above these
// bits, the errno with which the server failed to make them.
inline constexpr uint64_t kRingGranted = 1;
inline constexpr uint64_t kDeviceMemoryGranted = 2;
inline constexpr unsigned kRingErrnoShift = 8;

// The CUresult of the header is 0.
struct Shm {
  uint8_t accepted = 0;  // 0: both ends stay on the socket
  std::string reason;    // why not
};

void Put(Writer& w, const Shm& m);
// Checks everything and leaves nothing over; false: refuse the peer.
bool Get(Reader& r, Shm* m);

}  // namespace rgpu::wire
