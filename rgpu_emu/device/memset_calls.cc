// Calls cuMemset*.
#include <cstring>

#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

struct SetPlan {
  uint64_t dst = 0;
  uint64_t pitch = 0;
  uint64_t width = 0;  // elements
  uint64_t height = 1;
  uint32_t value = 0;
  uint32_t element = 1;  // bytes
};

template <class T>
void FillRow(uint64_t row, const SetPlan& plan) {
  auto* at = reinterpret_cast<T*>(row);
  std::fill_n(at, plan.width, static_cast<T>(plan.value));
}

void FillRows(void* argument) {
  const SetPlan& plan = *static_cast<const SetPlan*>(argument);
  for (uint64_t y = 0; y < plan.height; ++y) {
    const uint64_t row = plan.dst + y * plan.pitch;
    if (plan.element == 1)
      std::memset(reinterpret_cast<void*>(row), static_cast<int>(plan.value), plan.width);
    if (plan.element == 2) FillRow<uint16_t>(row, plan);
    if (plan.element == 4) FillRow<uint32_t>(row, plan);
  }
}

CUresult Fill(SetPlan plan) {
  Fault fault;
  return RunGuarded(&FillRows, &plan, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// A set returns before it is done, except if the call is synchronous and the memory is page-locked.
CUresult Set(const SetPlan& plan, CUstream operand, bool synchronous) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(operand, &stream);
  if (found != CUDA_SUCCESS) return found;
  uint64_t row_bytes = 0;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(plan.width, plan.element, &row_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool rows = plan.height > 1;
  if (plan.dst % plan.element != 0) return CUDA_ERROR_INVALID_VALUE;
  if (rows && (plan.pitch < row_bytes || plan.pitch % plan.element != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (!SpanOf(plan.pitch, row_bytes, plan.height, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return CUDA_SUCCESS;
  const PointerKind kind = KindOf(plan.dst, bytes);
  if (kind == PointerKind::kInvalid || kind == PointerKind::kPageable)
    return CUDA_ERROR_INVALID_VALUE;
  if (synchronous && (kind == PointerKind::kPinned || WaitsFor(plan.dst))) {
    return stream->PushAndWait([&plan] { return Fill(plan); });
  }
  Command command;
  command.run = [plan] { return Fill(plan); };
  return stream->Push(std::move(command));
}

SetPlan Linear(uint64_t dst, uint32_t element, uint32_t value, uint64_t count) {
  return {dst, 0, count, 1, value, element};
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return Set(Linear(dstDevice, 1, uc, N), nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return Set(Linear(dstDevice, 2, us, N), nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return Set(Linear(dstDevice, 4, ui, N), nullptr, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return Set({dstDevice, dstPitch, Width, Height, uc, 1}, nullptr, true);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return Set({dstDevice, dstPitch, Width, Height, us, 2}, nullptr, true);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return Set({dstDevice, dstPitch, Width, Height, ui, 4}, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return Set(Linear(dstDevice, 1, uc, N), hStream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return Set(Linear(dstDevice, 2, us, N), hStream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return Set(Linear(dstDevice, 4, ui, N), hStream, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return Set({dstDevice, dstPitch, Width, Height, uc, 1}, hStream, false);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return Set({dstDevice, dstPitch, Width, Height, us, 2}, hStream, false);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return Set({dstDevice, dstPitch, Width, Height, ui, 4}, hStream, false);
}

}  // namespace rgpu::emu
