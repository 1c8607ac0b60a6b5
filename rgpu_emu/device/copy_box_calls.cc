// Calls cuMemcpy* with rows and slices, and with arrays.
#include <optional>
#include <vector>

#include "rgpu_emu/device/array.h"
#include "rgpu_emu/device/copy_box.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"

namespace rgpu::emu {
namespace {

enum class Wait { kUntilDone, kNever };

// True: the stream captures or must not be used; the call returns `*result`.
bool CaptureBox(const base::BoxCopy& box, const Stream& stream, CUresult* result) {
  return Capture(stream, result, [&](graph::Params* params) {
    *params = graph::CopyParams{ParamsOf(box), As<CUcontext>(stream.context()->handle)};
    return CUDA_SUCCESS;
  });
}

CUresult Issue(const base::BoxCopy& box, CUstream operand, Wait wait) {
  std::shared_ptr<Stream> stream;
  CopyPlan plan;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = PlanOf(box, &plan);
  if (result != CUDA_SUCCESS || plan.empty()) return result;
  if (wait == Wait::kUntilDone) return SynchronousCopy(plan, stream);
  return CaptureBox(box, *stream, &result) ? result : AsynchronousCopy(plan, stream);
}

template <typename Copy>
CUresult IssueBox(const Copy& copy, CUstream operand, Wait wait) {
  std::shared_ptr<Stream> stream;
  base::BoxCopy box;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = base::BoxOf(copy, &box);
  return result == CUDA_SUCCESS ? Issue(box, operand, wait) : result;
}

// A copy of one row to or from an array of one dimension.
CUresult IssueRow(base::BoxSide to, base::BoxSide from, size_t bytes, CUstream stream, Wait wait) {
  for (const base::BoxSide* side : {&to, &from}) {
    if (!side->is_array()) continue;
    const ArrayRef array = FindArray(side->array);
    if (array != nullptr && (array->shape.Height != 0 || array->shape.Depth != 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  base::BoxCopy box;
  box.to = to;
  box.from = from;
  box.width = bytes;
  return Issue(box, stream, wait);
}

base::BoxSide Host(const void* address, size_t bytes) {
  return base::LinearSide(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(address), bytes);
}

base::BoxSide Dev(CUdeviceptr address, size_t bytes) {
  return base::LinearSide(CU_MEMORYTYPE_DEVICE, address, bytes);
}

// The context of a side, which need not be that of the stream. An array's own context counts.
CUresult ContextOf(const base::BoxSide& side, const std::shared_ptr<Stream>& stream,
                   std::shared_ptr<Context>* context) {
  uint64_t handle = Raw(side.context);
  if (side.is_array()) {
    const ArrayRef array = FindArray(side.array);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    handle = array->context;
  }
  *context =
      side.type == CU_MEMORYTYPE_HOST ? stream->context() : TheDevice().contexts.Find(handle);
  if (*context == nullptr || (*context)->dying()) return CUDA_ERROR_INVALID_CONTEXT;
  return (*context)->Status();
}

struct Peers {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Context> to;
  std::shared_ptr<Context> from;
  base::BoxCopy box;
  CopyPlan plan;
};

CUresult PlanPeers(const CUDA_MEMCPY3D_PEER& copy, CUstream operand, Peers* peers) {
  base::BoxCopy& box = peers->box;
  CUresult result = FindStream(operand, &peers->stream);
  if (result == CUDA_SUCCESS) result = base::BoxOf(copy, &box);
  if (result == CUDA_SUCCESS) result = ContextOf(box.to, peers->stream, &peers->to);
  if (result == CUDA_SUCCESS) result = ContextOf(box.from, peers->stream, &peers->from);
  return result == CUDA_SUCCESS ? PlanOf(box, &peers->plan) : result;
}

// The extent of an operand's array; null: the operand is a pointer.
CUresult ExtentOf(const CUmemcpy3DOperand& operand, std::optional<base::ArrayExtent>* extent) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_SUCCESS;
  const ArrayRef array = FindArray(operand.op.array.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return base::ExtentOf(array->shape, &extent->emplace()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct BoxPlan {
  base::BoxCopy box;
  CopyPlan plan;
};

CUresult PlanOfBatch(const CUDA_MEMCPY3D_BATCH_OP& copy, BoxPlan* out) {
  std::optional<base::ArrayExtent> to;
  std::optional<base::ArrayExtent> from;
  CUresult result = ExtentOf(copy.dst, &to);
  if (result == CUDA_SUCCESS) result = ExtentOf(copy.src, &from);
  if (result == CUDA_SUCCESS) {
    result = base::BoxOf(copy, to ? &*to : nullptr, from ? &*from : nullptr, &out->box);
  }
  return result == CUDA_SUCCESS ? PlanOf(out->box, &out->plan) : result;
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  return IssueBox(*pCopy, nullptr, Wait::kUntilDone);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return IssueBox(*pCopy, nullptr, Wait::kUntilDone);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return IssueBox(*pCopy, hStream, Wait::kNever);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  return IssueBox(*pCopy, nullptr, Wait::kUntilDone);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return IssueBox(*pCopy, hStream, Wait::kNever);
}

// Comes behind all work of the three contexts, whose later work comes behind the copy.
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  Peers peers;
  const CUresult bad = PlanPeers(*pCopy, nullptr, &peers);
  if (bad != CUDA_SUCCESS || peers.plan.empty()) return bad;
  const auto own = peers.stream->context();
  for (const auto& context : {own, peers.to, peers.from}) own->HoldBehind(context->Pending());
  const CUresult result = SynchronousCopy(peers.plan, peers.stream);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& context : {own, peers.to, peers.from}) {
    context->HoldBehind({peers.stream->Tail()});
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  Peers peers;
  CUresult result = PlanPeers(*pCopy, hStream, &peers);
  if (result != CUDA_SUCCESS || peers.plan.empty()) return result;
  const bool captured = CaptureBox(peers.box, *peers.stream, &result);
  return captured ? result : AsynchronousCopy(peers.plan, peers.stream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long,
                                 CUstream hStream) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  // cuda.h: the stream must not be the default null stream.
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_INVALID_VALUE;
  std::vector<BoxPlan> plans(numOps);
  for (size_t i = 0; i < numOps && result == CUDA_SUCCESS; ++i) {
    result = PlanOfBatch(opList[i], &plans[i]);
  }
  for (size_t i = 0; i < numOps && result == CUDA_SUCCESS; ++i) {
    if (plans[i].plan.empty() || CaptureBox(plans[i].box, *stream, &result)) continue;
    result = CopyOfBatch(plans[i].plan, opList[i].srcAccessOrder, stream);
  }
  return result;
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return IssueRow(base::ArraySide(dstArray, dstOffset), Host(srcHost, ByteCount), ByteCount,
                  nullptr, Wait::kUntilDone);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return IssueRow(base::ArraySide(dstArray, dstOffset), Host(srcHost, ByteCount), ByteCount,
                  hStream, Wait::kNever);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return IssueRow(Host(dstHost, ByteCount), base::ArraySide(srcArray, srcOffset), ByteCount,
                  nullptr, Wait::kUntilDone);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return IssueRow(Host(dstHost, ByteCount), base::ArraySide(srcArray, srcOffset), ByteCount,
                  hStream, Wait::kNever);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return IssueRow(base::ArraySide(dstArray, dstOffset), Dev(srcDevice, ByteCount), ByteCount,
                  nullptr, Wait::kUntilDone);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return IssueRow(Dev(dstDevice, ByteCount), base::ArraySide(srcArray, srcOffset), ByteCount,
                  nullptr, Wait::kUntilDone);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return IssueRow(base::ArraySide(dstArray, dstOffset), base::ArraySide(srcArray, srcOffset),
                  ByteCount, nullptr, Wait::kUntilDone);
}

}  // namespace rgpu::emu
