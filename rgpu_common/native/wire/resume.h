// RESUME and RESUMED: a new link for a lane whose connection was cut, or that moves.
#pragma once

#include <array>
#include <cstdint>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

enum class LaneName : uint8_t { kCommand = 0, kControl = 1 };
inline constexpr uint8_t kLanes = 2;
inline constexpr uint8_t kMaxLinks = 16;
// REFUSED with this status: not now or not so, but another RESUME may succeed.
inline constexpr int32_t kTryAgain = 600;  // CUDA_ERROR_NOT_READY

struct Resume {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
  LaneName lane = LaneName::kCommand;
  uint8_t link = 0;       // of a striped lane
  uint32_t epoch = 1;     // counts the links of the lane, from 1
  uint64_t received = 0;  // what the client's reader has taken of the worker's stream
};

struct Resumed {
  uint64_t received = 0;  // and the worker's of the client's
};

void Put(Writer& w, const Resume& m);
bool Get(Reader& r, Resume* m);
void Put(Writer& w, const Resumed& m);
bool Get(Reader& r, Resumed* m);

}  // namespace rgpu::wire
