// The copy functions with rows and slices, and with arrays.
#include <optional>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/across.h"
#include "rgpu_client/shim/calls/box_sides.h"
#include "rgpu_client/shim/calls/copy_sends.h"
#include "rgpu_client/shim/trace.h"

namespace rgpu::shim {
namespace {

using base::BoxCopy;
using base::BoxSide;

CUresult RunBox(const Here& here, const BoxCopy& box, bool synchronous) {
  Copy copy;
  const CUresult status = CopyOf(box, synchronous, &copy);
  return status == CUDA_SUCCESS ? RunCopy(here, copy) : status;
}

template <typename Params>
CUresult RunParams(const Params& params, CUstream stream, bool synchronous) {
  Here here;
  BoxCopy box;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  const CUresult bad = base::BoxOf(params, &box);
  return bad == CUDA_SUCCESS ? RunBox(here, box, synchronous) : bad;
}

// A copy of one row to or from an array of one dimension.
CUresult RunRow(CUstream stream, const BoxSide& to, const BoxSide& from, size_t bytes,
                bool synchronous) {
  Here here;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  for (const BoxSide* side : {&to, &from}) {
    if (!side->is_array()) continue;
    const Array* array = FindArray(side->array);
    if (array != nullptr && (array->shape.Height != 0 || array->shape.Depth != 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  BoxCopy box;
  box.to = to;
  box.from = from;
  box.width = bytes;
  return RunBox(here, box, synchronous);
}

BoxSide HostRow(const void* address, size_t bytes) {
  return base::LinearSide(CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(address), bytes);
}

BoxSide DeviceRow(CUdeviceptr address, size_t bytes) {
  return base::LinearSide(CU_MEMORYTYPE_DEVICE, address, bytes);
}

// The context of a side of a copy between contexts: an array has one of its own.
Context* ContextOf(const Here& here, const BoxSide& side) {
  Context* context = SessionOfContext(HandleValue(side.context))->FindContext(side.context);
  if (side.is_array()) {
    const Array* array = FindArray(side.array);
    context =
        array == nullptr ? nullptr : SessionOf(array->id)->handles().Find<Context>(array->context);
  }
  if (side.type == CU_MEMORYTYPE_HOST) context = here.context;
  return context != nullptr && context->alive ? context : nullptr;
}

// A copy between two contexts. With a host side it is a copy like others.
CUresult RunPeer(const CUDA_MEMCPY3D_PEER& params, CUstream stream, bool serial) {
  Here here;
  BoxCopy box;
  Copy copy;
  if (const CUresult status = StreamHere(stream, &here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = base::BoxOf(params, &box); bad != CUDA_SUCCESS) return bad;
  Context* const to = ContextOf(here, box.to);
  Context* const from = ContextOf(here, box.from);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult status = CopyOf(box, serial, &copy);
  if (status != CUDA_SUCCESS) return status;
  const bool across = IsAcross(here, copy);
  if (across || !copy.to.device || !copy.from.device) return RunCopy(here, copy);
  status = here.channel().sticky();
  if (status != CUDA_SUCCESS || copy.empty()) return status;
  if (status = CheckSides(here, copy); status != CUDA_SUCCESS) return status;
  // A node of a graph makes the copy in one context: all memory of a session is of one device.
  if (CapturedCopy(here, copy, &status)) return status;
  TraceBytes(copy.bytes());
  rgpuCopyBoxPeer_Request request = BoxWithin<rgpuCopyBoxPeer_Request>(here, copy);
  request.dst_context = to->id;
  request.src_context = from->id;
  request.serial = serial;
  status = here.channel().Post<op_rgpuCopyBoxPeer>(here.issuer(), request,
                                                   CountedWork(here, copy.bytes()));
  if (status != CUDA_SUCCESS || !serial) return status;
  // The copy is work of these contexts too: a wait for one of them waits for it.
  for (Context* context : {to, from}) MarkSynced(context->work_seq, here.channel().last_posted());
  return CUDA_SUCCESS;
}

// The extent of an operand's array. None: it is a pointer.
CUresult ExtentOf(const CUmemcpy3DOperand& operand, std::optional<base::ArrayExtent>* extent) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_SUCCESS;
  const Array* array = FindArray(operand.op.array.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return base::ExtentOf(array->shape, &extent->emplace()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CopyOfBatch(const Here& here, const CUDA_MEMCPY3D_BATCH_OP& params, Copy* copy) {
  std::optional<base::ArrayExtent> to;
  std::optional<base::ArrayExtent> from;
  BoxCopy box;
  CUresult status = ExtentOf(params.dst, &to);
  if (status == CUDA_SUCCESS) status = ExtentOf(params.src, &from);
  if (status == CUDA_SUCCESS) {
    status = base::BoxOf(params, to ? &*to : nullptr, from ? &*from : nullptr, &box);
  }
  if (status == CUDA_SUCCESS) status = CopyOf(box, false, copy);
  if (status == CUDA_SUCCESS && !IsAcross(here, *copy)) status = CheckSides(here, *copy);
  copy->source_order = params.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
                           ? SourceOrder::kStream
                           : SourceOrder::kAtCall;
  return status;
}

}  // namespace

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return RunParams(*pCopy, nullptr, true); }

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return RunParams(*pCopy, nullptr, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return RunParams(*pCopy, hStream, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return RunParams(*pCopy, nullptr, true); }

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return RunParams(*pCopy, hStream, false);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) { return RunPeer(*pCopy, nullptr, true); }

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return RunPeer(*pCopy, hStream, false);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, unsigned long long,
                                 CUstream hStream) {
  Here here;
  CUresult status = StreamHere(hStream, &here);
  if (status != CUDA_SUCCESS) return status;
  // cuda.h: the stream must not be the default null stream.
  if (here.stream->wire == kWireLegacyStream) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Copy> copies(numOps);
  for (size_t i = 0; i < numOps && status == CUDA_SUCCESS; ++i) {
    status = CopyOfBatch(here, opList[i], &copies[i]);
  }
  for (size_t i = 0; i < numOps && status == CUDA_SUCCESS; ++i) {
    status = RunCopyOfBatch(here, copies[i]);
  }
  return status;
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return RunRow(nullptr, base::ArraySide(dstArray, dstOffset), HostRow(srcHost, ByteCount),
                ByteCount, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return RunRow(hStream, base::ArraySide(dstArray, dstOffset), HostRow(srcHost, ByteCount),
                ByteCount, false);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return RunRow(nullptr, HostRow(dstHost, ByteCount), base::ArraySide(srcArray, srcOffset),
                ByteCount, true);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return RunRow(hStream, HostRow(dstHost, ByteCount), base::ArraySide(srcArray, srcOffset),
                ByteCount, false);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return RunRow(nullptr, base::ArraySide(dstArray, dstOffset), DeviceRow(srcDevice, ByteCount),
                ByteCount, true);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return RunRow(nullptr, DeviceRow(dstDevice, ByteCount), base::ArraySide(srcArray, srcOffset),
                ByteCount, true);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return RunRow(nullptr, base::ArraySide(dstArray, dstOffset), base::ArraySide(srcArray, srcOffset),
                ByteCount, true);
}

}  // namespace rgpu::shim
