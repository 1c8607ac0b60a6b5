// Tensor maps. Only the driver knows the bytes of one.
#include <cstring>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"
#include "rgpu_common/native/base/error_log.h"

namespace rgpu::shim {
namespace {

constexpr cuuint32_t kMostDimensions = 5;

template <typename T>
wire::ByteView List(const T* elements, size_t count) {
  return wire::Bytes(elements, count * sizeof(T));
}

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// A tensor map needs no context: the address names the session. Any device of the session may have
// the feature, as they share a driver.
CUresult TensorMapsHere(const void* address, Here* here) {
  *here = AddressHere(Address(address));
  const auto& stack = here->thread->stack;
  Context* const current = stack.empty() ? nullptr : stack.back();
  if (current != nullptr && SessionOfContext(current->id) == here->session) here->context = current;
  const Device* device = here->context == nullptr
                             ? here->session->devices().FirstOf(here->session->number())
                             : here->session->devices().Find(here->context->device);
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device->Attribute(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED) != 0) return CUDA_SUCCESS;
  base::LogSentence(
      "tensor maps need a device of compute capability 9.0 or newer, which this device is not");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// A tensor of one dimension has no strides.
CUresult CheckRank(cuuint32_t rank, cuuint32_t least, const void* strides) {
  const bool known = rank >= least && rank <= kMostDimensions && (rank == 1 || strides != nullptr);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// What all kinds of maps say of how elements are stored and fetched.
struct Storage {
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};

// The fields that all kinds of maps have. Returned by value: the lists point to the program's
// memory.
template <typename Request>
Request Common(CUtensorMapDataType type, cuuint32_t rank, const void* address,
               const cuuint64_t* sizes, const cuuint64_t* strides,
               const cuuint32_t* element_strides, const Storage& storage) {
  Request request;
  request.interleave = static_cast<uint32_t>(storage.interleave);
  request.swizzle = static_cast<uint32_t>(storage.swizzle);
  request.promotion = static_cast<uint32_t>(storage.promotion);
  request.fill = static_cast<uint32_t>(storage.fill);
  request.data_type = static_cast<uint32_t>(type);
  request.rank = rank;
  request.dptr = Address(address);
  request.sizes = List(sizes, rank);
  request.strides = List(strides, rank - 1);
  request.element_strides = List(element_strides, rank);
  return request;
}

template <typename Op>
CUresult Encode(const Here& here, const typename Op::Request& request, CUtensorMap* map) {
  // Points into this thread's copy of the reply.
  typename Op::Reply reply;
  const CUresult status = here.channel().Call<Op>(here.issuer(), request, &reply);
  if (status != CUDA_SUCCESS) return status;
  if (reply.map.size != sizeof *map) return CUDA_ERROR_EXTERNAL_DEVICE;
  std::memcpy(map, reply.map.data, sizeof *map);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                cuuint32_t tensorRank, void* globalAddress,
                                const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                const cuuint32_t* boxDim, const cuuint32_t* elementStrides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2Promotion,
                                CUtensorMapFloatOOBfill oobFill) {
  Here here;
  if (const CUresult status = TensorMapsHere(globalAddress, &here); status != CUDA_SUCCESS)
    return status;
  const CUresult bad = CheckRank(tensorRank, 1, globalStrides);
  if (bad != CUDA_SUCCESS) return bad;
  auto request = Common<rgpuTensorMapTiled_Request>(tensorDataType, tensorRank, globalAddress,
                                                    globalDim, globalStrides, elementStrides,
                                                    {interleave, swizzle, l2Promotion, oobFill});
  request.box = List(boxDim, tensorRank);
  return Encode<op_rgpuTensorMapTiled>(here, request, tensorMap);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType,
                                 cuuint32_t tensorRank, void* globalAddress,
                                 const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
                                 const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner,
                                 cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
                                 const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                 CUtensorMapFloatOOBfill oobFill) {
  Here here;
  if (const CUresult status = TensorMapsHere(globalAddress, &here); status != CUDA_SUCCESS)
    return status;
  const CUresult bad = CheckRank(tensorRank, 3, globalStrides);
  if (bad != CUDA_SUCCESS) return bad;
  auto request = Common<rgpuTensorMapIm2col_Request>(tensorDataType, tensorRank, globalAddress,
                                                     globalDim, globalStrides, elementStrides,
                                                     {interleave, swizzle, l2Promotion, oobFill});
  request.channels = channelsPerPixel;
  request.pixels = pixelsPerColumn;
  request.lower = List(pixelBoxLowerCorner, tensorRank - 2);
  request.upper = List(pixelBoxUpperCorner, tensorRank - 2);
  return Encode<op_rgpuTensorMapIm2col>(here, request, tensorMap);
}

CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  Here here;
  if (const CUresult status = TensorMapsHere(globalAddress, &here); status != CUDA_SUCCESS)
    return status;
  const CUresult bad = CheckRank(tensorRank, 3, globalStrides);
  if (bad != CUDA_SUCCESS) return bad;
  auto request = Common<rgpuTensorMapIm2colWide_Request>(
      tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides,
      {interleave, swizzle, l2Promotion, oobFill});
  request.channels = channelsPerPixel;
  request.pixels = pixelsPerColumn;
  request.lower = pixelBoxLowerCornerWidth;
  request.upper = pixelBoxUpperCornerWidth;
  request.mode = static_cast<uint32_t>(mode);
  return Encode<op_rgpuTensorMapIm2colWide>(here, request, tensorMap);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  Here here;
  if (const CUresult status = TensorMapsHere(globalAddress, &here); status != CUDA_SUCCESS)
    return status;
  rgpuTensorMapReplaceAddress_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuTensorMapReplaceAddress>(
      here.issuer(), {Address(globalAddress), wire::Bytes(tensorMap, sizeof *tensorMap)}, &reply);
  if (status != CUDA_SUCCESS) return status;
  if (reply.replaced.size != sizeof *tensorMap) return CUDA_ERROR_EXTERNAL_DEVICE;
  std::memcpy(tensorMap, reply.replaced.data, sizeof *tensorMap);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
