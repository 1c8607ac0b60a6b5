// Tests of packing parameters and of checking the geometry of launches.
#include <string.h>

#include "rgpu_client/shim/launch.h"
#include "rgpu_client/shim/tests/check.h"

namespace {

using namespace rgpu::shim;

// A function of (u32, f64): alignment leaves a gap before the second parameter.
void Describe(Function* function) {
  function->params = {{0, 4}, {8, 8}};
  function->param_bytes = 16;
  function->has_layout = true;
  function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 256;
  function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = 1024;
}

LaunchLimits Limits() {
  LaunchLimits limits;
  limits.grid = {2147483647, 65535, 65535};
  limits.block = {1024, 1024, 64};
  limits.threads = 1024;
  limits.shared_bytes = 49152;
  limits.registers = 65536;
  return limits;
}

}  // namespace

TEST(ParametersLandAtTheirOffsets) {
  Function function;
  Describe(&function);
  uint32_t a = 7;
  double b = 2.5;
  void* params[] = {&a, &b};
  std::vector<uint8_t> buffer(3, 0xff);
  PackedParams packed;
  CHECK(PackParams(function, params, nullptr, &buffer, &packed) == CUDA_SUCCESS);
  CHECK(packed.bytes == 16);
  const auto* bytes = static_cast<const uint8_t*>(packed.data);
  CHECK(memcmp(bytes, &a, 4) == 0 && memcmp(bytes + 8, &b, 8) == 0 && bytes[4] == 0);
}

TEST(ExtraFormIsTakenWhereItLies) {
  Function function;
  Describe(&function);
  uint8_t block[20] = {1, 2, 3};
  size_t bytes = sizeof(block);
  void* extra[] = {reinterpret_cast<void*>(1), block, reinterpret_cast<void*>(2), &bytes, nullptr};
  std::vector<uint8_t> buffer;
  PackedParams packed;
  CHECK(PackParams(function, nullptr, extra, &buffer, &packed) == CUDA_SUCCESS);
  CHECK(packed.data == block && packed.bytes == 16);  // the length of the layout, not of `block`
  bytes = 15;
  CHECK(PackParams(function, nullptr, extra, &buffer, &packed) == CUDA_ERROR_INVALID_VALUE);
  extra[0] = reinterpret_cast<void*>(3);
  CHECK(PackParams(function, nullptr, extra, &buffer, &packed) == CUDA_ERROR_INVALID_VALUE);
}

TEST(WrongParametersAreRefused) {
  Function function;
  Describe(&function);
  std::vector<uint8_t> buffer;
  PackedParams packed;
  void* one[] = {nullptr, nullptr};
  CHECK(PackParams(function, nullptr, nullptr, &buffer, &packed) == CUDA_ERROR_INVALID_VALUE);
  CHECK(PackParams(function, one, nullptr, &buffer, &packed) == CUDA_ERROR_INVALID_VALUE);
  CHECK(PackParams(function, one, one, &buffer, &packed) == CUDA_ERROR_INVALID_VALUE);
  function.has_layout = false;
  CHECK(PackParams(function, one, nullptr, &buffer, &packed) == CUDA_ERROR_INVALID_IMAGE);
  Function none;
  none.has_layout = true;
  CHECK(PackParams(none, nullptr, nullptr, &buffer, &packed) == CUDA_SUCCESS && packed.bytes == 0);
}

TEST(GeometryIsCheckedAtTheCall) {
  Function function;
  Describe(&function);
  const LaunchLimits limits = Limits();
  CHECK(CheckGeometry({{1, 1, 1}, {256, 1, 1}, 0}, function, limits) == CUDA_SUCCESS);
  CHECK(CheckGeometry({{0, 1, 1}, {1, 1, 1}, 0}, function, limits) == CUDA_ERROR_INVALID_VALUE);
  CHECK(CheckGeometry({{1, 65536, 1}, {1, 1, 1}, 0}, function, limits) == CUDA_ERROR_INVALID_VALUE);
  CHECK(CheckGeometry({{1, 1, 1}, {1, 1, 65}, 0}, function, limits) == CUDA_ERROR_INVALID_VALUE);
  CHECK(CheckGeometry({{1, 1, 1}, {1024, 2, 1}, 0}, function, limits) == CUDA_ERROR_INVALID_VALUE);
}

TEST(AnErrorSaysWhyABlockHasTooManyThreads) {
  Function function;
  Describe(&function);
  const LaunchLimits limits = Limits();
  const Geometry wide = {{1, 1, 1}, {512, 1, 1}, 0};
  function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 128;  // 512 * 128: all registers of a block
  CHECK(CheckGeometry(wide, function, limits) == CUDA_ERROR_INVALID_VALUE);
  function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 129;  // a warp gets 136 for each thread
  CHECK(CheckGeometry(wide, function, limits) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

TEST(SharedMemoryMayBeRaisedByTheAttribute) {
  Function function;
  Describe(&function);
  const LaunchLimits limits = Limits();
  CHECK(CheckGeometry({{1, 1, 1}, {1, 1, 1}, 48128}, function, limits) == CUDA_SUCCESS);
  CHECK(CheckGeometry({{1, 1, 1}, {1, 1, 1}, 48129}, function, limits) == CUDA_ERROR_INVALID_VALUE);
  function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 90000;
  CHECK(CheckGeometry({{1, 1, 1}, {1, 1, 1}, 90000}, function, limits) == CUDA_SUCCESS);
  CHECK(CheckGeometry({{1, 1, 1}, {1, 1, 1}, 90001}, function, limits) == CUDA_ERROR_INVALID_VALUE);
}
