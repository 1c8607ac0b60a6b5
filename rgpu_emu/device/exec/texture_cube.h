// Cubemaps: which texel of which face a direction meets ("Cubemap Textures" in the CUDA programming
// guide).
#pragma once

#include <cstdint>

namespace rgpu::emu {

// A point of a face, in [0, 1], and its face: +x, -x, +y, -y, +z, -z.
struct FacePoint {
  uint32_t face;
  double s;
  double t;
};

// The axis of the greatest magnitude chooses the face; of equal ones z, then y.
FacePoint ProjectOnCube(const double* direction);

// Returns how the point moves if the direction moves by `change`, on the face of `direction`.
FacePoint ProjectChange(const double* direction, const double* change);

// A texel of a face, by its column and row.
struct FaceTexel {
  uint32_t face;
  uint32_t x;
  uint32_t y;
};

// Returns the texel of a neighbouring face where (x, y) is at most one texel outside its own, on
// one axis.
FaceTexel AcrossTheEdge(uint32_t face, int64_t x, int64_t y, uint32_t size);

}  // namespace rgpu::emu
