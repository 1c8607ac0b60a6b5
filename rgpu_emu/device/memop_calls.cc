// Calls that wait for values and write values in stream order.
#include <vector>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/memory_operation.h"

namespace rgpu::emu {
namespace {

CUresult MakeNode(const std::vector<MemoryOperation>& operations, const Stream& stream,
                  graph::Params* params) {
  *params = graph::BatchParams{As<CUcontext>(stream.context()->handle), 0, operations};
  return CUDA_SUCCESS;
}

CUresult Issue(CUstream operand, const std::vector<MemoryOperation>& operations) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  for (const MemoryOperation& operation : operations) {
    if (result == CUDA_SUCCESS) result = CheckOperation(operation);
  }
  if (result != CUDA_SUCCESS) return result;
  if (Capture(*stream, &result,
              [&](auto* params) { return MakeNode(operations, *stream, params); }))
    return result;
  for (const MemoryOperation& operation : operations) {
    Command command;
    command.run = [context = stream->context(), operation] {
      return RunOperation(*context, operation);
    };
    result = stream->Push(std::move(command));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

MemoryOperation Word(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                     unsigned flags) {
  MemoryOperation operation{};
  operation.waitValue.operation = type;  // writes have the same layout
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return operation;
}

}  // namespace

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int) {
  return Issue(stream, {paramArray, paramArray + count});
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return Issue(stream, {Word(CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags)});
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return Issue(stream, {Word(CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags)});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return Issue(stream, {Word(CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags)});
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return Issue(stream, {Word(CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags)});
}

}  // namespace rgpu::emu
