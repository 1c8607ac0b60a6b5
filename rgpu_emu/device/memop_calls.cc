// Calls that wait for values and write values in stream order.
#include "rgpu_common/native/base/batches.h"
#include "rgpu_emu/device/copy.h"
#include "rgpu_emu/device/device.h"

namespace rgpu::emu {
namespace {

struct Word {
  uint64_t address;
  uint64_t value;
  bool wide;
};

void Store(void* argument) {
  const auto* word = static_cast<const Word*>(argument);
  if (word->wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word->address), word->value, __ATOMIC_SEQ_CST);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(word->address), static_cast<uint32_t>(word->value),
                     __ATOMIC_SEQ_CST);
  }
}

CUresult Write(Word word) {
  Fault fault;
  return RunGuarded(&Store, &word, &fault) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult CheckWord(CUdeviceptr address, uint64_t bytes) {
  if (address % bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const PointerKind kind = KindOf(address, bytes);
  return kind == PointerKind::kDevice || kind == PointerKind::kPinned ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult PushWait(CUstream operand, const AwaitedValue& awaited) {
  if (const CUresult bad = base::CheckWaitFlags(awaited.flags); bad != CUDA_SUCCESS) return bad;
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(awaited.address, awaited.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [context = stream->context(), awaited] {
    return TheDevice().values.Wait(*context, awaited);
  };
  return stream->Push(std::move(command));
}

CUresult PushWrite(CUstream operand, Word word) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(operand, &stream);
  if (result == CUDA_SUCCESS) result = CheckWord(word.address, word.wide ? 8 : 4);
  if (result != CUDA_SUCCESS) return result;
  Command command;
  command.run = [word] { return Write(word); };
  return stream->Push(std::move(command));
}

using Params = CUstreamBatchMemOpParams;

// Checks one operation of a batch.
CUresult CheckOperation(const Params& params) {
  const CUresult bad = base::CheckMemoryOperation(params);
  const uint32_t width = base::WidthOf(params);
  return bad != CUDA_SUCCESS || width == 0 ? bad : CheckWord(params.waitValue.address, width);
}

CUresult PushOperation(CUstream stream, const Params& params) {
  const auto& word = params.waitValue;  // writes have the same layout
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return PushWait(stream, {word.address, word.value, word.flags, false});
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return PushWait(stream, {word.address, word.value64, word.flags, true});
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return PushWrite(stream, {word.address, word.value, false});
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return PushWrite(stream, {word.address, word.value64, true});
    default:
      return CUDA_SUCCESS;  // a barrier: all writes of the device are visible in order
  }
}

}  // namespace

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int) {
  std::shared_ptr<Stream> found;
  CUresult result = FindStream(stream, &found);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = CheckOperation(paramArray[i]);
  }
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = PushOperation(stream, paramArray[i]);
  }
  return result;
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, flags, false});
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return PushWait(stream, {addr, value, flags, true});
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int) {
  return PushWrite(stream, {addr, value, false});
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int) {
  return PushWrite(stream, {addr, value, true});
}

}  // namespace rgpu::emu
