// RESUME and RESUMED: they attach a new link to a lane whose link was cut, or that changes its
// path.
#pragma once

#include <array>
#include <cstdint>

#include "rgpu_common/native/wire/codec.h"
#include "rgpu_common/native/wire/frame.h"

namespace rgpu::wire {

enum class LaneName : uint8_t { kCommand = 0, kControl = 1 };
inline constexpr uint8_t kLanes = 2;
inline constexpr uint8_t kMaxLinks = 16;
// The status of a REFUSED after which another RESUME may succeed.
inline constexpr int32_t kTryAgain = 600;  // CUDA_ERROR_NOT_READY

struct Resume {
  uint64_t session = 0;
  std::array<uint8_t, kSecretBytes> secret{};
  LaneName lane = LaneName::kCommand;
  uint8_t link = 0;       // the place of the link in a striped lane
  uint32_t epoch = 1;     // the number of this link of the lane, from 1
  uint64_t received = 0;  // bytes of the worker's stream that the client's reader has taken
};

struct Resumed {
  uint64_t received = 0;  // bytes of the client's stream that the worker's reader has taken
};

void Put(Writer& w, const Resume& m);
bool Get(Reader& r, Resume* m);
void Put(Writer& w, const Resumed& m);
bool Get(Reader& r, Resumed* m);

}  // namespace rgpu::wire
