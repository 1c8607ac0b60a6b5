// Handlers: tensor maps. The driver only computes bytes: a kernel that uses them reads no memory
// that it could not read without them.
#include <cstring>

#include "gen/dispatch.gen.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

namespace {

constexpr uint32_t kMostDimensions = 5;

// The lists that all kinds of maps have, and their copies in the right alignment.
struct Lists {
  cuuint64_t sizes[kMostDimensions] = {};
  cuuint64_t strides[kMostDimensions] = {};
  cuuint32_t element_strides[kMostDimensions] = {};
};

// Copies a list of exactly `count` elements.
template <typename T>
bool Take(wire::ByteView bytes, uint32_t count, T* list) {
  if (bytes.size != count * sizeof(T)) return false;
  if (bytes.size != 0) std::memcpy(list, bytes.data, bytes.size);
  return true;
}

template <typename Request>
bool TakeLists(const Request& request, uint32_t least, Lists* lists) {
  const uint32_t rank = request.rank;
  return rank >= least && rank <= kMostDimensions && Take(request.sizes, rank, lists->sizes) &&
         Take(request.strides, rank - 1, lists->strides) &&
         Take(request.element_strides, rank, lists->element_strides);
}

// The bytes of the reply, until this thread makes the next map. cuda.h aligns a map to 128 bytes.
struct alignas(128) AlignedMap {
  CUtensorMap map;
};
thread_local AlignedMap t_made;

wire::ByteView Made() { return wire::Bytes(&t_made.map, sizeof t_made.map); }

void* Address(uint64_t dptr) { return reinterpret_cast<void*>(dptr); }

}  // namespace

CUresult Run(Executor& executor, const Command&, const rgpuTensorMapTiled_Request& request,
             rgpuTensorMapTiled_Reply* reply) {
  Lists lists;
  cuuint32_t box[kMostDimensions] = {};
  const Driver& driver = executor.driver();
  if (driver->cuTensorMapEncodeTiled == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!TakeLists(request, 1, &lists) || !Take(request.box, request.rank, box)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = driver->cuTensorMapEncodeTiled(
      &t_made.map, static_cast<CUtensorMapDataType>(request.data_type), request.rank,
      Address(request.dptr), lists.sizes, lists.strides, box, lists.element_strides,
      static_cast<CUtensorMapInterleave>(request.interleave),
      static_cast<CUtensorMapSwizzle>(request.swizzle),
      static_cast<CUtensorMapL2promotion>(request.promotion),
      static_cast<CUtensorMapFloatOOBfill>(request.fill));
  if (result == CUDA_SUCCESS) reply->map = Made();
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuTensorMapIm2col_Request& request,
             rgpuTensorMapIm2col_Reply* reply) {
  Lists lists;
  int lower[kMostDimensions] = {};
  int upper[kMostDimensions] = {};
  const Driver& driver = executor.driver();
  if (driver->cuTensorMapEncodeIm2col == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!TakeLists(request, 3, &lists) || !Take(request.lower, request.rank - 2, lower) ||
      !Take(request.upper, request.rank - 2, upper)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = driver->cuTensorMapEncodeIm2col(
      &t_made.map, static_cast<CUtensorMapDataType>(request.data_type), request.rank,
      Address(request.dptr), lists.sizes, lists.strides, lower, upper, request.channels,
      request.pixels, lists.element_strides, static_cast<CUtensorMapInterleave>(request.interleave),
      static_cast<CUtensorMapSwizzle>(request.swizzle),
      static_cast<CUtensorMapL2promotion>(request.promotion),
      static_cast<CUtensorMapFloatOOBfill>(request.fill));
  if (result == CUDA_SUCCESS) reply->map = Made();
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuTensorMapIm2colWide_Request& request,
             rgpuTensorMapIm2colWide_Reply* reply) {
  Lists lists;
  const Driver& driver = executor.driver();
  if (driver->cuTensorMapEncodeIm2colWide == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (!TakeLists(request, 3, &lists)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver->cuTensorMapEncodeIm2colWide(
      &t_made.map, static_cast<CUtensorMapDataType>(request.data_type), request.rank,
      Address(request.dptr), lists.sizes, lists.strides, request.lower, request.upper,
      request.channels, request.pixels, lists.element_strides,
      static_cast<CUtensorMapInterleave>(request.interleave),
      static_cast<CUtensorMapIm2ColWideMode>(request.mode),
      static_cast<CUtensorMapSwizzle>(request.swizzle),
      static_cast<CUtensorMapL2promotion>(request.promotion),
      static_cast<CUtensorMapFloatOOBfill>(request.fill));
  if (result == CUDA_SUCCESS) reply->map = Made();
  return result;
}

CUresult Run(Executor& executor, const Command&, const rgpuTensorMapReplaceAddress_Request& request,
             rgpuTensorMapReplaceAddress_Reply* reply) {
  const Driver& driver = executor.driver();
  if (driver->cuTensorMapReplaceAddress == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (request.map.size != sizeof t_made.map) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&t_made.map, request.map.data, sizeof t_made.map);
  const CUresult result = driver->cuTensorMapReplaceAddress(&t_made.map, Address(request.dptr));
  if (result == CUDA_SUCCESS) reply->replaced = Made();
  return result;
}

}  // namespace rgpu::exec
