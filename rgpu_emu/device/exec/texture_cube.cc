#include "rgpu_emu/device/exec/texture_cube.h"

#include <algorithm>
#include <cmath>

namespace rgpu::emu {
namespace {

// The guide's table: for each face the coordinate of the major axis, and those of s and t, each
// with its sign.
struct Axis {
  unsigned coordinate;
  double sign;
};

struct Face {
  Axis major;
  Axis s;
  Axis t;
};

constexpr unsigned kX = 0;
constexpr unsigned kY = 1;
constexpr unsigned kZ = 2;
constexpr Face kFaces[6] = {
    {{kX, 1}, {kZ, -1}, {kY, -1}}, {{kX, -1}, {kZ, 1}, {kY, -1}}, {{kY, 1}, {kX, 1}, {kZ, 1}},
    {{kY, -1}, {kX, 1}, {kZ, -1}}, {{kZ, 1}, {kX, 1}, {kY, -1}},  {{kZ, -1}, {kX, -1}, {kY, -1}},
};

double Along(const Axis& axis, const double* vector) { return axis.sign * vector[axis.coordinate]; }

uint32_t FaceOf(const double* direction) {
  const double x = std::fabs(direction[kX]);
  const double y = std::fabs(direction[kY]);
  const double z = std::fabs(direction[kZ]);
  const unsigned axis = z >= x && z >= y ? kZ : y >= x ? kY : kX;
  return 2 * axis + (std::signbit(direction[axis]) ? 1 : 0);
}

uint32_t Nearest(double point, uint32_t size) {
  const auto texel = static_cast<int64_t>(std::floor(point * size));
  return static_cast<uint32_t>(std::clamp<int64_t>(texel, 0, int64_t{size} - 1));
}

}  // namespace

FacePoint ProjectOnCube(const double* direction) {
  const uint32_t number = FaceOf(direction);
  const Face& face = kFaces[number];
  const double major = Along(face.major, direction);
  if (!(major > 0)) return {number, 0.5, 0.5};  // no direction
  return {number, (Along(face.s, direction) / major + 1) / 2,
          (Along(face.t, direction) / major + 1) / 2};
}

FacePoint ProjectChange(const double* direction, const double* change) {
  const uint32_t number = FaceOf(direction);
  const Face& face = kFaces[number];
  const double major = Along(face.major, direction);
  if (!(major > 0)) return {number, 0, 0};
  const double by = Along(face.major, change);
  const auto moved = [&](const Axis& axis) {
    return (major * Along(axis, change) - Along(axis, direction) * by) / (major * major) / 2;
  };
  return {number, moved(face.s), moved(face.t)};
}

FaceTexel AcrossTheEdge(uint32_t face, int64_t x, int64_t y, uint32_t size) {
  // The middle of the texel, on the plane of its own face, is a direction that meets the next face.
  const Face& own = kFaces[face];
  double direction[3] = {};
  direction[own.major.coordinate] = own.major.sign;
  direction[own.s.coordinate] = own.s.sign * ((2 * static_cast<double>(x) + 1) / size - 1);
  direction[own.t.coordinate] = own.t.sign * ((2 * static_cast<double>(y) + 1) / size - 1);
  const FacePoint point = ProjectOnCube(direction);
  return {point.face, Nearest(point.s, size), Nearest(point.t, size)};
}

}  // namespace rgpu::emu
