// Calls cuMemset*.
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/set.h"

namespace rgpu::emu {
namespace {

// The node of a set that is captured.
CUresult MakeNode(const SetPlan& plan, const Stream& stream, graph::Params* params) {
  const auto context = As<CUcontext>(stream.context()->handle);
  *params = graph::SetParams{
      {plan.dst, plan.pitch, plan.value, plan.element, plan.width, plan.height, context}};
  return CUDA_SUCCESS;
}

// A set returns before it is done, except if the call is synchronous and the memory is page-locked.
CUresult Set(const SetPlan& plan, CUstream operand, bool synchronous) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  PointerKind kind = PointerKind::kInvalid;
  if (result == CUDA_SUCCESS) result = CheckSet(plan, &kind);
  if (result == CUDA_SUCCESS && synchronous) result = CheckSynchronousWork(*stream);
  if (result != CUDA_SUCCESS || kind == PointerKind::kInvalid) return result;
  if (Capture(*stream, &result, [&](auto* params) { return MakeNode(plan, *stream, params); }))
    return result;
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
